//! Promise: messages are kept for the time that the topic says and no longer, also over a restart; what is younger stays.

use crate::broker::{Broker, Setup};
use crate::deadline::wait_until;
use serde_json::json;
use std::time::{Duration, Instant};

const AGE_MS: u64 = 1_500;
const SHORT_MS: u64 = 4_000;
/// How much earlier than its age a message may seem to go: the broker and the test read different clocks.
const EARLY_MS: u64 = 100;

fn assert_not_early(what: &str, published: Instant, age_ms: u64) {
    let kept = published.elapsed();
    assert!(kept >= Duration::from_millis(age_ms - EARLY_MS), "{what}: gone too early, after {kept:?}");
}

fn create(broker: &Broker, storage: &str, name: &str, age_ms: u64) {
    broker.create_topic_with(json!({ "storage": storage, "retention": { "max_age_ms": age_ms } }), name);
}

fn earliest(broker: &Broker, topic: &str) -> u64 {
    broker.stats(topic)["earliest_offset"].as_u64().unwrap()
}

#[test]
fn messages_go_when_they_are_too_old_and_not_before() {
    let broker = Setup::new().logged().start();
    for storage in ["memory", "wal"] {
        let topic = format!("t-{storage}");
        create(&broker, storage, &topic, AGE_MS);
        // Before the publish: the broker stamps a message before it answers.
        let first = Instant::now();
        broker.publish(&topic, b"old");
        wait_until("half of the time has passed", || first.elapsed() > Duration::from_millis(AGE_MS / 2));
        let second = Instant::now();
        broker.publish(&topic, b"young");
        wait_until("the old one is gone", || earliest(&broker, &topic) > 0);
        assert_not_early(storage, first, AGE_MS);
        wait_until("nobody publishes, and the young one goes, too", || earliest(&broker, &topic) == 2);
        assert_not_early(storage, second, AGE_MS);
        assert_eq!(broker.publish(&topic, b"next"), 2, "offsets go on");
    }
}

#[test]
fn a_restart_makes_nothing_younger_and_nothing_older() {
    let mut broker = Setup::new().logged().start();
    create(&broker, "wal", "long", 3_600_000);
    create(&broker, "wal", "short", SHORT_MS);
    let published = Instant::now();
    for topic in ["long", "short"] {
        broker.publish_numbers(topic, 0..10);
    }
    for _ in 0..2 {
        broker.kill();
        broker.restart();
        assert_eq!(earliest(&broker, "long"), 0);
    }
    wait_until("what is too old is gone after restarts, too", || earliest(&broker, "short") == 10);
    assert_not_early("short", published, SHORT_MS);
    assert_eq!(earliest(&broker, "long"), 0);
}

#[test]
fn an_age_that_is_set_later_counts_from_then_on() {
    let broker = Setup::new().logged().start();
    create(&broker, "wal", "t", 3_600_000);
    broker.publish_numbers("t", 0..5);
    let patch = br#"{"retention":{"max_age_ms":1000}}"#;
    broker.request("PATCH", "/topics/t", &[("Content-Type", "application/json")], patch).expect(200);
    wait_until("the new bound holds for what was there", || earliest(&broker, "t") == 5);
    let patch = br#"{"retention":{"max_age_ms":null}}"#;
    broker.request("PATCH", "/topics/t", &[("Content-Type", "application/json")], patch).expect(200);
    broker.publish("t", b"for ever");
    assert_eq!(earliest(&broker, "t"), 5);
}
