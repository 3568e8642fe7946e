//! Promise: `max_deliver` can be changed while messages are out, and holds for them; without a dead-letter topic what was given
//! out too often is dropped and counted, and what leaves waits for no member.

use crate::broker::Broker;
use crate::dead_letters::{LONG_MS, create_mortal, fetch_and_nack, letters, letters_of};
use crate::metrics::Exposition;
use crate::plenty::offsets;
use serde_json::{Value, json};

fn change(broker: &Broker, dead_letter: Value) {
    let body = json!({ "dead_letter": dead_letter }).to_string();
    broker.request("PATCH", "/topics/t", &[("Content-Type", "application/json")], body.as_bytes()).expect(200);
}

fn fetch(broker: &Broker, max: u64) -> Value {
    broker.group_post("t", "g", "fetch", json!({ "max": max, "from_offset": 0 }))
}

#[test]
fn without_dead_letters_it_is_dropped_and_counted() {
    let broker = Broker::start();
    create_mortal(&broker, "t", json!({ "max_deliver": 2 }), LONG_MS);
    broker.publish_numbers("t", 0..5);
    assert_eq!(fetch_and_nack(&broker, "t", "g", 3), [0, 1, 2]);
    assert_eq!(broker.group("t", "g")["dead"], 0);
    assert_eq!(offsets(&fetch(&broker, 2)), [0, 1]);
    broker.group_post("t", "g", "ack", json!({ "offsets": [1] }));
    broker.group_post("t", "g", "nack", json!({ "offsets": [0] }));
    broker.wait_for_group("t", "g", "dead", 1);
    let stats = broker.group("t", "g");
    assert!(stats["committed_offset"] == 2 && stats["lost"] == 0, "{stats}");
    assert_eq!(broker.get("/topics/t/groups").expect(200).data()[0]["dead"], 1);
    let labels = [("topic", "t"), ("group", "g")];
    assert_eq!(Exposition::read(&broker).value("ringmain_group_dead_total", &labels), Some(1.0));
    assert_eq!(offsets(&fetch(&broker, 10)), [2, 3, 4]);
    assert_eq!(letters(&broker, "t").len(), 5, "the topic itself loses nothing");
}

#[test]
fn a_lower_bound_holds_at_once_for_what_nobody_has() {
    let broker = Broker::start();
    broker.create_topic("dead");
    create_mortal(&broker, "t", json!({ "topic": "dead", "max_deliver": 9 }), LONG_MS);
    broker.publish_numbers("t", 0..4);
    for _ in 0..3 {
        fetch_and_nack(&broker, "t", "g", 2);
    }
    assert_eq!(offsets(&fetch(&broker, 1)), [0], "with the fourth attempt");
    change(&broker, json!({ "max_deliver": 3 }));
    // Nobody asks for anything, and the one that nobody has goes.
    assert_eq!(letters_of(&broker, "dead", 1)[0]["payload"], "MQ==");
    // The one that is held may still be dealt with.
    assert_eq!(broker.group_post("t", "g", "ack", json!({ "offset": 0 }))["acknowledged"], 1);
    broker.wait_for_group("t", "g", "committed_offset", 2);
    assert_eq!(fetch_and_nack(&broker, "t", "g", 2), [2, 3]);
    assert_eq!(fetch_and_nack(&broker, "t", "g", 2), [2, 3]);
    change(&broker, json!({ "topic": null }));
    assert_eq!(fetch_and_nack(&broker, "t", "g", 2), [2, 3]);
    broker.wait_for_group("t", "g", "committed_offset", 4);
    assert_eq!(broker.group("t", "g")["dead"], 3);
    assert_eq!(letters(&broker, "dead").len(), 1);
}

#[test]
fn a_higher_bound_gives_what_waits_for_its_topic_another_chance() {
    let broker = Broker::start();
    create_mortal(&broker, "t", json!({ "topic": "missing", "max_deliver": 1 }), LONG_MS);
    broker.publish("t", b"0");
    assert_eq!(fetch_and_nack(&broker, "t", "g", 1), [0]);
    assert!(offsets(&fetch(&broker, 1)).is_empty());
    change(&broker, json!({ "max_deliver": 3 }));
    for attempt in 2..=3 {
        let fetched = broker.group_post("t", "g", "fetch", json!({ "wait_ms": 20_000 }));
        assert_eq!((offsets(&fetched), &fetched["messages"][0]["attempt"]), (vec![0], &json!(attempt)));
        broker.group_post("t", "g", "nack", json!({ "offset": 0 }));
    }
    change(&broker, json!(null));
    let fetched = broker.group_post("t", "g", "fetch", json!({ "wait_ms": 20_000 }));
    assert_eq!((offsets(&fetched), &fetched["messages"][0]["attempt"]), (vec![0], &json!(4)));
    assert_eq!(broker.group("t", "g")["dead"], 0);
}

#[test]
fn what_leaves_does_not_wait_behind_what_stays() {
    let broker = Broker::start();
    broker.create_topic("dead");
    create_mortal(&broker, "t", json!({ "topic": "dead", "max_deliver": 2 }), LONG_MS);
    broker.publish_numbers("t", 0..2);
    assert_eq!(offsets(&fetch(&broker, 1)), [0]);
    assert_eq!(fetch_and_nack(&broker, "t", "g", 1), [1]);
    assert_eq!(offsets(&fetch(&broker, 1)), [1]);
    // The first can go out once more, and nobody asks for it; the second has no more tries.
    broker.group_post("t", "g", "nack", json!({ "offsets": [0, 1] }));
    assert_eq!(letters_of(&broker, "dead", 1)[0]["payload"], "MQ==");
    assert_eq!(offsets(&fetch(&broker, 5)), [0]);
}
