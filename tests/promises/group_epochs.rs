//! Promise: acknowledgements of a group that was deleted, or whose topic was, never count in a later one of the same name.

use crate::broker::Broker;
use crate::plenty::offsets;
use serde_json::{Value, json};

fn fetch(broker: &Broker) -> Value {
    let data = broker.group_post("t", "g", "fetch", json!({ "max": 2, "from_offset": 0 }));
    assert_eq!(offsets(&data), [0, 1]);
    data
}

/// A worker of the earlier group says late that it is done, or gives back.
#[track_caller]
fn expect_strange(broker: &Broker, earlier: &Value) {
    let current = fetch(broker);
    assert_ne!(earlier["epoch"], current["epoch"]);
    for verb in ["ack", "nack"] {
        let words = json!({ "offsets": [0, 1], "epoch": earlier["epoch"] });
        assert_eq!(broker.group_post("t", "g", verb, words)["acknowledged"], 0, "{verb}");
    }
    let stats = broker.group("t", "g");
    assert!(stats["committed_offset"] == 0 && stats["pending"] == 2, "{stats}");
    let words = json!({ "offsets": [0, 1], "epoch": current["epoch"] });
    assert_eq!(broker.group_post("t", "g", "ack", words)["acknowledged"], 2);
}

#[test]
fn epochs_never_come_again() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..2);
    let first = fetch(&broker);
    broker.request("DELETE", "/topics/t/groups/g", &[], b"").expect(200);
    expect_strange(&broker, &first);
    // A seek, another deletion, and a seek of the new one: what was first never fits.
    broker.group_post("t", "g", "seek", json!({ "offset": 0 }));
    let second = fetch(&broker);
    broker.request("DELETE", "/topics/t/groups/g", &[], b"").expect(200);
    broker.group_post("t", "g", "fetch", json!({}));
    broker.group_post("t", "g", "seek", json!({ "offset": 0 }));
    expect_strange(&broker, &second);
    broker.group_post("t", "g", "seek", json!({ "offset": 0 }));
    expect_strange(&broker, &first);
}

#[test]
fn the_group_of_a_new_topic_is_another() {
    let broker = Broker::start();
    let mut earlier = Vec::new();
    for _ in 0..4 {
        broker.create_topic("t");
        broker.publish_numbers("t", 0..2);
        for old in &earlier {
            expect_strange(&broker, old);
            broker.group_post("t", "g", "seek", json!({ "offset": 0 }));
        }
        earlier.push(fetch(&broker));
        broker.delete_topic("t");
    }
}
