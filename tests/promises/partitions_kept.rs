//! Promise: a logged topic of several partitions stands after a kill as it stood: its messages, its settings, and its groups.

use crate::broker::{Broker, Setup};
use crate::deadline::wait_until;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const AGE_MS_MAX: u64 = 1_500;
/// How much earlier than its age a message may seem to go: the broker and the test read different clocks.
const EARLY_MS: u64 = 100;

#[test]
fn stats_messages_and_groups_are_the_same_after_a_kill() {
    for shards in [1, 2, 4] {
        let mut broker = Setup::new().logged().flag("--shards", shards).start();
        for (topic, count) in [("one", 1), ("three", 3), ("many", 64)] {
            broker.create_partitions(topic, count, json!({ "retention": { "max_messages": 100 } }));
            for partition in [0, count / 2, count - 1] {
                broker.publish_in(topic, (partition, count), 4);
            }
            let fetched = broker.group_post(topic, "g", "fetch", json!({ "max": 2, "from_offset": 0 }));
            let ids: Vec<_> = fetched["messages"].as_array().unwrap().iter().map(|message| &message["id"]).collect();
            assert_eq!(broker.group_post(topic, "g", "ack", json!({ "ids": ids }))["acknowledged"], 2);
            let json = [("Content-Type", "application/json")];
            let change = br#"{"ack_wait_ms":4321}"#;
            broker.request("PATCH", &format!("/topics/{topic}"), &json, change).expect(200);
        }
        broker.create_partitions("gone", 5, json!({}));
        broker.publish_in("gone", (3, 5), 2);
        broker.delete_topic("gone");
        let before = broker.get("/topics").expect(200).data();
        let pages = |broker: &Broker| [0, 1, 2].map(|partition| broker.page_of("three", partition, ""));
        let (pages_before, group) = (pages(&broker), broker.group("three", "g"));
        broker.kill();
        broker.restart();
        let after = broker.get("/topics").expect(200).data();
        assert_eq!(after, before, "{shards} shards");
        assert_eq!(pages(&broker), pages_before);
        let again = broker.group("three", "g");
        for member in ["committed_offset", "lag", "partitions"] {
            let bare = |group: &Value| {
                let mut told = group[member].clone();
                for part in told.as_array_mut().into_iter().flatten() {
                    // What was given out and not acknowledged is given out again.
                    part["next_offset"] = Value::Null;
                    part["pending"] = Value::Null;
                }
                told
            };
            assert_eq!(bare(&again), bare(&group), "{member}");
        }
        broker.publish_in("many", (63, 64), 1);
        broker.delete_topic("many");
        broker.create_partitions("many", 2, json!({}));
        assert_eq!(broker.stats("many")["message_count"], 0);
    }
}

#[test]
fn an_age_limit_set_later_takes_nothing_before_its_time_after_a_kill() {
    let mut broker = Setup::new().logged().flag("--shards", 2).start();
    broker.create_partitions("t", 2, json!({}));
    // The broker is older than messages may become.
    let uptime_ms = |broker: &Broker| broker.get("/health").expect(200).data()["uptime_ms"].as_u64().unwrap();
    wait_until("the broker is old", || uptime_ms(&broker) >= 2 * AGE_MS_MAX);
    let json = [("Content-Type", "application/json")];
    let change = json!({ "retention": { "max_age_ms": AGE_MS_MAX } }).to_string();
    broker.request("PATCH", "/topics/t", &json, change.as_bytes()).expect(200);
    for start in 0..2 {
        let published = Instant::now();
        // The second is the younger one, so that it is there as long as the first.
        broker.publish_in("t", (0, 2), 1);
        broker.publish_in("t", (1, 2), 1);
        broker.kill();
        broker.restart();
        let counts = |broker: &Broker| broker.stats("t")["partition_stats"].clone();
        let stats = counts(&broker);
        let [first, second] = [0, 1].map(|number| stats[number]["message_count"].as_u64().unwrap());
        let is_old = published.elapsed() >= Duration::from_millis(AGE_MS_MAX - EARLY_MS);
        assert!((first, second) == (1, 1) || is_old, "start {start}: {stats}");
        // And it goes in the end.
        let is_empty = |stats: &Value| [0, 1].iter().all(|number| stats[number]["message_count"] == 0);
        wait_until("the messages are too old", || is_empty(&counts(&broker)));
        assert!(published.elapsed() >= Duration::from_millis(AGE_MS_MAX - EARLY_MS), "start {start}: gone too early");
    }
}
