//! Promise: when all members of a group leave at once, their cores go on serving, and what they held goes to whoever comes.

use crate::broker::Broker;
use crate::plenty::{expect_health, offsets};
use serde_json::json;
use std::collections::HashSet;

const MEMBERS: usize = 400;
const MESSAGES: u64 = 20_000;

#[test]
fn a_crowd_that_leaves_stops_nobody() {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "ack_wait_ms": 600_000, "retention": { "max_messages": MESSAGES } }), "t");
    let mut probes = broker.probes();
    let members: Vec<_> = (0..MEMBERS).map(|_| broker.websocket("t", "?group=g", &[])).collect();
    broker.publish_many("t", b"x", MESSAGES as usize);
    broker.wait_for_group("t", "g", "pending", MESSAGES);
    drop(members);
    expect_health(&mut probes);
    broker.wait_for_group("t", "g", "members", 0);
    expect_health(&mut probes);
    let mut seen = HashSet::new();
    while seen.len() < MESSAGES as usize {
        let data = broker.group_post("t", "g", "fetch", json!({ "max": 10_000 }));
        // What one of them left may have gone to another that then left, too.
        let attempts = data["messages"].as_array().unwrap().iter().map(|message| message["attempt"].as_u64());
        assert!(attempts.into_iter().all(|attempt| attempt.is_some_and(|attempt| attempt >= 2)));
        let got = offsets(&data);
        assert!(!got.is_empty(), "{} of {MESSAGES} came again", seen.len());
        broker.group_post("t", "g", "ack", json!({ "offsets": got, "epoch": data["epoch"] }));
        seen.extend(got);
    }
    assert_eq!(broker.group("t", "g")["committed_offset"], MESSAGES);
}
