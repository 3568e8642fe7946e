//! Promise: one WebSocket reads several topics, named when it opens or by words of its client, and publishes to any.

use crate::broker::Broker;
use crate::deadline::{LIMIT, wait_until};
use crate::metrics::Exposition;
use crate::several_topics::{target, topic_and_offset};
use crate::websocket::{EXTENDED, Heard, WebSocket};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn subscribe(socket: &mut WebSocket, word: Value) -> Value {
    socket.say(json!({ "subscribe": word, "ref": 1 }));
    socket.other()
}

fn stands(topic: &str) -> Value {
    json!({ "subscribed": { "topic": topic }, "ref": 1 })
}

#[test]
fn topics_of_the_query_are_read() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b"]);
    broker.publish_numbers("a", 0..3);
    let mut plain = WebSocket::open(broker.address(), &target("ws", &["a", "b"], "&from_offset=1"), &[]);
    let mut own = broker.socket_of_all(&["a", "b"], "&from_offset=1");
    assert_eq!(plain.offsets(2), [1, 2]);
    // b has no message yet: a start beyond its end is told to clients of ours, before or after what a has.
    let (mut offsets, mut told) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        match own.step(LIMIT) {
            Heard::Message(message) => offsets.push(message.offset),
            Heard::Other(value) => told.push(value),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(offsets, [1, 2]);
    assert_eq!(told, [json!({ "gap": { "topic": "b", "requested": 1, "resumed": 0 } })]);
    broker.publish("b", b"x");
    for socket in [&mut plain, &mut own] {
        assert_eq!(topic_and_offset(&socket.message().value), ("b", 0));
    }
    broker.delete_topic("a");
    assert_eq!(own.other(), json!({ "end": { "topic": "a", "reason": "topic_deleted" } }));
    broker.publish("b", b"y");
    for socket in [&mut plain, &mut own] {
        assert_eq!(topic_and_offset(&socket.message().value), ("b", 1));
    }
    broker.delete_topic("b");
    // Who cannot ask for others has nothing left to wait for.
    assert_eq!(plain.close_code(), 4404);
    assert_eq!(own.other()["end"]["topic"], "b");
    broker.create_topic("c");
    assert_eq!(subscribe(&mut own, json!({ "topic": "c" })), stands("c"));
}

#[test]
fn topics_are_added_and_ended_by_word() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b"]);
    broker.publish_numbers("a", 0..5);
    let mut socket = WebSocket::open(broker.address(), "/subscribe/ws", &[EXTENDED]);
    assert_eq!(subscribe(&mut socket, json!({ "topic": "a", "from_offset": 3 })), stands("a"));
    assert_eq!(socket.offsets(2), [3, 4]);
    assert_eq!(subscribe(&mut socket, json!({ "topic": "b" })), stands("b"));
    broker.publish("b", b"x");
    assert_eq!(topic_and_offset(&socket.message().value), ("b", 0));
    broker.wait_for_subscribers("b", 1);
    socket.say(json!({ "unsubscribe": { "topic": "a" }, "ref": [2] }));
    assert_eq!(socket.other(), json!({ "unsubscribed": { "topic": "a" }, "ref": [2] }));
    broker.wait_for_subscribers("a", 0);
    broker.publish("a", b"5");
    socket.expect_nothing_before_pong();
    // A token of a stream is as good as an offset, and wins over it.
    let token = broker.subscribe("a", "?from_offset=3", &[]).message().last_id;
    let word = json!({ "topic": "a", "from_offset": 0, "token": token });
    assert_eq!(subscribe(&mut socket, word), stands("a"));
    assert_eq!(socket.offsets(2), [4, 5]);
    let word = json!({ "unsubscribe": { "topic": "b" } });
    socket.say(word);
    assert_eq!(socket.other(), json!({ "unsubscribed": { "topic": "b" } }));
    for (topic, count) in [("a", 4.0), ("b", 1.0)] {
        let labels = [("topic", topic), ("protocol", "ws")];
        let delivered = || Exposition::read(&broker).value("streamq_messages_delivered_total", &labels);
        wait_until("what came is counted by topic", || delivered() == Some(count));
    }
}

#[test]
fn words_that_cannot_be_meant_are_refused_and_change_nothing() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b"]);
    let mut socket = broker.socket_of_all(&["a"], "");
    let wrong = [
        (json!({ "topic": "a" }), 409, "already_subscribed"),
        (json!({ "topic": "missing" }), 404, "topic_not_found"),
        (json!({ "topic": "" }), 400, "invalid_name"),
        (json!({}), 400, "invalid_request"),
        (json!("b"), 400, "invalid_request"),
        (json!({ "topic": "b", "from_offset": "1" }), 400, "invalid_request"),
        (json!({ "topic": "b", "token": 7 }), 400, "invalid_request"),
        (json!({ "topic": "b", "token": "zz" }), 400, "invalid_resume_token"),
    ];
    for (word, status, code) in wrong {
        let told = subscribe(&mut socket, word.clone());
        assert_eq!((&told["error"]["status"], &told["error"]["code"]), (&json!(status), &json!(code)), "{word}");
        assert_eq!(told["ref"], 1);
    }
    socket.say(json!({ "unsubscribe": { "topic": "b" }, "ref": 2 }));
    assert_eq!(socket.other()["error"]["code"], "not_subscribed");
    socket.say(json!({ "publish": { "payload": "eA==" }, "ref": 3 }));
    assert_eq!(socket.other()["error"]["code"], "invalid_request", "the topic must be named");
    broker.publish("a", b"x");
    assert_eq!(socket.offsets(1), [0]);
    broker.wait_for_subscribers("b", 0);
    // Other clients and members have no such words.
    let mut plain = broker.websocket("a", "", &[]);
    assert_eq!(subscribe(&mut plain, json!({ "topic": "b" }))["error"]["code"], "invalid_request");
    let mut member = broker.websocket("a", "?group=g", &[EXTENDED]);
    assert_eq!(subscribe(&mut member, json!({ "topic": "b" }))["error"]["code"], "invalid_request");
    assert_eq!(broker.stats("b")["subscriber_count"], 0);
}

#[test]
fn a_connection_reads_so_many_topics_and_no_more() {
    let broker = Broker::start();
    let names: Vec<String> = (0..33).map(|number| format!("topic-{number}")).collect();
    names.iter().for_each(|name| broker.create_topic(name));
    let mut socket = WebSocket::open(broker.address(), "/subscribe/ws", &[EXTENDED]);
    names[..32].iter().for_each(|name| assert_eq!(subscribe(&mut socket, json!({ "topic": name })), stands(name)));
    let told = subscribe(&mut socket, json!({ "topic": names[32] }));
    assert_eq!(told["error"]["status"], 400, "{told}");
    socket.say(json!({ "unsubscribe": { "topic": names[7] } }));
    socket.other();
    assert_eq!(subscribe(&mut socket, json!({ "topic": names[32] })), stands(&names[32]));
    for name in &names {
        broker.publish(name, b"x");
        if *name != names[7] {
            assert_eq!(topic_and_offset(&socket.message().value), (name.as_str(), 0));
        }
    }
    drop(socket);
    names.iter().for_each(|name| broker.wait_for_subscribers(name, 0));
}

#[test]
fn a_socket_publishes_to_the_topic_that_it_names() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b"]);
    let payload = STANDARD.encode(b"hello");
    let mut socket = broker.socket_of_all(&["a"], "");
    socket.say(json!({ "publish": { "topic": "b", "payload": payload }, "ref": 3 }));
    let told = socket.other();
    assert_eq!(
        (&told["published"]["topic"], &told["published"]["offset"], &told["ref"]),
        (&json!("b"), &json!(0), &json!(3))
    );
    socket.say(json!({ "publish": { "topic": "missing", "payload": payload }, "ref": 4 }));
    assert_eq!(socket.other()["error"]["code"], "topic_not_found");
    let mut one = broker.websocket("a", "", &[EXTENDED]);
    for (topic, word) in [("a", json!({ "payload": payload })), ("b", json!({ "payload": payload, "topic": "b" }))] {
        one.say(json!({ "publish": word, "ref": 5 }));
        let told = loop {
            // Its own message may come first.
            match one.step(LIMIT) {
                Heard::Other(told) => break told,
                Heard::Message(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(told["published"]["topic"], topic);
    }
    assert_eq!(broker.stats("b")["message_count"], 2);
    // A route's own gaps have the shape that they had; those of topics that were added name them.
    let mut one = broker.websocket("a", "?from_offset=9", &[EXTENDED]);
    assert_eq!(one.other(), json!({ "gap": { "requested": 9, "resumed": 1 } }));
    assert_eq!(subscribe(&mut one, json!({ "topic": "b", "from_offset": 9 })), stands("b"));
    assert_eq!(one.other(), json!({ "gap": { "topic": "b", "requested": 9, "resumed": 2 } }));
    broker.delete_topic("a");
    assert_eq!(one.other()["end"]["topic"], "a");
    broker.delete_topic("b");
    assert_eq!(one.close_code(), 4404);
}
