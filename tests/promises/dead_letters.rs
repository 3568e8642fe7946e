//! Promise: a message that was given out `max_deliver` times and not acknowledged goes to the dead-letter topic, once for each
//! group, with all it had and with headers that say where it comes from; its group goes on, and others wait for nothing.

use crate::broker::{Broker, Setup, topic_path};
use crate::deadline::{wait_for, wait_until};
use crate::plenty::offsets;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Longer than any test: only a test that means it has messages time out.
pub(crate) const LONG_MS: u64 = 600_000;

/// All messages of a topic.
pub(crate) fn letters(broker: &Broker, topic: &str) -> Vec<Value> {
    let page = broker.get(&topic_path(topic, "/messages?from_offset=0&limit=10000")).expect(200).data();
    page["messages"].as_array().unwrap().clone()
}

/// Waits until a dead-letter topic has that many messages; it must not have more.
#[track_caller]
pub(crate) fn letters_of(broker: &Broker, topic: &str, count: usize) -> Vec<Value> {
    let found = wait_for("the dead letters are there", || {
        Some(letters(broker, topic)).filter(|letters| letters.len() >= count)
    });
    assert_eq!(found.len(), count, "{found:?}");
    found
}

pub(crate) fn header<'l>(letter: &'l Value, name: &str) -> &'l str {
    letter["headers"][format!("ringmain-dead-{name}")].as_str().unwrap_or_else(|| panic!("{letter}"))
}

/// Makes a topic of that storage whose messages die after `max_deliver` deliveries.
pub(crate) fn create_mortal(broker: &Broker, name: &str, dead_letter: Value, ack_wait_ms: u64) {
    broker.create_topic_with(json!({ "dead_letter": dead_letter, "ack_wait_ms": ack_wait_ms }), name);
}

/// Fetches up to `max` messages for the group, from the topic's beginning, and gives them back.
pub(crate) fn fetch_and_nack(broker: &Broker, topic: &str, group: &str, max: u64) -> Vec<u64> {
    let fetched = offsets(&broker.group_post(topic, group, "fetch", json!({ "max": max, "from_offset": 0 })));
    if !fetched.is_empty() {
        broker.group_post(topic, group, "nack", json!({ "offsets": fetched }));
    }
    fetched
}

#[derive(Clone, Copy, Debug)]
enum Death {
    Nacked,
    TimedOut,
    MemberGone,
}

fn die(broker: &Broker, topic: &str, times: u64, death: Death) {
    for _ in 0..times {
        match death {
            Death::Nacked => assert_eq!(fetch_and_nack(broker, topic, "g", 1), [0]),
            Death::TimedOut => {
                let body = json!({ "max": 1, "wait_ms": 20_000, "from_offset": 0 });
                assert_eq!(offsets(&broker.group_post(topic, "g", "fetch", body)), [0]);
            }
            Death::MemberGone => {
                let mut member = broker.websocket(topic, "?group=g&from_offset=0&max_in_flight=1", &[]);
                assert_eq!(member.message().offset, 0);
            }
        }
    }
}

#[test]
fn given_back_timed_out_or_left_it_goes_with_all_it_had() {
    let broker = Broker::start();
    for (death, times) in [(Death::Nacked, 3), (Death::TimedOut, 2), (Death::MemberGone, 2), (Death::Nacked, 1)] {
        let (topic, dead) = (format!("{death:?}{times}"), format!("dead of {death:?}{times}"));
        broker.create_topic(&dead);
        let ack_wait_ms = if matches!(death, Death::TimedOut) { 100 } else { LONG_MS };
        create_mortal(&broker, &topic, json!({ "topic": dead, "max_deliver": times }), ack_wait_ms);
        let body = json!({ "payload": "AAECAw==", "key": "k", "headers": { "own": "x", "other": "" } });
        broker.post(&topic_path(&topic, "/publish"), &body).expect(202);
        let original = letters(&broker, &topic).remove(0);
        die(&broker, &topic, times, death);
        let letter = letters_of(&broker, &dead, 1).remove(0);
        assert_eq!((&letter["payload"], &letter["key"]), (&body["payload"], &body["key"]));
        let mut headers = body["headers"].clone();
        headers["ringmain-dead-reason"] = json!("max_deliver");
        headers["ringmain-dead-topic"] = json!(topic);
        headers["ringmain-dead-group"] = json!("g");
        headers["ringmain-dead-id"] = original["id"].clone();
        headers["ringmain-dead-attempts"] = json!(times.to_string());
        assert_eq!(letter["headers"], headers);
        broker.wait_for_group(&topic, "g", "committed_offset", 1);
        let stats = broker.group(&topic, "g");
        assert!(stats["pending"] == 0 && stats["dead"] == 1 && stats["lag"] == 0, "{stats}");
        assert_eq!(letters(&broker, &topic), [original], "the message itself stays where it is");
    }
}

#[test]
fn once_for_each_group_from_any_core_and_storage_to_any_other() {
    const EACH: u64 = 40;
    let broker = Setup::new().logged().variable("RINGMAIN_CORES", 2).start();
    let storages = ["memory", "wal"];
    // Names decide on the core: among so many each meets each.
    for at in 0..3 {
        for storage in storages {
            broker.create_topic_with(json!({ "storage": storage }), &format!("dead-{storage}-{at}"));
        }
    }
    let all = || (0..3).flat_map(|at| storages.map(|from| storages.map(|to| (at, from, to)))).flatten();
    for (at, from, to) in all() {
        let settings =
            json!({ "storage": from, "dead_letter": { "topic": format!("dead-{to}-{at}"), "max_deliver": 2 } });
        let topic = format!("t-{from}-{to}-{at}");
        broker.create_topic_with(settings, &topic);
        broker.publish_numbers(&topic, 0..EACH);
        for group in ["one", "two"] {
            assert_eq!(fetch_and_nack(&broker, &topic, group, EACH).len(), EACH as usize);
            assert_eq!(fetch_and_nack(&broker, &topic, group, EACH).len(), EACH as usize);
        }
    }
    for (at, from, to) in all() {
        let topic = format!("t-{from}-{to}-{at}");
        for group in ["one", "two"] {
            broker.wait_for_group(&topic, group, "committed_offset", EACH);
            assert_eq!(broker.group(&topic, group)["dead"], EACH);
        }
    }
    for (at, to) in (0..3).flat_map(|at| storages.map(|to| (at, to))) {
        // Two topics with two groups each.
        let found = letters_of(&broker, &format!("dead-{to}-{at}"), 4 * EACH as usize);
        let ids: BTreeSet<_> = found.iter().map(|letter| (header(letter, "group"), header(letter, "id"))).collect();
        assert_eq!(ids.len(), found.len(), "a message came twice");
    }
}

#[test]
fn while_its_topic_is_missing_it_waits_and_holds_nobody_back() {
    let broker = Broker::start();
    create_mortal(&broker, "t", json!({ "topic": "dead", "max_deliver": 1 }), LONG_MS);
    broker.publish_numbers("t", 0..5);
    let mut member = broker.websocket("t", "?group=g&from_offset=0", &[]);
    assert_eq!(member.offsets(5), [0, 1, 2, 3, 4]);
    member.say(json!({ "nack": 2 }));
    member.acknowledge(&[0, 1, 3, 4]);
    broker.publish_numbers("t", 5..8);
    assert_eq!(member.offsets(3), [5, 6, 7]);
    member.acknowledge(&[5, 6, 7]);
    let stats = broker.group("t", "g");
    assert!(stats["committed_offset"] == 2 && stats["pending"] == 1 && stats["dead"] == 0, "{stats}");
    broker.create_topic("dead");
    let letter = letters_of(&broker, "dead", 1).remove(0);
    assert_eq!((&letter["payload"], header(&letter, "attempts")), (&json!("Mg=="), "1"));
    broker.wait_for_group("t", "g", "committed_offset", 8);
    // The same when it goes and comes back.
    broker.delete_topic("dead");
    broker.publish("t", b"8");
    assert_eq!(member.offsets(1), [8]);
    member.say(json!({ "nack": 8 }));
    broker.publish("t", b"9");
    assert_eq!(member.offsets(1), [9]);
    assert_eq!(broker.group("t", "g")["committed_offset"], 8);
    broker.create_topic("dead");
    assert_eq!(letters_of(&broker, "dead", 1)[0]["payload"], "OA==");
    broker.wait_for_group("t", "g", "committed_offset", 9);
}

#[test]
fn a_late_acknowledgement_counts_until_it_has_gone() {
    let broker = Broker::start();
    create_mortal(&broker, "t", json!({ "topic": "dead", "max_deliver": 1 }), 200);
    broker.publish_numbers("t", 0..2);
    let mut member = broker.websocket("t", "?group=g&from_offset=0&max_in_flight=1", &[]);
    // The next one comes when the time of the first is over.
    assert_eq!(member.offsets(2), [0, 1]);
    member.acknowledge(&[0]);
    broker.wait_for_group("t", "g", "committed_offset", 1);
    member.say(json!({ "nack": 1 }));
    broker.create_topic("dead");
    assert_eq!(letters_of(&broker, "dead", 1)[0]["payload"], "MQ==", "the acknowledged one is no dead letter");
    broker.wait_for_group("t", "g", "committed_offset", 2);
    assert_eq!(broker.group("t", "g")["dead"], 1);
}

#[test]
fn of_a_deleted_topic_or_group_nothing_comes_any_more() {
    let broker = Setup::new().logged().start();
    for storage in ["memory", "wal"] {
        let settings = json!({ "storage": storage, "dead_letter": { "topic": "dead", "max_deliver": 1 } });
        for is_group in [false, true] {
            broker.create_topic_with(settings.clone(), "t");
            broker.publish("t", b"before");
            assert_eq!(fetch_and_nack(&broker, "t", "g", 1), [0]);
            wait_until("it waits for its topic", || broker.group("t", "g")["redelivering"] == 0);
            if is_group {
                broker.request("DELETE", "/topics/t/groups/g", &[], b"").expect(200);
            } else {
                broker.delete_topic("t");
                broker.create_topic_with(settings.clone(), "t");
            }
            broker.create_topic("dead");
            broker.publish("t", b"after");
            let count = if is_group { 2 } else { 1 };
            assert_eq!(fetch_and_nack(&broker, "t", "g", 5).len(), count);
            letters_of(&broker, "dead", count);
            broker.wait_for_group("t", "g", "committed_offset", count as u64);
            broker.delete_topic("t");
            broker.delete_topic("dead");
        }
    }
}

#[test]
fn one_that_dies_again_tells_of_its_last_death() {
    let broker = Broker::start();
    create_mortal(&broker, "t", json!({ "topic": "dead", "max_deliver": 2 }), LONG_MS);
    create_mortal(&broker, "dead", json!({ "topic": "t", "max_deliver": 1 }), LONG_MS);
    broker.post("/topics/t/publish", &json!({ "payload": "eA==", "headers": { "own": "x" } })).expect(202);
    for _ in 0..2 {
        assert_eq!(fetch_and_nack(&broker, "t", "g", 1), [0]);
    }
    letters_of(&broker, "dead", 1);
    assert_eq!(fetch_and_nack(&broker, "dead", "h", 1), [0]);
    let letter = letters_of(&broker, "t", 2).remove(1);
    let told = ["topic", "group", "attempts"].map(|name| header(&letter, name));
    assert_eq!((told, &letter["headers"]["own"]), (["dead", "h", "1"], &json!("x")));
    let text = broker.get("/topics/t/messages?from_offset=1").expect(200).text();
    assert_eq!(text.matches("ringmain-dead-topic").count(), 1, "{text}");
}
