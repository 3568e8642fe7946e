//! Promise: fetches that wait take no place on the way to another core: whatever else goes that way is served.

use crate::broker::{Setup, topic_path};
use crate::deadline::wait_until;
use crate::http::Connection;
use crate::plenty::offsets;
use serde_json::json;

const TOPICS: usize = 6;
const FETCHES: usize = 40;

#[test]
fn waiting_fetches_do_not_fill_a_lane() {
    let broker = Setup::new().flag("--cores", 2).flag("--shards", 2).flag("--lane-requests", 8).start();
    let names: Vec<String> = (0..TOPICS).map(|number| format!("t{number}")).collect();
    for name in &names {
        broker.create_topic(name);
        broker.group_post(name, "g", "fetch", json!({}));
    }
    let wish = json!({ "max": 1, "wait_ms": 60_000 });
    let mut waiting: Vec<Connection> = (0..FETCHES)
        .map(|number| {
            let mut connection = broker.connect();
            let target = topic_path(&names[number % TOPICS], "/groups/g/fetch");
            connection.send(&broker.json_request_to(&target, &wish));
            // Behind each other, so that they do not fill the lane while they arrive.
            broker.stats(&names[number % TOPICS]);
            connection
        })
        .collect();
    // Also readers of pages that wait, which are subscriptions for as long.
    let mut pages: Vec<Connection> = (0..FETCHES)
        .map(|number| {
            let mut connection = broker.connect();
            let target = topic_path(&names[number % TOPICS], "/messages?from_offset=0&wait_ms=60000");
            connection.send_request("GET", &target, &[], b"");
            broker.stats(&names[number % TOPICS]);
            connection
        })
        .collect();
    for _ in 0..3 {
        for name in &names {
            broker.stats(name);
            broker.get("/topics").expect(200);
            broker.get("/metrics").expect(200);
            broker.group(name, "g");
            let _stream = broker.subscribe(name, "", &[]);
        }
    }
    for number in 0..FETCHES {
        broker.publish(&names[number % TOPICS], b"x");
    }
    // Those that wait have a bound of their own: some may have been told so, and the others have a message each.
    let granted = waiting.iter_mut().map(|connection| connection.response_to("POST")).filter(|answer| {
        let is_granted = answer.status == 200;
        assert!(is_granted || (answer.status == 503 && answer.json()["code"] == "busy"), "{answer:?}");
        is_granted
    });
    let granted = granted.map(|answer| assert_eq!(offsets(&answer.data()).len(), 1)).count() as u64;
    assert!(granted >= 8, "only {granted} could wait");
    // Pages are read when their topic has news; of so many at once a lane of eight may refuse some, and says so.
    for answer in pages.iter_mut().map(|connection| connection.response_to("GET")) {
        assert!(answer.status == 200 || (answer.status == 503 && answer.json()["code"] == "busy"), "{answer:?}");
    }
    wait_until("each message is with one of them", || {
        names.iter().map(|name| broker.group(name, "g")["pending"].as_u64().unwrap()).sum::<u64>() == granted
    });
}

#[test]
fn a_fetch_that_does_not_wait_is_served_beside_them() {
    let broker = Setup::new().flag("--cores", 2).flag("--shards", 2).flag("--lane-requests", 8).start();
    broker.create_topic("t");
    broker.publish("t", b"x");
    let mut waiting: Vec<Connection> = (0..FETCHES).map(|_| broker.connect()).collect();
    for connection in &mut waiting {
        connection.send(&broker.json_request_to("/topics/t/groups/g/fetch", &json!({ "wait_ms": 60_000 })));
        broker.stats("t");
    }
    for number in 0..16 {
        let data = broker.group_post("t", &format!("other-{number}"), "fetch", json!({ "from_offset": 0 }));
        assert_eq!(offsets(&data), [0]);
    }
}
