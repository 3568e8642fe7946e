//! Promise: a member that asks is told how many of its acknowledgements were new and counted, when that is durable.

use crate::broker::{Broker, Setup};
use crate::deadline::LIMIT;
use crate::websocket::{EXTENDED, Heard, WebSocket};
use serde_json::{Value, json};

/// How many of the acknowledged counted.
#[track_caller]
fn counted(socket: &mut WebSocket, word: Value) -> u64 {
    socket.say(json!({ "ack": word, "ref": 1 }));
    loop {
        match socket.step(LIMIT) {
            Heard::Other(told) if told["ref"] == 1 => {
                assert_eq!(told["acked"], word, "{told}");
                return told["count"].as_u64().unwrap();
            }
            Heard::Message(_) | Heard::Other(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn member(broker: &Broker, query: &str) -> WebSocket {
    broker.websocket("t", &format!("?group=g&from_offset=0{query}"), &[EXTENDED])
}

#[test]
fn what_was_not_given_and_what_comes_again_does_not_count() {
    let broker = Setup::new().logged().start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..6);
    let mut socket = member(&broker, "&max_in_flight=2");
    assert_eq!(counted(&mut socket, json!(900)), 0, "beyond the end");
    assert_eq!(counted(&mut socket, json!([0, 1, 5])), 2, "the last was not given out");
    assert_eq!(counted(&mut socket, json!([0, 1])), 0, "again");
    assert_eq!(counted(&mut socket, json!([])), 0);
    assert_eq!(broker.group("t", "g")["committed_offset"], 2);
}

#[test]
fn what_was_got_before_a_seek_does_not_count() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..3);
    let mut socket = member(&broker, "");
    loop {
        if let Heard::Message(message) = socket.step(LIMIT)
            && message.value["offset"] == 2
        {
            break;
        }
    }
    // None is to be given again meanwhile. The answer to what was never given shows that the group has heard it.
    socket.say(json!({ "credit": 0 }));
    assert_eq!(counted(&mut socket, json!(900)), 0);
    broker.group_post("t", "g", "seek", json!({ "offset": 0 }));
    assert_eq!(counted(&mut socket, json!([0, 1, 2])), 0);
    assert_eq!(broker.group("t", "g")["committed_offset"], 0);
}

#[test]
fn what_a_former_holder_says_counts_and_is_kept() {
    let mut broker = Setup::new().logged().start();
    broker.create_topic_with(json!({ "storage": "wal", "ack_wait_ms": 1000 }), "t");
    broker.publish_numbers("t", 0..1);
    let mut late = member(&broker, "&max_in_flight=1");
    assert!(matches!(late.step(LIMIT), Heard::Message(_)));
    late.say(json!({ "credit": 0 }));
    let mut other = member(&broker, "");
    assert!(matches!(other.step(LIMIT), Heard::Message(_)), "it goes to another when its time is over");
    assert_eq!(counted(&mut late, json!(0)), 1);
    broker.kill();
    broker.restart();
    assert_eq!(broker.group("t", "g")["committed_offset"], 1);
}
