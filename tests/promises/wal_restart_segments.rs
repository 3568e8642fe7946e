//! Promise: what has left a topic's log for its segments is read back by every reader as if it had not: no gap, no double, the
//! same bytes, also while publishing goes on and after a kill. Retention by segments gives up the oldest and says so.

use crate::broker::{Broker, Setup, topic_path};
use crate::chance::{Chance, scaled};
use crate::deadline::LIMIT;
use crate::events::Step;
use crate::http::request_bytes;
use crate::wal_kill_model::{Digest, Told, digest, payload_of};
use crate::websocket::{Heard, LAST, TEXT};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Bytes of the messages that are there when readers begin: some segments for each of the topics.
const BYTES: usize = 48 << 20;

/// Bytes of one topic segment: the least.
const SEGMENT_BYTES: u64 = 1 << 20;

fn setup(segments: u64) -> Setup {
    Setup::new().logged().variable("WAL_SEGMENT_SIZE", SEGMENT_BYTES).variable("WAL_MAX_SEGMENTS", segments)
}

/// Publishes payloads of that many bytes in all, in few packets; gives their digests in the order of their offsets, which begin
/// at `first`.
fn publish_bytes(broker: &Broker, topic: &str, first: u64, bytes: usize, chance: &mut Chance) -> Vec<Digest> {
    let mut connection = broker.connect();
    let (host, target) = (broker.address().to_string(), topic_path(topic, "/publish"));
    let mut digests = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let giant = (chance.below(40) == 0).then(|| payload_of(1 << 20));
        let payloads: Vec<Vec<u8>> = (0..16)
            .map(|_| payload_of([0, 50, 1000, 10_000, 100_000][chance.below(5)] + chance.below(50)))
            .chain(giant)
            .collect();
        let requests: Vec<u8> =
            payloads.iter().flat_map(|payload| request_bytes(&host, "POST", &target, &[], payload)).collect();
        let mut sender = connection.sender();
        thread::scope(|scope| {
            scope.spawn(move || std::io::Write::write_all(&mut sender, &requests).unwrap());
            for payload in payloads {
                let offset = connection.response_to("POST").expect(202).data()["offset"].as_u64().unwrap();
                assert_eq!(offset, first + digests.len() as u64);
                digests.push(digest(&payload));
                left = left.saturating_sub(payload.len());
            }
        });
    }
    digests
}

/// Files of the folder and all folders in it, larger than nothing.
pub(crate) fn files_below(folder: &Path) -> HashMap<std::path::PathBuf, u64> {
    let mut files = HashMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(data) if data.is_dir() => files.extend(files_below(&entry.path())),
            Ok(data) => drop(files.insert(entry.path(), data.len())),
            // It went meanwhile.
            Err(_) => {}
        }
    }
    files
}

/// What one reader reads of a topic, from the beginning until the last of the messages.
fn read_all(broker: &Broker, topic: &str, how: usize, until: &dyn Fn() -> Option<u64>) -> Vec<Digest> {
    let mut found = Vec::new();
    let mut take = |value: &Value| {
        let told = Told::of(value);
        assert_eq!(told.offset, found.len() as u64, "reader {how} of {topic}");
        found.push(told.digest);
        until().is_some_and(|last| told.offset == last)
    };
    match how {
        0 => {
            let mut stream = broker.subscribe(topic, "?from_offset=0", &[]);
            loop {
                match stream.step(LIMIT) {
                    Step::Event(event) if event.name == "message" => {
                        if take(&event.json()) {
                            return found;
                        }
                    }
                    other => panic!("{topic}: {other:?}"),
                }
            }
        }
        1 => {
            let mut socket = broker.websocket(topic, "?from_offset=0", &[]);
            while !take(&socket.message().value) {}
            found
        }
        2 => {
            let mut connection = broker.connect();
            let mut next = 0;
            loop {
                let target = topic_path(topic, &format!("/messages?from_offset={next}&limit=1000&wait_ms=10000"));
                let page = crate::wal_kill_model::get(&mut connection, &target).expect(200).data();
                assert!(page.get("gap").is_none(), "{page}");
                for message in page["messages"].as_array().unwrap() {
                    if take(message) {
                        return found;
                    }
                }
                next = page["next_offset"].as_u64().unwrap();
            }
        }
        _ => {
            let mut socket = broker.websocket(topic, "?group=readers&from_offset=0&max_in_flight=100", &[]);
            loop {
                let message = match socket.step(LIMIT) {
                    Heard::Message(message) => message,
                    other => panic!("{topic}: no message but {other:?}; {}", broker.group(topic, "readers")),
                };
                let is_last = take(&message.value);
                socket.send_frame(LAST | TEXT, json!({ "ack": message.offset }).to_string().as_bytes());
                if is_last {
                    return found;
                }
            }
        }
    }
}

#[test]
fn everything_is_replayed_from_the_beginning_while_publishing_goes_on() {
    let mut chance = Chance::for_test();
    let mut broker = setup(1000).start();
    let topics = ["one", "other/ü"];
    topics.iter().for_each(|topic| broker.create_topic_with(json!({ "ack_wait_ms": 600_000 }), topic));
    let bytes = scaled(BYTES) / topics.len();
    let mut published: Vec<Vec<Digest>> =
        topics.iter().map(|topic| publish_bytes(&broker, topic, 0, bytes, &mut chance)).collect();
    assert!(files_below(&broker.folder().join("data")).len() > topics.len() * 4, "nothing left the log");
    // The second time after a kill, when nothing is in memory.
    for is_killed in [false, true] {
        if is_killed {
            broker.kill();
            broker.restart();
        }
        let ended = [const { AtomicBool::new(false) }; 2];
        let lasts = [const { AtomicU64::new(0) }; 2];
        let found = thread::scope(|scope| {
            let broker = &broker;
            let mut readers = Vec::new();
            for (at, more) in published.iter_mut().enumerate() {
                let topic = topics[at];
                let (ended, last) = (&ended[at], &lasts[at]);
                let first = more.len() as u64;
                let until = move || ended.load(Ordering::SeqCst).then(|| last.load(Ordering::SeqCst));
                let kinds = if is_killed { 3 } else { 4 };
                readers.extend((0..kinds).map(|how| (at, scope.spawn(move || read_all(broker, topic, how, &until)))));
                let mut chance = chance.fork();
                scope.spawn(move || {
                    more.extend(publish_bytes(broker, topic, first, bytes / 16, &mut chance));
                    last.store(more.len() as u64, Ordering::SeqCst);
                    ended.store(true, Ordering::SeqCst);
                    // The last one is sent when everybody knows that it is.
                    more.push(digest(b"last"));
                    assert_eq!(broker.publish(topic, b"last"), more.len() as u64 - 1);
                });
            }
            let found: Vec<_> = readers.into_iter().map(|(at, reader)| (at, reader.join().unwrap())).collect();
            found
        });
        found.into_iter().for_each(|(at, found)| assert!(found == published[at], "other bytes in {}", topics[at]));
        if !is_killed {
            topics.iter().for_each(|topic| broker.wait_for_group(topic, "readers", "lag", 0));
        }
    }
    topics.iter().for_each(|topic| assert_eq!(broker.stats(topic)["earliest_offset"], 0));
}

#[test]
fn retention_by_segments_gives_up_the_oldest_and_tells_a_gap() {
    let mut chance = Chance::for_test();
    let mut broker = setup(4).start();
    broker.create_topic("t");
    let mut published = publish_bytes(&broker, "t", 0, 4096, &mut chance);
    let token = broker.subscribe("t", "?from_offset=0", &[]).message().last_id;
    let member = broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
    assert_eq!(member["messages"][0]["offset"], 0);
    while broker.stats("t")["earliest_offset"] == 0 {
        assert!(published.len() < 100_000, "nothing is given up: {}", broker.stats("t"));
        published.extend(publish_bytes(&broker, "t", published.len() as u64, 4 << 20, &mut chance));
    }
    for is_killed in [false, true] {
        if is_killed {
            broker.kill();
            broker.restart();
        }
        expect_gaps(&broker, &published, &token);
    }
    // What was given up is off the disk, when neither of the last two checkpoints needs it.
    let first = || {
        let files = files_below(&broker.folder().join("data"));
        files.keys().any(|path| path.to_str().is_some_and(|path| path.ends_with("-0000000000000000.segment")))
    };
    let mut more = 0;
    while first() {
        assert!(more < 320, "{more} MiB later the first segment is still on the disk");
        more += 16;
        published.extend(publish_bytes(&broker, "t", published.len() as u64, 16 << 20, &mut chance));
    }
    expect_gaps(&broker, &published, &token);
}

/// Asks every way for what is no longer kept. The topic may give up more meanwhile: a checkpoint ends when it ends.
fn expect_gaps(broker: &Broker, published: &[Digest], token: &str) {
    let earliest = || broker.stats("t")["earliest_offset"].as_u64().unwrap();
    let first = earliest();
    let check = |requested: u64, gap: &Value, next: u64| {
        let resumed = gap["resumed"].as_u64().unwrap();
        assert!(gap["requested"] == requested && resumed == next, "{gap}, then {next}");
        assert!((first..=earliest()).contains(&resumed), "{gap}: kept from {first} to {}", earliest());
    };
    let kept: usize = published[first as usize..].iter().map(|digest| digest.0).sum();
    assert!(kept as u64 >= 2 * SEGMENT_BYTES, "only {kept} bytes are kept");
    let page = broker.get("/topics/t/messages?from_offset=0&limit=1").expect(200).data();
    check(0, &page["gap"], page["messages"][0]["offset"].as_u64().unwrap());
    let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", token)]);
    check(1, &stream.control("gap"), stream.message().offset);
    let mut socket = broker.websocket("t", "?from_offset=0", &[crate::websocket::EXTENDED]);
    check(0, &socket.other()["gap"], socket.message().offset);
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    let gap = stream.control("gap");
    let mut next = gap["resumed"].as_u64().unwrap();
    while next < published.len() as u64 {
        match stream.step(LIMIT) {
            Step::Event(event) if event.name == "gap" => {
                let resumed = event.json()["resumed"].as_u64().unwrap();
                assert!(resumed > next && resumed <= earliest(), "{event:?} at {next}");
                next = resumed;
            }
            Step::Event(event) => {
                let told = Told::of(&event.json());
                assert_eq!((told.offset, told.digest), (next, published[next as usize]));
                next += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    let group = broker.group("t", "g");
    assert!(group["committed_offset"].as_u64() >= Some(first), "it was lifted to what is kept: {group}");
}
