//! Promise: WebSocket subscribers that join anywhere in a topic while publishers run, and that are cut and come back by
//! `from_offset`, see each message once and in order, whichever core owns the topic.

use crate::broker::{Broker, Setup, topic_path};
use crate::chance::{Chance, scaled};
use crate::deadline::{LIMIT, wait_until};
use crate::websocket::Heard;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

const TOPICS: usize = 4;
const PUBLISHERS_PER_TOPIC: u64 = 2;
const SUBSCRIBERS_PER_TOPIC: usize = 5;

/// What is known of one topic while the test runs.
struct Topic {
    name: String,
    messages_per_publisher: u64,
    /// Offsets below it were told to a publisher: a bound for where subscribers join.
    seen_end: AtomicU64,
    joined: AtomicUsize,
    publishers_done: AtomicU64,
}

/// Publishes with a few requests in flight; each payload says whose it is and which.
fn publish_all(broker: &Broker, topic: &Topic, publisher: u64, chance: &mut Chance) {
    let mut connection = broker.connect();
    let target = topic_path(&topic.name, "/publish");
    let mut sent = 0;
    while sent < topic.messages_per_publisher {
        let end = (sent + 1 + chance.below(24) as u64).min(topic.messages_per_publisher);
        for number in sent..end {
            let payload = format!("{publisher}/{number}/{}", "x".repeat(chance.below(200)));
            connection.send_request("POST", &target, &[], payload.as_bytes());
        }
        for _ in sent..end {
            let offset = connection.response_to("POST").expect(202).data()["offset"].as_u64().unwrap();
            topic.seen_end.fetch_max(offset + 1, Ordering::SeqCst);
        }
        sent = end;
    }
    topic.publishers_done.fetch_add(1, Ordering::SeqCst);
}

/// Joins somewhere, is cut and comes back at random until the last message has been seen.
fn follow(broker: &Broker, topic: &Topic, total: u64, chance: &mut Chance) {
    let joins_at_tail = chance.below(4) == 0;
    let start = chance.below(1 + topic.seen_end.load(Ordering::SeqCst) as usize) as u64;
    let mut next = (!joins_at_tail).then_some(start);
    let mut per_publisher = [None; PUBLISHERS_PER_TOPIC as usize];
    let mut has_joined = false;
    loop {
        let query = next.map_or(String::new(), |next| format!("?from_offset={next}"));
        let mut socket = broker.websocket(&topic.name, &query, &[]);
        if !std::mem::replace(&mut has_joined, true) {
            topic.joined.fetch_add(1, Ordering::SeqCst);
        }
        // One that joined at the tail is not cut before its first message: it could miss the last one.
        let messages_until_cut = if next.is_none() { 1 } else { chance.below(400) };
        for _ in 0..messages_until_cut {
            let message = match socket.step(LIMIT) {
                Heard::Message(message) => message,
                other => panic!("{}: {other:?}, next is {next:?}", topic.name),
            };
            assert_eq!(message.offset, *next.get_or_insert(message.offset), "{}: a gap or a double", topic.name);
            next = Some(message.offset + 1);
            if next == Some(total) {
                return;
            }
            check_order(&message.payload, &mut per_publisher);
        }
    }
}

/// Each publisher's messages must come without a hole, in its own order.
fn check_order(payload: &[u8], per_publisher: &mut [Option<u64>]) {
    let text = std::str::from_utf8(payload).unwrap();
    let mut words = text.split('/');
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (publisher, number) = (number() as usize, number());
    let expected = per_publisher[publisher].replace(number + 1).unwrap_or(number);
    assert_eq!(number, expected, "publisher {publisher}");
}

#[test]
fn each_subscriber_sees_each_message_once_and_in_order() {
    let mut chance = Chance::for_test();
    let broker = Setup::new().flag("--retention", 10_000_000).start();
    let topics: Vec<Topic> = (0..TOPICS)
        .map(|number| Topic {
            name: format!("topic-{number}-{}", chance.below(1000)),
            messages_per_publisher: scaled(600) as u64,
            seen_end: AtomicU64::new(0),
            joined: AtomicUsize::new(0),
            publishers_done: AtomicU64::new(0),
        })
        .collect();
    topics.iter().for_each(|topic| broker.create_topic(&topic.name));
    thread::scope(|scope| {
        let broker = &broker;
        for topic in &topics {
            // All of the publishers', and one that closes.
            let total = PUBLISHERS_PER_TOPIC * topic.messages_per_publisher + 1;
            for publisher in 0..PUBLISHERS_PER_TOPIC {
                let mut chance = chance.fork();
                scope.spawn(move || publish_all(broker, topic, publisher, &mut chance));
            }
            for number in 0..SUBSCRIBERS_PER_TOPIC {
                let mut chance = chance.fork();
                scope.spawn(move || {
                    // Some join at the very start, the others when a part has been published.
                    let part = total * number as u64 / (SUBSCRIBERS_PER_TOPIC as u64 + 1);
                    wait_until("publishers have come that far", || topic.seen_end.load(Ordering::SeqCst) >= part);
                    follow(broker, topic, total, &mut chance);
                });
            }
            scope.spawn(move || {
                // The last message is sent when nobody can miss it any more.
                let are_done = || topic.publishers_done.load(Ordering::SeqCst) == PUBLISHERS_PER_TOPIC;
                wait_until("publishers are done", are_done);
                wait_until("all have joined", || topic.joined.load(Ordering::SeqCst) == SUBSCRIBERS_PER_TOPIC);
                assert_eq!(broker.publish(&topic.name, b"last"), total - 1);
            });
        }
    });
}
