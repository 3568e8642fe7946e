//! Promise: a worker that comes back over a new connection and is told that its acknowledgement was taken gets the message no
//! more; a frame that says two things is refused, not half heard.

use crate::broker::Broker;
use crate::deadline::LIMIT;
use crate::websocket::{EXTENDED, Heard, WebSocket};
use serde_json::{Value, json};

fn started(ack_wait_ms: u64) -> Broker {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "ack_wait_ms": ack_wait_ms }), "t");
    broker
}

#[test]
fn what_one_got_before_the_cut_may_be_acknowledged_after_it() {
    let broker = started(600_000);
    for round in 0..5 {
        let first = round * 3;
        let mut before = broker.websocket("t", "?group=g&from_offset=0", &[EXTENDED]);
        broker.publish_numbers("t", first..first + 3);
        assert_eq!(before.offsets(3), [first, first + 1, first + 2]);
        drop(before);
        broker.wait_for_group("t", "g", "members", 0);
        // It holds nothing here, since it may hold nothing.
        let mut after = broker.websocket("t", "?group=g&max_in_flight=1", &[EXTENDED]);
        assert_eq!(after.message().offset, first);
        after.acknowledge(&[first, first + 1, first + 2]);
        let stats = broker.group("t", "g");
        assert!(stats["committed_offset"] == first + 3 && stats["pending"] == 0, "told, and not done: {stats}");
        after.expect_nothing_before_pong();
        drop(after);
        broker.wait_for_group("t", "g", "members", 0);
    }
}

#[test]
fn a_frame_with_two_words_is_refused_and_does_nothing() {
    let broker = started(600_000);
    broker.publish("t", b"x");
    let mut socket = broker.websocket("t", "?group=g&from_offset=0", &[EXTENDED]);
    assert_eq!(socket.message().offset, 0);
    let words: [(&str, Value); 5] = [
        ("ack", json!(0)),
        ("nack", json!(0)),
        ("publish", json!({ "payload": "aGk=" })),
        ("credit", json!(0)),
        ("ping", json!(1)),
    ];
    for (one, value) in &words {
        for (other, second) in words.iter().filter(|(other, _)| other != one) {
            expect_refusal(&mut socket, json!({ *one: value, *other: second, "ref": 5 }));
        }
    }
    let stats = broker.group("t", "g");
    assert!(stats["pending"] == 1 && stats["committed_offset"] == 0, "{stats}");
    assert_eq!(broker.stats("t")["message_count"], 1);
    socket.acknowledge(&[0]);
    broker.wait_for_group("t", "g", "committed_offset", 1);
}

#[track_caller]
fn expect_refusal(socket: &mut WebSocket, frame: Value) {
    socket.say(frame.clone());
    match socket.step(LIMIT) {
        Heard::Other(answer) => assert!(answer["error"]["status"] == 400 && answer["ref"] == 5, "{frame}: {answer}"),
        other => panic!("{frame}: {other:?}"),
    }
}
