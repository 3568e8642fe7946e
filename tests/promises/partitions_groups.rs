//! Promise: a group of a topic with several partitions stands as one, seeks in all of them or in one, and ends as a whole.

use crate::broker::Broker;
use crate::metrics::Exposition;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Three partitions with 4, 5 and 6 messages, and a group at their beginnings.
fn started() -> Broker {
    let broker = Broker::start();
    broker.create_partitions("t", 3, json!({}));
    for (partition, count) in [(0, 4), (1, 5), (2, 6)] {
        broker.publish_in("t", (partition, 3), count);
    }
    broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
    broker.group_post("t", "g", "seek", json!({ "earliest": true }));
    broker
}

/// The committed offset in each partition.
fn committed(group: &Value) -> Vec<u64> {
    let parts = group["partitions"].as_array().unwrap_or_else(|| panic!("{group}"));
    parts.iter().map(|part| part["committed_offset"].as_u64().unwrap()).collect()
}

#[test]
fn a_group_is_the_sum_of_its_parts() {
    let broker = started();
    let ack = broker.group_post("t", "g", "fetch", json!({ "max": 3, "partition": 2 }));
    assert!(ack["partition"] == 2 && ack["messages"].as_array().unwrap().len() == 3, "{ack}");
    broker.group_post("t", "g", "ack", json!({ "partition": 2, "offsets": [0, 1], "epoch": ack["epoch"] }));
    let group = broker.group("t", "g");
    assert!(group["lag"] == 13 && group["pending"] == 1 && group["members"] == 0, "{group}");
    assert_eq!(committed(&group), [0, 0, 2]);
    assert_eq!(group["partitions"][2]["next_offset"], 3);
    assert_eq!(group["partitions"][2]["epoch"], ack["epoch"]);
    broker.group_post("t", "a", "fetch", json!({}));
    let list = broker.get("/topics/t/groups").expect(200).data();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|group| group["name"].clone()).collect();
    assert_eq!(names, ["a", "g"]);
    assert_eq!(list[1], group);
    assert_eq!(broker.stats("t")["groups"], 2);
    let lag = Exposition::read(&broker).value("streamq_consumer_group_lag", &[("group", "g"), ("topic", "t")]);
    assert_eq!(lag, Some(13.0));
}

#[test]
fn it_seeks_everywhere_or_in_one_partition() {
    let broker = started();
    let seek = |body: Value| committed(&broker.group_post("t", "g", "seek", body));
    assert_eq!(seek(json!({ "latest": true })), [4, 5, 6]);
    assert_eq!(seek(json!({ "earliest": true })), [0, 0, 0]);
    assert_eq!(seek(json!({ "latest": true, "partition": 1 })), [0, 5, 0]);
    assert_eq!(seek(json!({ "offset": 3, "partition": 2 })), [0, 5, 3]);
    assert_eq!(seek(json!({ "offset": 99, "partition": 0 })), [4, 5, 3]);
    assert_eq!(seek(json!({ "time": "2020-01-02T03:04:05Z" })), [0, 0, 0]);
    let far = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 31_556_952 + 1972;
    assert_eq!(seek(json!({ "time": format!("{far}-01-01T00:00:00Z") })), [4, 5, 6]);
    assert_eq!(seek(json!({ "time": "2020-01-02T03:04:05Z", "partition": 1 })), [4, 0, 6]);
    assert_eq!(committed(&broker.group("t", "g")), [4, 0, 6]);
    let epochs: Vec<_> = broker.group("t", "g")["partitions"].as_array().unwrap().clone();
    assert_eq!(epochs.len(), 3);
    let bad = |body: Value| broker.post("/topics/t/groups/g/seek", &body).expect_error(400, "invalid_request").json();
    let told = bad(json!({ "offset": 3 }))["message"].to_string();
    assert!(told.contains("partition") && told.contains("0 to 2"), "{told}");
    bad(json!({ "offset": 3, "partition": 3 }));
    bad(json!({ "earliest": true, "partition": 7 }));
    broker.post("/topics/t/groups/none/seek", &json!({ "earliest": true })).expect_error(404, "group_not_found");
    assert_eq!(committed(&broker.group("t", "g")), [4, 0, 6], "nothing has moved");
}

#[test]
fn it_ends_in_all_partitions() {
    let broker = started();
    // One that only one partition knows.
    broker.group_post("t", "narrow", "fetch", json!({ "partition": 1 }));
    let narrow = broker.group("t", "narrow");
    assert!(
        narrow["partitions"].as_array().unwrap().len() == 1 && narrow["partitions"][0]["partition"] == 1,
        "{narrow}"
    );
    for group in ["g", "narrow"] {
        broker.request("DELETE", &format!("/topics/t/groups/{group}"), &[], b"").expect(200);
        broker.get(&format!("/topics/t/groups/{group}")).expect_error(404, "group_not_found");
        broker.request("DELETE", &format!("/topics/t/groups/{group}"), &[], b"").expect_error(404, "group_not_found");
    }
    assert_eq!(broker.get("/topics/t/groups").expect(200).data(), json!([]));
    assert_eq!(broker.stats("t")["groups"], 0);
}

#[test]
fn one_partition_is_not_spoken_of() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish("t", b"x");
    let fetched = broker.group_post("t", "g", "fetch", json!({ "from_offset": 0, "partition": 0 }));
    assert_eq!(fetched.get("partition"), None);
    assert_eq!(broker.group("t", "g").get("partitions"), None);
    assert_eq!(broker.group_post("t", "g", "ack", json!({ "ids": fetched["messages"][0]["id"] }))["acknowledged"], 1);
    for (verb, body) in [("fetch", json!({ "partition": 1 })), ("seek", json!({ "latest": true, "partition": 1 }))] {
        broker.post(&format!("/topics/t/groups/g/{verb}"), &body).expect_error(400, "invalid_request");
    }
}
