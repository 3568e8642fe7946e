//! Promise: subscribers that join anywhere in a topic while publishers run, and that are cut and resume at random, see
//! each message once and in order, whichever core owns the topic.

use crate::broker::{Broker, Setup, topic_path};
use crate::chance::{Chance, scaled};
use crate::deadline::{LIMIT, wait_until};
use crate::events::{Step, message_of};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

const TOPICS: usize = 4;
const PUBLISHERS_PER_TOPIC: usize = 2;
const SUBSCRIBERS_PER_TOPIC: usize = 6;

/// What is known of one topic while the test runs.
struct Topic {
    name: String,
    /// Messages that each publisher sends.
    messages_per_publisher: usize,
    /// Offsets below it are acknowledged, at least in part: a bound for where subscribers join.
    seen_end: AtomicU64,
    /// Payloads by the offset that their publisher was told.
    told: Mutex<HashMap<u64, String>>,
    /// Subscribers whose first stream is open.
    joined: AtomicUsize,
    publishers_done: AtomicUsize,
}

impl Topic {
    /// The number of messages in the end: all of the publishers', and one that closes.
    fn total(&self) -> u64 {
        (PUBLISHERS_PER_TOPIC * self.messages_per_publisher + 1) as u64
    }

    /// Publishes with a few requests in flight and notes what each was told.
    fn publish_all(&self, broker: &Broker, publisher: usize, chance: &mut Chance) {
        let mut connection = broker.connect();
        let target = topic_path(&self.name, "/publish");
        let mut sent = 0;
        while sent < self.messages_per_publisher {
            let count = (1 + chance.below(24)).min(self.messages_per_publisher - sent);
            let payloads: Vec<String> = (sent..sent + count)
                .map(|number| format!("{}/{publisher}/{number}/{}", self.name, "x".repeat(chance.below(200))))
                .collect();
            payloads.iter().for_each(|payload| connection.send_request("POST", &target, &[], payload.as_bytes()));
            for payload in payloads {
                let answer = connection.response_to("POST");
                assert_eq!(answer.status, 202, "{}", answer.text());
                self.note(answer.data()["offset"].as_u64().unwrap(), payload);
            }
            sent += count;
        }
        self.publishers_done.fetch_add(1, Ordering::SeqCst);
    }

    fn note(&self, offset: u64, payload: String) {
        let other = self.told.lock().unwrap().insert(offset, payload);
        assert!(other.is_none(), "two publishers were told the offset {offset} of {}", self.name);
        self.seen_end.fetch_max(offset + 1, Ordering::SeqCst);
    }

    /// Joins somewhere, is cut and resumes at random until the last message has been seen. Gives the first offset and
    /// the payloads from there on.
    fn follow(&self, broker: &Broker, chance: &mut Chance) -> (u64, Vec<Vec<u8>>) {
        let joins_at_tail = chance.below(4) == 0;
        let start = chance.below(1 + self.seen_end.load(Ordering::SeqCst) as usize);
        let query = if joins_at_tail { String::new() } else { format!("?from_offset={start}") };
        let mut first = (!joins_at_tail).then_some(start as u64);
        let mut payloads = Vec::new();
        let mut last_id = String::new();
        let mut has_joined = false;
        loop {
            let resume: Vec<(&str, &str)> =
                if last_id.is_empty() { Vec::new() } else { vec![("Last-Event-ID", last_id.as_str())] };
            let mut stream = broker.subscribe(&self.name, &query, &resume);
            if !std::mem::replace(&mut has_joined, true) {
                self.joined.fetch_add(1, Ordering::SeqCst);
            }
            // A stream that joined at the tail is not cut before its first message: it could miss the last one.
            let is_cut_early = chance.below(3) == 0 && !(joins_at_tail && payloads.is_empty());
            let events_until_cut = if is_cut_early { chance.below(3) } else { 1 + chance.below(400) };
            for _ in 0..events_until_cut {
                let event = match stream.step(LIMIT) {
                    Step::Event(event) => event,
                    other => panic!("{}: {other:?} after {} messages", self.name, payloads.len()),
                };
                let message = message_of(&event);
                let expected = *first.get_or_insert(message.offset) + payloads.len() as u64;
                assert_eq!(message.offset, expected, "{}: a gap or a double (resumed by {last_id:?})", self.name);
                payloads.push(message.payload);
                message.last_id.clone_into(&mut last_id);
                if message.offset + 1 == self.total() {
                    return (first.unwrap(), payloads);
                }
            }
        }
    }

    /// Compares what a subscriber saw with what the publishers were told.
    fn check(&self, first: u64, payloads: &[Vec<u8>]) {
        assert_eq!(first + payloads.len() as u64, self.total());
        let told = self.told.lock().unwrap();
        for (offset, payload) in (first..).zip(payloads) {
            assert_eq!(told[&offset].as_bytes(), payload, "another message at offset {offset} of {}", self.name);
        }
    }
}

#[test]
fn each_subscriber_sees_each_message_once_and_in_order() {
    let mut chance = Chance::for_test();
    let broker = Setup::new().flag("--retention", 10_000_000).start();
    let topics: Vec<Topic> = (0..TOPICS)
        .map(|number| Topic {
            name: format!("topic-{number}-{}", chance.below(1000)),
            messages_per_publisher: scaled(4000),
            seen_end: AtomicU64::new(0),
            told: Mutex::new(HashMap::new()),
            joined: AtomicUsize::new(0),
            publishers_done: AtomicUsize::new(0),
        })
        .collect();
    topics.iter().for_each(|topic| broker.create_topic(&topic.name));
    thread::scope(|scope| {
        for topic in &topics {
            for publisher in 0..PUBLISHERS_PER_TOPIC {
                let (broker, mut chance) = (&broker, chance.fork());
                scope.spawn(move || topic.publish_all(broker, publisher, &mut chance));
            }
            for number in 0..SUBSCRIBERS_PER_TOPIC {
                let (broker, mut chance) = (&broker, chance.fork());
                scope.spawn(move || {
                    // Some join at the very start, the others when a part has been published.
                    let part = topic.total() * number as u64 / (SUBSCRIBERS_PER_TOPIC as u64 + 1);
                    wait_until("publishers have come that far", || topic.seen_end.load(Ordering::SeqCst) >= part);
                    let (first, payloads) = topic.follow(broker, &mut chance);
                    wait_until("the last message was noted", || {
                        topic.told.lock().unwrap().len() as u64 == topic.total()
                    });
                    topic.check(first, &payloads);
                });
            }
            let broker = &broker;
            scope.spawn(move || {
                // The last message is sent when nobody can miss it any more.
                let is_done = || topic.publishers_done.load(Ordering::SeqCst) == PUBLISHERS_PER_TOPIC;
                wait_until("publishers are done", is_done);
                wait_until("all have joined", || topic.joined.load(Ordering::SeqCst) == SUBSCRIBERS_PER_TOPIC);
                topic.note(broker.publish(&topic.name, b"last"), "last".to_owned());
            });
        }
    });
    for topic in &topics {
        assert_eq!(broker.stats(&topic.name)["message_count"], topic.total());
    }
}
