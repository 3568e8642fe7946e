//! Promise: readers of several topics that are cut and resume at random, or add and end topics by word, see each message of
//! each topic once and in order while publishers run, whichever cores own the topics.

use crate::broker::{Broker, Setup, topic_path};
use crate::chance::{Chance, scaled};
use crate::deadline::LIMIT;
use crate::events::{Step, message_of};
use crate::several_topics::topic_and_offset;
use crate::websocket::{EXTENDED, Heard, WebSocket};
use serde_json::json;
use std::collections::HashMap;
use std::thread;

const TOPICS: usize = 6;
const STREAMS: usize = 6;
const SOCKETS: usize = 4;

fn publish_all(broker: &Broker, topic: &str, total: u64, chance: &mut Chance) {
    let mut connection = broker.connect();
    let target = topic_path(topic, "/publish");
    let mut sent = 0;
    while sent < total {
        let count = (1 + chance.below(24) as u64).min(total - sent);
        for number in sent..sent + count {
            // Some are larger than what is copied behind an id.
            let length = if chance.below(8) == 0 { 6000 } else { chance.below(200) };
            let payload = format!("{topic}/{number}/{}", "x".repeat(length));
            connection.send_request("POST", &target, &[], payload.as_bytes());
        }
        (0..count).for_each(|_| drop(connection.response_to("POST").expect(202)));
        sent += count;
    }
}

/// Where a reader goes on in each topic.
struct Reached(HashMap<String, u64>);

impl Reached {
    fn none(topics: &[&str]) -> Self {
        Self(topics.iter().map(|topic| ((*topic).to_owned(), 0)).collect())
    }

    fn take(&mut self, topic: &str, offset: u64, payload: &[u8]) {
        let next = self.0.get_mut(topic).unwrap_or_else(|| panic!("{topic} was not asked for"));
        assert_eq!(offset, *next, "{topic}: a gap or a double");
        *next += 1;
        assert!(payload.starts_with(format!("{topic}/{offset}/").as_bytes()), "{topic}: another message");
    }

    fn is_everywhere(&self, total: u64) -> bool {
        self.0.values().all(|next| *next == total)
    }
}

/// Follows over event streams, cut at random.
fn follow_stream(broker: &Broker, topics: &[&str], total: u64, chance: &mut Chance) {
    let (mut reached, mut last_id) = (Reached::none(topics), String::new());
    while !reached.is_everywhere(total) {
        let mut stream = broker.subscribe_to_all(topics, "&from_offset=0", &last_id);
        for _ in 0..chance.below(500) {
            let event = match stream.step(LIMIT) {
                Step::Event(event) => event,
                other => panic!("{other:?} at {:?}", reached.0),
            };
            let message = message_of(&event);
            let (topic, offset) = topic_and_offset(&message.value);
            reached.take(topic, offset, &message.payload);
            if reached.is_everywhere(total) {
                break;
            }
        }
        // One that was cut before it heard anything comes back with what it had.
        if !stream.last_id.is_empty() {
            last_id.clone_from(&stream.last_id);
        }
    }
}

/// Follows over one WebSocket, on which topics are ended and added again at random.
fn follow_socket(broker: &Broker, topics: &[&str], total: u64, chance: &mut Chance) {
    let mut socket = WebSocket::open(broker.address(), "/subscribe/ws", &[EXTENDED]);
    let mut reached = Reached::none(topics);
    for topic in topics {
        socket.say(json!({ "subscribe": { "topic": topic, "from_offset": 0 } }));
    }
    // A topic that was ended and whose end has not been answered.
    let mut ending: Option<&str> = None;
    let mut is_read: HashMap<&str, bool> = topics.iter().map(|topic| (*topic, false)).collect();
    while !reached.is_everywhere(total) {
        match socket.step(LIMIT) {
            Heard::Message(message) => {
                let (topic, offset) = topic_and_offset(&message.value);
                assert!(is_read[topic], "{topic}: a message outside its subscription");
                reached.take(topic, offset, &message.payload);
            }
            Heard::Other(told) => {
                let subscribed = told["subscribed"]["topic"].as_str();
                let topic = subscribed.or(told["unsubscribed"]["topic"].as_str()).unwrap_or_else(|| panic!("{told}"));
                *is_read.get_mut(topic).unwrap() = subscribed.is_some();
                if subscribed.is_none() {
                    ending = None;
                    socket.say(json!({ "subscribe": { "topic": topic, "from_offset": reached.0[topic] } }));
                }
            }
            other => panic!("{other:?} at {:?}", reached.0),
        }
        if ending.is_none() && chance.below(50) == 0 {
            let topic = *chance.pick(topics);
            if is_read[topic] {
                ending = Some(topic);
                socket.say(json!({ "unsubscribe": { "topic": topic } }));
            }
        }
    }
}

#[test]
fn each_reader_sees_each_message_of_each_topic_once_and_in_order() {
    let mut chance = Chance::for_test();
    let broker = Setup::new().flag("--retention", 10_000_000).start();
    let names: Vec<String> = (0..TOPICS).map(|number| format!("topic-{number}-{}", chance.below(1000))).collect();
    let topics: Vec<&str> = names.iter().map(String::as_str).collect();
    broker.create_topics(&topics);
    let total = scaled(500) as u64;
    thread::scope(|scope| {
        let (broker, topics) = (&broker, &topics);
        for topic in topics {
            let mut chance = chance.fork();
            scope.spawn(move || publish_all(broker, topic, total, &mut chance));
        }
        for number in 0..STREAMS + SOCKETS {
            let mut chance = chance.fork();
            let own = &topics[..2 + number % (TOPICS - 1)];
            scope.spawn(move || {
                let follow = if number < STREAMS { follow_stream } else { follow_socket };
                follow(broker, own, total, &mut chance);
            });
        }
    });
    topics.iter().for_each(|topic| broker.wait_for_subscribers(topic, 0));
}
