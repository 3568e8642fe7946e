//! Promise: groups are listed, described and deleted over HTTP, and workers without a stream fetch, acknowledge and give back.

use crate::broker::Broker;
use crate::deadline::wait_until;
use crate::http::Connection;
use serde_json::{Value, json};
use std::thread;

fn started(messages: u64) -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..messages);
    broker
}

fn offsets(fetched: &Value) -> Vec<u64> {
    fetched["messages"].as_array().unwrap().iter().map(|message| message["offset"].as_u64().unwrap()).collect()
}

/// A worker that waits for a message: the answer to what it asked before shows that the broker has it.
fn waiting(broker: &Broker) -> Connection {
    let mut connection = broker.connect();
    let wishes = [0, 60_000].map(|wait_ms| json!({ "max": 1, "wait_ms": wait_ms }));
    connection.send(&wishes.map(|wish| broker.json_request_to("/topics/t/groups/g/fetch", &wish)).concat());
    assert!(offsets(&connection.response_to("POST").expect(200).data()).is_empty());
    connection
}

#[test]
fn workers_fetch_acknowledge_and_give_back() {
    let broker = started(10);
    let first = broker.group_post("t", "g", "fetch", json!({ "max": 4, "from_offset": 0 }));
    assert_eq!(offsets(&first), [0, 1, 2, 3]);
    let message = &first["messages"][1];
    assert!(message["payload"] == "MQ==" && message["topic"] == "t" && message["id"].is_string(), "{message}");
    assert_eq!(message.get("attempt"), None);
    assert_eq!(offsets(&broker.group_post("t", "g", "fetch", json!({}))), [4], "one when it does not say");
    assert_eq!(broker.group_post("t", "g", "ack", json!({ "offset": 0 }))["acknowledged"], 1);
    assert_eq!(broker.group_post("t", "g", "ack", json!({ "offsets": [0, 2, 77] }))["acknowledged"], 1);
    assert_eq!(broker.group_post("t", "g", "nack", json!({ "offsets": [1] }))["acknowledged"], 1);
    let again = broker.group_post("t", "g", "fetch", json!({ "max": 3 }));
    assert_eq!(offsets(&again), [1, 5, 6]);
    assert_eq!(again["messages"][0]["attempt"], 2);
    let stats = broker.group("t", "g");
    assert!(stats["committed_offset"] == 1 && stats["pending"] == 5 && stats["lag"] == 9, "{stats}");
    assert!(stats["name"] == "g" && stats["topic"] == "t" && stats["next_offset"] == 7, "{stats}");
}

#[test]
fn a_fetch_waits_for_messages() {
    let broker = started(0);
    let empty = broker.group_post("t", "g", "fetch", json!({ "max": 5 }));
    assert!(offsets(&empty).is_empty());
    let empty = broker.group_post("t", "g", "fetch", json!({ "max": 5, "wait_ms": 50 }));
    assert!(offsets(&empty).is_empty());
    let mut workers: Vec<_> = (0..3).map(|_| waiting(&broker)).collect();
    broker.publish_numbers("t", 0..3);
    let fetched = workers.iter_mut().map(|worker| worker.response_to("POST").expect(200).data());
    let mut all: Vec<u64> = fetched.flat_map(|fetched| offsets(&fetched)).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
}

#[test]
fn what_a_silent_worker_holds_goes_out_again() {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "ack_wait_ms": 100 }), "t");
    broker.publish("t", b"x");
    let first = broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
    assert_eq!(offsets(&first), [0]);
    let again = broker.group_post("t", "g", "fetch", json!({ "wait_ms": 30_000 }));
    assert_eq!(again["messages"][0]["attempt"], 2, "{again}");
}

#[test]
fn a_nack_may_delay() {
    let broker = started(1);
    broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
    assert_eq!(broker.group_post("t", "g", "nack", json!({ "offset": 0, "delay_ms": 100 }))["acknowledged"], 1);
    let again = broker.group_post("t", "g", "fetch", json!({ "wait_ms": 30_000 }));
    assert_eq!((offsets(&again), &again["messages"][0]["attempt"]), (vec![0], &json!(2)));
}

#[test]
fn workers_and_members_share_a_group() {
    let broker = started(4);
    let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 2, "from_offset": 0 }));
    assert_eq!(offsets(&fetched), [0, 1]);
    let mut member = broker.websocket("t", "?group=g", &[]);
    assert_eq!(member.offsets(2), [2, 3]);
    member.acknowledge(&[2, 3]);
    broker.group_post("t", "g", "ack", json!({ "offsets": [0, 1] }));
    assert_eq!(broker.group("t", "g")["committed_offset"], 4);
}

#[test]
fn a_worker_that_hangs_up_while_it_waits_loses_nothing() {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "ack_wait_ms": 200 }), "t");
    broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
    (0..5).for_each(|_| drop(waiting(&broker)));
    broker.publish("t", b"x");
    let got = broker.group_post("t", "g", "fetch", json!({ "wait_ms": 30_000 }));
    assert_eq!(offsets(&got), [0]);
}

#[test]
fn groups_are_listed_described_and_deleted() {
    let broker = started(3);
    assert_eq!(broker.get("/topics/t/groups").expect(200).data(), json!([]));
    for name in ["b", "a", "ü and more"] {
        let segment = crate::http::path_segment(name);
        broker.group_post("t", &segment, "fetch", json!({ "from_offset": 0 }));
    }
    let list = broker.get("/topics/t/groups").expect(200).data();
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "ü and more"]);
    assert_eq!(list[0], broker.group("t", "a"));
    assert_eq!(broker.stats("t")["groups"], 3);
    let mut member = broker.websocket("t", "?group=a", &[]);
    let mut stream = broker.subscribe("t", "?group=a", &[]);
    broker.wait_for_group("t", "a", "members", 2);
    broker.request("DELETE", "/topics/t/groups/a", &[], b"").expect(200);
    assert_eq!(member.close_code(), 4404);
    loop {
        let event = stream.event();
        if event.name == "end" {
            assert_eq!(event.json(), json!({ "reason": "group_deleted" }));
            break;
        }
    }
    broker.get("/topics/t/groups/a").expect_error(404, "group_not_found");
    broker.request("DELETE", "/topics/t/groups/a", &[], b"").expect_error(404, "group_not_found");
    wait_until("its members do not count any more", || broker.stats("t")["subscriber_count"] == 0);
    // The name is free: a group of that name starts anew.
    let fetched = broker.group_post("t", "a", "fetch", json!({ "max": 9, "from_offset": 0 }));
    assert_eq!(offsets(&fetched), [0, 1, 2]);
}

#[test]
fn deleting_a_group_ends_the_fetches_that_wait() {
    let broker = started(0);
    broker.group_post("t", "g", "fetch", json!({}));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| broker.post("/topics/t/groups/g/fetch", &json!({ "wait_ms": 60_000 })));
        // Whether the fetch waits already cannot be seen: it may also find no group and make a new one, which ends as well.
        wait_until("the fetch ends", || {
            broker.request("DELETE", "/topics/t/groups/g", &[], b"");
            waiting.is_finished()
        });
        waiting.join().unwrap().expect(404).expect_envelope_of_error();
    });
}

#[test]
fn bad_requests_are_told() {
    let broker = started(1);
    for verb in ["ack", "nack", "seek"] {
        broker
            .post(&format!("/topics/t/groups/g/{verb}"), &json!({ "offset": 0 }))
            .expect_error(404, "group_not_found");
    }
    for verb in ["fetch", "ack", "nack", "seek"] {
        broker
            .post(&format!("/topics/none/groups/g/{verb}"), &json!({ "offset": 0 }))
            .expect_error(404, "topic_not_found");
    }
    broker.get("/topics/none/groups").expect_error(404, "topic_not_found");
    broker.group_post("t", "g", "fetch", json!({}));
    let bad = [
        ("fetch", json!({ "max": 0 })),
        ("fetch", json!({ "max": 10_001 })),
        ("fetch", json!({ "wait_ms": 60_001 })),
        ("ack", json!({})),
        ("ack", json!({ "offsets": ["0"] })),
        ("nack", json!({ "offset": 0, "delay_ms": 86_400_001 })),
    ];
    for (verb, body) in bad {
        broker.post(&format!("/topics/t/groups/g/{verb}"), &body).expect(400).expect_envelope_of_error();
    }
    let long = "g".repeat(256);
    broker.get(&format!("/topics/t/groups/{long}")).expect_error(400, "invalid_name");
    broker.get("/topics/t/groups/g/fetch").expect(405);
    broker.request("PUT", "/topics/t/groups/g", &[], b"").expect(405);
    broker.request("POST", "/topics/t/groups/g/fetch", &[("Content-Type", "application/json")], b"{").expect(400);
}
