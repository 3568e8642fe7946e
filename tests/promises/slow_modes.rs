//! Promise: a subscriber that falls behind is treated as it chose: it catches up, skips to the tail, or is closed; what it was
//! made to miss is told and counted exactly.

use crate::broker::{Broker, Setup};
use crate::deadline::{LIMIT, wait_until};
use crate::metrics::Exposition;
use crate::reader::{KINDS, Kind, Reader, Told};
use serde_json::json;
use std::time::Duration;

const PAYLOAD_BYTES: usize = 20_000;
/// 30 MB: more than sockets, a connection's queue, a window and the live window of a memory topic hold together.
const MESSAGES: u64 = 1500;

fn publish(broker: &Broker, count: u64) {
    let payload = vec![b'x'; PAYLOAD_BYTES];
    let mut connection = broker.connect();
    for _ in 0..count {
        connection.send_request("POST", "/topics/t/publish", &[], &payload);
        connection.response_to("POST").expect(202);
    }
}

fn started(retention: u64) -> Broker {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "retention": { "max_messages": retention } }), "t");
    broker
}

fn dropped(broker: &Broker) -> u64 {
    Exposition::read(broker).value("streamq_messages_dropped_total", &[("topic", "t")]).map_or(0, |count| count as u64)
}

/// How far a reader has come.
struct Follower {
    kind: Kind,
    reader: Reader,
    next: u64,
    missed: u64,
}

impl Follower {
    fn all(broker: &Broker, query: &str) -> [Self; 3] {
        KINDS.map(|kind| Self { kind, reader: Reader::open(broker, "t", query, kind), next: 0, missed: 0 })
    }

    /// Takes what came, if anything did. What was missed must have been told, except to those who are told of messages only.
    fn step(&mut self, limit: Duration) -> Option<Told> {
        let (kind, next) = (self.kind, self.next);
        match self.reader.step(limit) {
            Told::Message { offset, .. } => {
                assert!(offset == next || (kind == Kind::Plain && offset > next), "{kind:?}: {offset} after {next}");
                self.missed += offset - next;
                self.next = offset + 1;
            }
            Told::Gap { requested, resumed } if kind != Kind::Plain => {
                assert!(requested == next && resumed > requested, "{kind:?}: {requested}..{resumed} at {next}");
                self.missed += resumed - next;
                self.next = resumed;
            }
            other => return Some(other),
        }
        None
    }

    fn read_to(&mut self, end: u64) {
        while self.next < end {
            let other = self.step(LIMIT);
            assert!(other.is_none(), "{:?}: {other:?} at {}", self.kind, self.next);
        }
    }
}

#[test]
fn one_that_lags_catches_up_from_the_log() {
    let broker = started(10_000);
    let mut followers = Follower::all(&broker, "?slow=lag");
    publish(&broker, MESSAGES);
    for follower in &mut followers {
        follower.read_to(MESSAGES);
        assert_eq!(follower.missed, 0, "{:?}", follower.kind);
    }
    assert_eq!(dropped(&broker), 0);
    publish(&broker, 1);
    followers.iter_mut().for_each(|follower| assert_eq!(follower.reader.offset(), MESSAGES));
}

#[test]
fn one_that_lags_behind_what_is_kept_is_told_and_its_losses_are_counted() {
    let broker = started(20);
    let mut followers = Follower::all(&broker, "");
    publish(&broker, MESSAGES);
    for follower in &mut followers {
        follower.read_to(MESSAGES);
        assert!(follower.missed > 0, "{:?} cannot have had all of it", follower.kind);
    }
    let missed: u64 = followers.iter().map(|follower| follower.missed).sum();
    wait_until("what they missed is counted", || dropped(&broker) == missed);
}

#[test]
fn one_that_skips_goes_on_at_the_tail() {
    let broker = started(10_000);
    let mut followers = Follower::all(&broker, "?slow=skip");
    publish(&broker, MESSAGES);
    let mut end = MESSAGES;
    for follower in &mut followers {
        // The tail is the end: after the skip nothing comes until there is something new.
        while follower.next < end {
            if let Some(other) = follower.step(Duration::from_millis(100)) {
                assert_eq!(other, Told::Quiet, "{:?}", follower.kind);
                publish(&broker, 1);
                end += 1;
            }
        }
        let missed = follower.missed * PAYLOAD_BYTES as u64;
        assert!(missed > 4 << 20, "{:?} missed {missed} bytes, less than a window holds", follower.kind);
    }
    followers.iter_mut().for_each(|follower| follower.read_to(end));
    let missed: u64 = followers.iter().map(|follower| follower.missed).sum();
    wait_until("what they missed is counted", || dropped(&broker) == missed);
}

#[test]
fn one_that_wants_to_be_closed_is_closed() {
    let broker = started(10_000);
    let mut followers = Follower::all(&broker, "?slow=close");
    let mut other = Reader::open(&broker, "t", "", Kind::Plain);
    std::thread::scope(|scope| {
        scope.spawn(|| publish(&broker, MESSAGES));
        (0..MESSAGES).for_each(|offset| assert_eq!(other.offset(), offset));
    });
    broker.wait_for_subscribers("t", 1);
    let counted = dropped(&broker);
    for follower in &mut followers {
        let end = loop {
            if let Some(end) = follower.step(LIMIT) {
                break end;
            }
        };
        let reason = if follower.kind == Kind::Sse { "too_slow" } else { "4408" };
        assert_eq!(end, Told::End(reason.to_owned()));
        assert_eq!(follower.missed, 0, "{:?}: a hole before the end", follower.kind);
    }
    let missed: u64 = followers.iter().map(|follower| MESSAGES - follower.next).sum();
    // What each had not been sent when it was closed: a window at least, and nothing of what came later.
    let window = (4 << 20) / (PAYLOAD_BYTES as u64 + 200);
    assert!(counted <= missed && counted >= 3 * window, "{counted} are counted of {missed}");
    publish(&broker, 10);
    assert_eq!(dropped(&broker), counted);
}

#[test]
fn one_that_was_closed_and_never_reads_is_let_go() {
    let broker = Setup::new().flag("--write-timeout-ms", 400).start();
    broker.create_topic_with(json!({ "retention": { "max_messages": 10_000 } }), "t");
    let before = broker.open_files();
    let readers = KINDS.map(|kind| Reader::open(&broker, "t", "?slow=close", kind));
    publish(&broker, MESSAGES);
    broker.wait_for_subscribers("t", 0);
    wait_until("their connections are gone", || broker.open_files() <= before);
    drop(readers);
}

#[test]
fn replaying_the_past_is_no_slowness() {
    // They have never followed, and so nothing has left them behind.
    let broker = started(10_000);
    publish(&broker, MESSAGES);
    for slow in ["skip", "close"] {
        for mut follower in Follower::all(&broker, &format!("?from_offset=0&slow={slow}")) {
            follower.read_to(MESSAGES);
            assert_eq!(follower.missed, 0, "{slow} {:?}", follower.kind);
        }
    }
    assert_eq!(dropped(&broker), 0);
}
