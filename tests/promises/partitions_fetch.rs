//! Promise: a page is of one partition, which the query names when there are several, and a waiting fetch is woken by its own.

use crate::broker::Broker;
use crate::partitions::offsets_by_partition;
use serde_json::json;
use std::collections::BTreeMap;

#[test]
fn each_partition_is_read_by_its_number() {
    let broker = Broker::start();
    broker.create_partitions("t", 3, json!({}));
    for (partition, count) in [(0, 2), (1, 0), (2, 5)] {
        broker.publish_in("t", (partition, 3), count);
    }
    for (partition, count) in [(0_u32, 2_u64), (1, 0), (2, 5)] {
        let messages = broker.page_of("t", partition, "&from_offset=0");
        let expected: Vec<u64> = (0..count).collect();
        let found = offsets_by_partition(&messages);
        assert_eq!(found.get(&u64::from(partition)).cloned().unwrap_or_default(), expected);
        assert!(found.len() <= 1);
        for message in &messages {
            let id = message["id"].as_str().unwrap();
            assert!(id.ends_with(&format!("-{partition}-{}", message["offset"])), "{id}");
        }
    }
    let page = broker.get("/topics/t/messages?partition=2&from_offset=3&limit=1").expect(200).data();
    assert!(page["next_offset"] == 4 && page["latest_offset"] == 4 && page["earliest_offset"] == 0, "{page}");
    let lines = broker.get("/topics/t/messages?partition=2&format=ndjson").expect(200).text();
    assert!(lines.lines().count() == 5 && lines.contains(r#""partition":2"#), "{lines}");
}

#[test]
fn a_partition_has_to_be_named_and_to_be_there() {
    let broker = Broker::start();
    broker.create_partitions("several", 3, json!({}));
    broker.create_topic("one");
    let told = |target: &str| {
        let answer = broker.get(target).expect_error(400, "invalid_request").json();
        answer["message"].as_str().unwrap().to_owned()
    };
    assert!(told("/topics/several/messages").contains("partition="), "the cure");
    assert!(told("/topics/several/messages?partition=3").contains("0 to 2"), "the range");
    told("/topics/several/messages?partition=99999999999");
    told("/topics/several/messages?partition=x");
    told("/topics/one/messages?partition=1");
    let plain = broker.get("/topics/one/messages").expect(200);
    assert_eq!(broker.get("/topics/one/messages?partition=0").expect(200).body, plain.body);
    broker.publish("one", b"x");
    let messages = broker.page_of("one", 0, "");
    assert_eq!(messages[0].get("partition"), None, "a topic of one partition does not speak of it");
    broker.get("/topics/none/messages?partition=1").expect_error(404, "topic_not_found");
}

#[test]
fn a_waiting_fetch_is_woken_by_its_partition_alone() {
    let broker = Broker::start();
    broker.create_partitions("t", 3, json!({}));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| broker.page_of("t", 2, "&from_offset=0&wait_ms=30000"));
        for partition in [0, 1] {
            broker.publish_in("t", (partition, 3), 5);
        }
        assert!(!waiting.is_finished());
        broker.publish_in("t", (2, 3), 1);
        assert_eq!(offsets_by_partition(&waiting.join().unwrap()), BTreeMap::from([(2, vec![0])]));
    });
}
