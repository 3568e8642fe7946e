//! Promise: what a member does not acknowledge in time, or gives back, goes out again, before new messages, and says which
//! attempt it is.

use crate::broker::Broker;
use crate::deadline::LIMIT;
use crate::websocket::{EXTENDED, Heard, LAST, TEXT, WebSocket, frame_bytes};
use serde_json::json;
use std::time::{Duration, Instant};

fn started(ack_wait_ms: u64) -> Broker {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "ack_wait_ms": ack_wait_ms }), "t");
    broker
}

fn offset_and_attempt(socket: &mut WebSocket) -> (u64, u64) {
    let message = socket.message();
    (message.offset, message.attempt)
}

#[test]
fn a_silent_member_gets_it_again_and_attempts_are_counted() {
    let broker = started(100);
    assert_eq!(broker.stats("t")["ack_wait_ms"], 100);
    let mut socket = broker.websocket("t", "?group=g&max_in_flight=1", &[]);
    let started = Instant::now();
    broker.publish_numbers("t", 0..2);
    for attempt in 1..=4 {
        assert_eq!(offset_and_attempt(&mut socket), (0, attempt));
    }
    assert!(started.elapsed() >= Duration::from_millis(290), "each attempt has its time");
    socket.acknowledge(&[0]);
    let (offset, _) = offset_and_attempt(&mut socket);
    assert_eq!(offset, 1, "what was acknowledged does not come again");
}

#[test]
fn of_a_silent_member_another_gets_it() {
    // Longer than the machine may hold up the one that acknowledges.
    let broker = started(3_000);
    let mut silent = broker.websocket("t", "?group=g", &[]);
    let mut other = broker.websocket("t", "?group=g&max_in_flight=65536", &[]);
    broker.publish_numbers("t", 0..10);
    let mine = silent.offsets(5);
    let own = other.offsets(5);
    other.acknowledge(&own);
    let again: Vec<_> = (0..5).map(|_| other.message()).collect();
    assert_eq!(again.iter().map(|message| message.offset).collect::<Vec<_>>(), mine);
    assert!(again.iter().all(|message| message.attempt == 2), "{again:?}");
    other.acknowledge(&mine);
    broker.wait_for_group("t", "g", "committed_offset", 10);
}

#[test]
fn a_nack_gives_it_back_at_once_or_after_a_delay() {
    let broker = started(60_000);
    let mut socket = broker.websocket("t", "?group=g", &[]);
    broker.publish_numbers("t", 0..3);
    assert_eq!(socket.offsets(3), [0, 1, 2]);
    socket.say(json!({ "nack": 1 }));
    assert_eq!(offset_and_attempt(&mut socket), (1, 2));
    let started = Instant::now();
    // Both in one piece: the answer to the second comes when the first is heard.
    let words = [json!({ "nack": [0, 1], "delay_ms": 300 }), json!({ "ack": 2, "ref": "heard" })];
    let bytes: Vec<u8> = words.iter().flat_map(|word| frame_bytes(LAST | TEXT, word.to_string().as_bytes())).collect();
    socket.connection.send(&bytes);
    assert_eq!(socket.other()["ref"], "heard");
    assert_eq!(offset_and_attempt(&mut socket), (0, 2));
    assert!(started.elapsed() >= Duration::from_millis(290), "{:?}", started.elapsed());
    assert_eq!(offset_and_attempt(&mut socket), (1, 3));
    // Of what is delayed an acknowledgement still counts: it was dealt with after all.
    socket.say(json!({ "nack": 0, "delay_ms": 86_400_000 }));
    socket.expect_nothing_before_pong();
    assert_eq!(broker.group("t", "g")["committed_offset"], 0);
    let answer = broker.group_post("t", "g", "ack", json!({ "offsets": [0, 1] }));
    assert_eq!(answer["acknowledged"], 2);
    broker.wait_for_group("t", "g", "committed_offset", 3);
}

#[test]
fn one_that_is_delayed_holds_no_other_back() {
    let broker = started(60_000);
    let mut socket = broker.websocket("t", "?group=g&max_in_flight=2", &[]);
    broker.publish_numbers("t", 0..4);
    assert_eq!(socket.offsets(2), [0, 1]);
    // What is delayed is held by nobody: its place goes to the next, and to the next after that.
    socket.say(json!({ "nack": 0, "delay_ms": 86_400_000 }));
    assert_eq!(socket.offsets(1), [2]);
    socket.say(json!({ "nack": 2, "delay_ms": 86_400_000 }));
    assert_eq!(socket.offsets(1), [3]);
    socket.acknowledge(&[1, 3]);
    let others = broker.group_post("t", "g", "fetch", json!({ "max": 10 }));
    assert_eq!(others["messages"], json!([]), "what is delayed is nobody's");
    broker.publish_numbers("t", 4..6);
    assert_eq!(socket.offsets(2), [4, 5]);
    socket.acknowledge(&[4, 5]);
    let stats = broker.group("t", "g");
    assert!(stats["committed_offset"] == 0 && stats["pending"] == 2, "{stats}");
}

#[test]
fn a_bad_delay_is_refused_and_changes_nothing() {
    let broker = started(60_000);
    let mut socket = broker.websocket("t", "?group=g", &[EXTENDED]);
    broker.publish("t", b"x");
    socket.message();
    for delay in [json!(-1), json!(86_400_001), json!("soon"), json!(1.5)] {
        socket.say(json!({ "nack": 0, "delay_ms": delay }));
        assert_eq!(socket.other()["error"]["status"], 400, "{delay}");
    }
    assert_eq!(broker.group("t", "g")["pending"], 1);
    socket.acknowledge(&[0]);
    broker.wait_for_group("t", "g", "committed_offset", 1);
}

#[test]
fn a_nack_goes_to_another_member_first() {
    let broker = started(60_000);
    let mut one = broker.websocket("t", "?group=g", &[]);
    broker.publish("t", b"x");
    one.message();
    let mut two = broker.websocket("t", "?group=g", &[]);
    one.say(json!({ "nack": 0 }));
    assert_eq!(offset_and_attempt(&mut two), (0, 2));
    two.say(json!({ "nack": 0 }));
    assert_eq!(offset_and_attempt(&mut one), (0, 3));
}

#[test]
fn redeliveries_come_before_new_messages() {
    let broker = started(60_000);
    let mut dying = broker.websocket("t", "?group=g&max_in_flight=3", &[]);
    broker.publish_numbers("t", 0..8);
    assert_eq!(dying.offsets(3), [0, 1, 2]);
    drop(dying);
    broker.wait_for_group("t", "g", "members", 0);
    let mut next = broker.websocket("t", "?group=g", &[]);
    assert_eq!(next.offsets(8), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn credit_bounds_what_a_member_holds() {
    let broker = started(60_000);
    let mut socket = broker.websocket("t", "?group=g&max_in_flight=2", &[]);
    broker.publish_numbers("t", 0..10);
    assert_eq!(socket.offsets(2), [0, 1]);
    socket.expect_nothing_before_pong();
    assert_eq!(broker.group("t", "g")["pending"], 2);
    socket.say(json!({ "ack": 1 }));
    assert_eq!(socket.offsets(1), [2]);
    socket.say(json!({ "credit": 5 }));
    assert_eq!(socket.offsets(3), [3, 4, 5]);
    socket.expect_nothing_before_pong();
    // Less than it holds: nothing comes until it holds less.
    socket.say(json!({ "credit": 1 }));
    socket.expect_nothing_before_pong();
    socket.acknowledge(&[0, 2, 3, 4]);
    socket.expect_nothing_before_pong();
    socket.acknowledge(&[5]);
    assert_eq!(socket.offsets(1), [6]);
}

#[test]
fn each_word_with_a_reference_is_answered() {
    let broker = started(60_000);
    let mut socket = broker.websocket("t", "?group=g&from_offset=0", &[]);
    broker.publish_numbers("t", 0..2);
    assert_eq!(socket.offsets(2), [0, 1]);
    for (word, answer) in [
        (json!({ "nack": [0, 1], "delay_ms": 60_000, "ref": 1 }), json!({ "nacked": [0, 1], "ref": 1 })),
        (json!({ "credit": 7, "ref": "c" }), json!({ "credited": 7, "ref": "c" })),
        (json!({ "ack": 0, "ref": [] }), json!({ "acked": 0, "count": 1, "ref": [] })),
        (json!({ "ping": 3, "ref": false }), json!({ "pong": 3, "ref": false })),
    ] {
        socket.say(word);
        assert_eq!(socket.step(LIMIT), Heard::Other(answer));
    }
    // Without one there is nothing to hear.
    socket.say(json!({ "credit": 7 }));
    socket.expect_nothing_before_pong();
}

#[test]
fn what_is_said_takes_effect_in_order() {
    let broker = started(60_000);
    for number in 0..20 {
        let group = format!("group-{number}");
        let mut socket = broker.websocket("t", &format!("?group={group}&from_offset=0&max_in_flight=2"), &[]);
        if number == 0 {
            broker.publish_numbers("t", 0..4);
        }
        assert_eq!(socket.offsets(2), [0, 1]);
        // In one piece, so that the broker hears all of it at once.
        let words = [json!({ "credit": 1 }), json!({ "ack": 0 }), json!({ "ack": 1, "ref": "last" })];
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| frame_bytes(LAST | TEXT, word.to_string().as_bytes())).collect();
        socket.connection.send(&bytes);
        let heard = [socket.step(LIMIT), socket.step(LIMIT)];
        assert!(heard.contains(&Heard::Other(json!({ "acked": 1, "count": 1, "ref": "last" }))), "{heard:?}");
        assert!(heard.iter().any(|heard| matches!(heard, Heard::Message(message) if message.offset == 2)), "{heard:?}");
        let stats = broker.group("t", &group);
        assert!(stats["committed_offset"] == 2 && stats["pending"] == 1, "{stats}");
        socket.expect_nothing_before_pong();
    }
}

#[test]
fn a_member_that_never_acknowledges_stalls_at_its_default() {
    let broker = started(60_000);
    let mut socket = broker.websocket("t", "?group=g", &[]);
    broker.create_topic_with(json!({ "retention": { "max_messages": 5000 } }), "u");
    let mut other = broker.websocket("u", "?group=g", &[]);
    broker.publish_numbers("u", 0..1100);
    assert_eq!(other.offsets(1000), (0..1000).collect::<Vec<_>>());
    other.expect_nothing_before_pong();
    broker.publish("t", b"x");
    assert_eq!(socket.offsets(1), [0], "it stalls itself alone");
    other.say(json!({ "ack": (0..1000).collect::<Vec<_>>() }));
    assert_eq!(other.offsets(100), (1000..1100).collect::<Vec<_>>());
}

#[test]
fn acknowledging_twice_or_what_one_never_got_changes_nothing() {
    let broker = started(60_000);
    let mut one = broker.websocket("t", "?group=g&max_in_flight=1", &[]);
    let mut two = broker.websocket("t", "?group=g&max_in_flight=1", &[]);
    broker.publish_numbers("t", 0..2);
    let (mine, others) = (one.message().offset, two.message().offset);
    one.acknowledge(&[mine]);
    one.acknowledge(&[mine, 99]);
    one.acknowledge(&[others]);
    assert_eq!(broker.group("t", "g")["pending"], 1, "only who got it says that it is done");
    two.acknowledge(&[others]);
    broker.wait_for_group("t", "g", "committed_offset", 2);
    [one, two].iter_mut().for_each(WebSocket::expect_nothing_before_pong);
}

#[test]
fn a_member_that_is_cut_at_once_loses_nothing() {
    let broker = started(60_000);
    for number in 0..30 {
        let doomed = broker.websocket("t", "?group=g&from_offset=0", &[]);
        broker.publish("t", number.to_string().as_bytes());
        drop(doomed);
    }
    let mut socket = broker.websocket("t", "?group=g", &[]);
    let mut got = socket.offsets(30);
    got.sort_unstable();
    assert_eq!(got, (0..30).collect::<Vec<_>>());
}
