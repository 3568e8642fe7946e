//! Promise: a WebSocket reads all partitions of a topic, or one alone, by its route or by word, and publishes to the partition of
//! a message's key.

use crate::broker::Broker;
use crate::chance::{Chance, scaled};
use crate::deadline::LIMIT;
use crate::partitioned::{Seen, key_of_each, place_of};
use crate::several_topics::target;
use crate::websocket::{EXTENDED, Heard, WebSocket};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::thread;

fn subscribe(socket: &mut WebSocket, word: Value) -> Value {
    socket.say(json!({ "subscribe": word, "ref": 1 }));
    socket.other()
}

fn stands(topic: &str) -> Value {
    json!({ "subscribed": { "topic": topic }, "ref": 1 })
}

#[track_caller]
fn places(socket: &mut WebSocket, count: usize) -> Vec<(u64, u64)> {
    let mut places: Vec<_> = (0..count).map(|_| place_of(&socket.message().value)).collect();
    places.sort_unstable();
    places
}

/// Follows over the topic's route until so many messages have come.
fn follow_route(broker: &Broker, headers: &[(&str, &str)], total: u64) {
    let mut socket = broker.websocket("t", "?from_offset=0", headers);
    let mut seen = Seen::default();
    while seen.count < total {
        match socket.step(LIMIT) {
            Heard::Message(message) => seen.take(&message.value, &message.payload),
            // Nothing is told: a start at the end of an empty partition is no gap.
            other => panic!("{other:?} at {:?}", seen.next),
        }
    }
}

/// Follows one partition by word, ended and begun again at random, until its last message.
fn follow_one(broker: &Broker, partition: u64, last: &str, chance: &mut Chance) {
    let mut socket = WebSocket::open(broker.address(), "/subscribe/ws", &[EXTENDED]);
    let mut next = 0;
    loop {
        let word = json!({ "topic": "t", "partition": partition, "from_offset": next });
        assert_eq!(subscribe(&mut socket, word), stands("t"));
        for _ in 0..1 + chance.below(300) {
            let message = socket.message();
            assert_eq!(place_of(&message.value), (partition, next));
            next += 1;
            if message.payload == last.as_bytes() {
                return;
            }
        }
        socket.say(json!({ "unsubscribe": { "topic": "t" } }));
        loop {
            match socket.step(LIMIT) {
                Heard::Message(message) => {
                    assert_eq!(place_of(&message.value), (partition, next));
                    next += 1;
                    if message.payload == last.as_bytes() {
                        return;
                    }
                }
                Heard::Other(told) => break assert_eq!(told, json!({ "unsubscribed": { "topic": "t" } })),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn each_message_of_each_partition_comes_once_and_in_order() {
    let mut chance = Chance::for_test();
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    let keys = key_of_each(3);
    let each = scaled(1500) as u64;
    thread::scope(|scope| {
        let (broker, keys) = (&broker, &keys);
        let mut publisher = chance.fork();
        scope.spawn(move || {
            broker.publish_by_keys("t", "some", each, &mut publisher);
            keys.iter().for_each(|key| broker.publish_keyed("t", key, format!("{key}/0/last").as_bytes()));
        });
        for headers in [&[][..], &[EXTENDED]] {
            scope.spawn(move || follow_route(broker, headers, each + 3));
        }
        for (partition, key) in (0..).zip(keys) {
            let mut chance = chance.fork();
            scope.spawn(move || follow_one(broker, partition, &format!("{key}/0/last"), &mut chance));
        }
    });
}

#[test]
fn a_topic_is_answered_once_when_all_its_partitions_stand() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    broker.create_roomy("u", 2);
    broker.publish_to_each("t", 3);
    let keys = key_of_each(3);
    for _ in 0..20 {
        let mut socket = WebSocket::open(broker.address(), "/subscribe/ws", &[EXTENDED]);
        // Its messages are there, and come behind the answer.
        assert_eq!(subscribe(&mut socket, json!({ "topic": "t", "from_offset": 0 })), stands("t"));
        assert_eq!(places(&mut socket, 3), [(0, 0), (1, 0), (2, 0)]);
        // One that is ended before it stands is answered all the same.
        socket.say(json!({ "subscribe": { "topic": "u" }, "ref": 1 }));
        socket.say(json!({ "unsubscribe": { "topic": "u" } }));
        assert_eq!(socket.other(), stands("u"));
        assert_eq!(socket.other(), json!({ "unsubscribed": { "topic": "u" } }));
        socket.expect_nothing_before_pong();
    }
    let mut socket = WebSocket::open(broker.address(), "/subscribe/ws", &[EXTENDED]);
    assert_eq!(subscribe(&mut socket, json!({ "topic": "t" })), stands("t"));
    assert_eq!(subscribe(&mut socket, json!({ "topic": "t", "partition": 1 }))["error"]["code"], "already_subscribed");
    keys.iter().for_each(|key| broker.publish_keyed("t", key, b"x"));
    assert_eq!(places(&mut socket, 3), [(0, 1), (1, 1), (2, 1)]);
    socket.say(json!({ "unsubscribe": { "topic": "t" }, "ref": 2 }));
    assert_eq!(socket.other(), json!({ "unsubscribed": { "topic": "t" }, "ref": 2 }));
    keys.iter().for_each(|key| broker.publish_keyed("t", key, b"y"));
    socket.expect_nothing_before_pong();
    // By the token of a stream it goes on in all of them.
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    stream.messages(7);
    let word = json!({ "topic": "t", "token": stream.last_id, "from_offset": 0 });
    assert_eq!(subscribe(&mut socket, word), stands("t"));
    assert_eq!(places(&mut socket, 2).len(), 2);
    socket.expect_nothing_before_pong();
}

#[test]
fn words_that_cannot_be_meant_are_refused() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    broker.create_roomy("large", 62);
    let mut socket = WebSocket::open(broker.address(), "/subscribe/ws", &[EXTENDED]);
    let wrong = [
        (json!({ "topic": "t", "partition": 3 }), "invalid_request", "from 0 to 2"),
        (json!({ "topic": "t", "partition": "1" }), "invalid_request", "partition"),
        (json!({ "topic": "t", "token": "7" }), "invalid_resume_token", "partition"),
    ];
    for (word, code, sentence) in wrong {
        let told = subscribe(&mut socket, word);
        assert_eq!(told["error"]["code"], code, "{told}");
        assert!(told["error"]["message"].as_str().unwrap().contains(sentence), "{told}");
    }
    assert_eq!(subscribe(&mut socket, json!({ "topic": "t" })), stands("t"));
    let told = subscribe(&mut socket, json!({ "topic": "large" }));
    assert!(told["error"]["message"].as_str().unwrap().contains("64"), "{told}");
    assert_eq!(subscribe(&mut socket, json!({ "topic": "large", "partition": 61 })), stands("large"));
    socket.say(json!({ "unsubscribe": { "topic": "t" } }));
    socket.other();
    socket.say(json!({ "unsubscribe": { "topic": "large" } }));
    socket.other();
    assert_eq!(subscribe(&mut socket, json!({ "topic": "large" })), stands("large"));
    assert_eq!(subscribe(&mut socket, json!({ "topic": "t", "partition": 0, "token": "7" })), stands("t"));
    assert_eq!(socket.other()["gap"], json!({ "topic": "t", "partition": 0, "requested": 8, "resumed": 0 }));
}

#[test]
fn gaps_name_the_partition_and_the_end_comes_once() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    broker.create_roomy("u", 2);
    let mut own = broker.websocket("t", "?from_offset=4", &[EXTENDED]);
    let mut gaps: Vec<_> = (0..3).map(|_| own.other()["gap"].to_string()).collect();
    gaps.sort();
    let gap = |number: u64| json!({ "partition": number, "requested": 4, "resumed": 0 }).to_string();
    assert_eq!(gaps, [gap(0), gap(1), gap(2)]);
    let mut plain = broker.websocket("t", "?from_offset=4", &[]);
    let mut both = WebSocket::open(broker.address(), &target("ws", &["t", "u"], "&from_offset=4"), &[EXTENDED]);
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..5 {
        *told.entry(both.other()["gap"]["topic"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!((told["t"], told["u"]), (3, 2));
    broker.delete_topic("t");
    assert_eq!(own.close_code(), 4404);
    assert_eq!(plain.close_code(), 4404);
    assert_eq!(both.other(), json!({ "end": { "topic": "t", "reason": "topic_deleted" } }));
    broker.publish_to_each("u", 2);
    assert_eq!(places(&mut both, 2), [(0, 0), (1, 0)]);
    broker.delete_topic("u");
    assert_eq!(both.other(), json!({ "end": { "topic": "u", "reason": "topic_deleted" } }));
    both.expect_nothing_before_pong();
}

#[test]
fn what_is_published_by_word_goes_where_its_key_does() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    broker.create_topic("one");
    let keys = key_of_each(3);
    let mut socket = broker.websocket("t", "", &[EXTENDED]);
    let mut reader = broker.websocket("t", "", &[]);
    let mut publish = |word: Value| {
        socket.say(json!({ "publish": word, "ref": 7 }));
        loop {
            if let Heard::Other(told) = socket.step(LIMIT) {
                assert_eq!(told["ref"], 7, "{told}");
                break told["published"].clone();
            }
        }
    };
    for (partition, key) in keys.iter().enumerate() {
        for offset in 0..3 {
            let told = publish(json!({ "key": key, "payload": "eA==" }));
            assert_eq!((&told["partition"], &told["offset"]), (&json!(partition), &json!(offset)), "{told}");
            assert_eq!(place_of(&reader.message().value), (partition as u64, offset));
        }
    }
    // Without a key each partition has its turn; a repeat by its id finds the first.
    let turns: Vec<_> = (0..6).map(|_| publish(json!({ "payload": "eA==" }))["partition"].as_u64().unwrap()).collect();
    assert_eq!(turns[..3], turns[3..]);
    assert_eq!(turns[..3].iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{turns:?}");
    let first = publish(json!({ "payload": "eA==", "id": "an id" }));
    assert_eq!(publish(json!({ "payload": "eA==", "id": "an id" })), first);
    assert!(publish(json!({ "topic": "one", "payload": "eA==" })).get("partition").is_none());
}
