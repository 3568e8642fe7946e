//! Promise: a topic may have 1 to 64 partitions, stands as one topic in every list, and its settings hold in all of them.

use crate::broker::{Broker, Setup};
use crate::deadline::wait_until;
use crate::metrics::Exposition;
use serde_json::{Value, json};

#[test]
fn topics_are_made_with_partitions_and_stand_as_one() {
    for shards in [1, 2, 4] {
        let broker = Setup::new().flag("--shards", shards).start();
        for count in [1, 2, 3, 64] {
            let name = format!("t{count}");
            let made = broker.post("/topics", &json!({ "name": name, "partitions": count })).expect(201).data();
            assert_eq!(made["partitions"], count, "{made}");
            for partition in [0, count - 1] {
                broker.publish_in(&name, (partition, count), 3);
            }
            let stats = broker.stats(&name);
            let messages = if count == 1 { 6 } else { 3 };
            assert_eq!(stats["message_count"], 6, "{stats}");
            assert!(stats["latest_offset"] == messages - 1 && stats["earliest_offset"] == 0, "{stats}");
            let parts = stats["partition_stats"].as_array();
            assert_eq!(parts.map_or(0, Vec::len), if count == 1 { 0 } else { count as usize }, "{stats}");
            for (at, part) in parts.into_iter().flatten().enumerate() {
                assert_eq!(part["partition"], at, "{stats}");
                let here = if at == 0 || at + 1 == count as usize { 3 } else { 0 };
                assert_eq!(part["message_count"], here, "{stats}");
                assert_eq!(part["latest_offset"], here - 1, "{stats}");
            }
            let bytes: u64 = parts.into_iter().flatten().map(|part| part["bytes"].as_u64().unwrap()).sum();
            assert!(count == 1 || stats["bytes"] == bytes, "{stats}");
            assert_eq!(made["partition_stats"].as_array().map_or(0, Vec::len), parts.map_or(0, Vec::len), "{made}");
        }
        let list = broker.get("/topics").expect(200).data();
        let names: Vec<_> = list.as_array().unwrap().iter().map(|topic| topic["name"].clone()).collect();
        assert_eq!(names, ["t1", "t2", "t3", "t64"], "each topic is there once");
        for topic in list.as_array().unwrap() {
            assert_eq!(*topic, broker.stats(topic["name"].as_str().unwrap()));
        }
        let exposition = Exposition::read(&broker);
        for name in ["t1", "t2", "t3", "t64"] {
            for metric in ["streamq_messages_published_total", "streamq_topic_message_count"] {
                assert_eq!(exposition.value(metric, &[("topic", name)]), Some(6.0), "{metric} of {name}");
            }
        }
    }
}

#[test]
fn other_numbers_of_partitions_are_refused() {
    let broker = Broker::start();
    for count in [json!(0), json!(65), json!(u64::MAX)] {
        let answer = broker.post("/topics", &json!({ "name": "t", "partitions": count }));
        let told = answer.expect_error(400, "invalid_config").json()["message"].clone();
        assert!(told.as_str().unwrap().contains("1 to 64"), "{told}");
    }
    broker.get("/topics/t").expect(404);
    broker.create_partitions("t", 2, json!({}));
    broker.post("/topics", &json!({ "name": "t", "partitions": 3 })).expect_error(409, "topic_exists");
    broker.post("/topics", &json!({ "name": "t" })).expect_error(409, "topic_exists");
    let json = [("Content-Type", "application/json")];
    broker.request("PATCH", "/topics/t", &json, br#"{"partitions":3}"#).expect_error(400, "invalid_config");
    assert_eq!(broker.stats("t")["partitions"], 2);
}

#[test]
fn a_deleted_topic_is_gone_whole_and_its_name_free() {
    let broker = Broker::start();
    for (before, after) in [(3, 5), (5, 1), (1, 64), (64, 2)] {
        broker.create_partitions("t", before, json!({}));
        for partition in 0..before.min(5) {
            broker.publish_in("t", (partition, before), 2);
        }
        broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
        broker.delete_topic("t");
        broker.get("/topics/t").expect_error(404, "topic_not_found");
        assert_eq!(broker.get("/topics").expect(200).data(), json!([]));
        broker.create_partitions("t", after, json!({}));
        let stats = broker.stats("t");
        assert!(stats["message_count"] == 0 && stats["partitions"] == after && stats["groups"] == 0, "{stats}");
        broker.delete_topic("t");
    }
}

#[test]
fn a_change_holds_in_all_partitions() {
    let broker = Broker::start();
    broker.create_partitions("t", 3, json!({}));
    for partition in 0..3 {
        broker.publish_in("t", (partition, 3), 10);
    }
    let json = [("Content-Type", "application/json")];
    let change = br#"{"retention":{"max_messages":4},"ack_wait_ms":5000}"#;
    let told = broker.request("PATCH", "/topics/t", &json, change).expect(200).data();
    let kept = |stats: &Value| -> Vec<u64> {
        stats["partition_stats"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["message_count"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(kept(&told), [4, 4, 4], "retention counts in each: {told}");
    assert!(told["message_count"] == 12 && told["earliest_offset"] == 6 && told["ack_wait_ms"] == 5000, "{told}");
    assert_eq!(told, broker.stats("t"));
    let nothing = broker.request("PATCH", "/topics/t", &json, b"{}").expect(200).data();
    assert_eq!(nothing, told);
    broker.publish_in("t", (2, 3), 3);
    assert_eq!(kept(&broker.stats("t")), [4, 4, 4]);
}

#[test]
fn a_pipeline_of_questions_is_answered_in_order() {
    let broker = Broker::start();
    broker.create_partitions("many", 64, json!({}));
    broker.create_topic("one");
    let mut connection = broker.connect();
    for _ in 0..40 {
        for target in ["/topics/many", "/topics/one", "/topics/many/groups", "/topics/none"] {
            connection.send_request("GET", target, &[], b"");
        }
    }
    for _ in 0..40 {
        assert_eq!(connection.response_to("GET").expect(200).data()["name"], "many");
        assert_eq!(connection.response_to("GET").expect(200).data()["name"], "one");
        assert_eq!(connection.response_to("GET").expect(200).data(), json!([]));
        connection.response_to("GET").expect_error(404, "topic_not_found");
    }
}

#[test]
fn lists_hold_whole_topics_while_they_come_and_go() {
    let broker = Setup::new().flag("--shards", 4).start();
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            for _ in 0..60 {
                broker.create_partitions("t", 7, json!({}));
                broker.delete_topic("t");
            }
        });
        wait_until("topics have come and gone", || {
            let list = broker.get("/topics").expect(200).data();
            let list = list.as_array().unwrap();
            assert!(list.len() <= 1 && list.iter().all(|topic| topic["partitions"] == 7), "{list:?}");
            let one = broker.get("/topics/t");
            assert!(matches!(one.status, 200 | 404), "{one:?}");
            Exposition::read(&broker);
            maker.is_finished()
        });
    });
}

#[test]
fn many_partitions_are_asked_through_a_narrow_lane() {
    for lane_requests in [1, 2, 16] {
        let setup = Setup::new().flag("--cores", 2).flag("--shards", 2).flag("--lane-requests", lane_requests);
        let broker = setup.start();
        broker.create_partitions("t", 64, json!({}));
        for partition in [0, 1, 62, 63] {
            broker.publish_in("t", (partition, 64), 2);
        }
        // Connections go to one core or the other.
        for _ in 0..8 {
            assert_eq!(broker.stats("t")["message_count"], 8);
            assert_eq!(broker.get("/topics").expect(200).data()[0]["message_count"], 8);
        }
        let mut ids = Vec::new();
        while ids.len() < 8 {
            let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 9, "from_offset": 0 }));
            ids.extend(fetched["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()));
        }
        assert_eq!(broker.group_post("t", "g", "ack", json!({ "ids": ids }))["acknowledged"], 8);
        assert_eq!(broker.group_post("t", "g", "seek", json!({ "earliest": true }))["lag"], 8);
        assert_eq!(broker.get("/topics/t/groups").expect(200).data().as_array().unwrap().len(), 1);
        broker.request("DELETE", "/topics/t/groups/g", &[], b"").expect(200);
        broker.get("/topics/t/groups/g").expect_error(404, "group_not_found");
    }
}
