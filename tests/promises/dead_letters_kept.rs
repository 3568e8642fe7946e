//! Promise: a dead letter from one stored topic to another outlives kills at any moment: it is never lost, and never there twice.

use crate::broker::{Broker, Setup, topic_path};
use crate::chance::{Chance, scaled};
use crate::dead_letters::{LONG_MS, create_mortal, fetch_and_nack, header, letters_of};
use crate::deadline::wait_until;
use crate::http::Connection;
use crate::plenty::offsets;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Messages that are to die, in each of two topics.
const MESSAGES: u64 = 200;
const KILLS: usize = 6;

#[test]
fn what_waits_for_its_topic_goes_there_after_a_kill_without_a_worker() {
    let mut broker = Setup::new().logged().start();
    create_mortal(&broker, "t", json!({ "topic": "dead", "max_deliver": 2 }), LONG_MS);
    broker.publish_numbers("t", 0..3);
    assert_eq!(fetch_and_nack(&broker, "t", "g", 1), [0]);
    assert_eq!(fetch_and_nack(&broker, "t", "g", 1), [0]);
    assert_eq!(offsets(&broker.group_post("t", "g", "fetch", json!({}))), [1]);
    // The answered acknowledgement takes all that was before it to the disk.
    broker.group_post("t", "g", "ack", json!({ "offset": 1 }));
    broker.kill();
    broker.restart();
    broker.create_topic("dead");
    let letter = letters_of(&broker, "dead", 1).remove(0);
    assert_eq!((&letter["payload"], header(&letter, "attempts")), (&json!("MA=="), "2"));
    broker.wait_for_group("t", "g", "committed_offset", 2);
}

/// One request over a connection that a kill may end; the data of the answer.
fn ask(connection: &mut Connection, address: &str, verb: &str, body: &Value) -> Option<Value> {
    let (target, body) = (topic_path(address, &format!("/groups/g/{verb}")), body.to_string());
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    if !connection.try_send((head + &body).as_bytes()) {
        return None;
    }
    Some(connection.try_response_to("POST")?.expect(200).data())
}

/// Gives back everything of the topics in turn, until all is dead or the broker is killed.
fn give_back(broker: &Broker, answers: &AtomicUsize, chance: &mut Chance) -> bool {
    let mut connection = broker.connect();
    let mut left = [true; 2];
    while left.contains(&true) {
        for (at, topic) in ["t0", "t1"].into_iter().enumerate() {
            let body = json!({ "max": 1 + chance.below(20), "from_offset": 0, "wait_ms": 50 });
            let Some(fetched) = ask(&mut connection, topic, "fetch", &body) else { return false };
            let fetched = offsets(&fetched);
            if !fetched.is_empty() && ask(&mut connection, topic, "nack", &json!({ "offsets": fetched })).is_none() {
                return false;
            }
            answers.fetch_add(1, Ordering::Relaxed);
            left[at] = !fetched.is_empty() || broker_lag(&mut connection, topic) != Some(0);
        }
    }
    true
}

/// How far the group is behind; nothing when the broker is gone.
fn broker_lag(connection: &mut Connection, topic: &str) -> Option<u64> {
    let target = topic_path(topic, "/groups/g");
    if !connection.try_send(format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()) {
        return None;
    }
    connection.try_response_to("GET")?.expect(200).data()["lag"].as_u64()
}

#[test]
fn kills_at_any_moment_lose_none_and_make_none_twice() {
    let mut chance = Chance::for_test();
    let mut broker = Setup::new().logged().variable("RINGMAIN_CORES", 2).start();
    broker.create_topic("dead");
    for topic in ["t0", "t1"] {
        // What was fetched by a worker of a former life comes again at once: nobody holds it any more.
        create_mortal(&broker, topic, json!({ "topic": "dead", "max_deliver": 2 }), LONG_MS);
        broker.publish_numbers(topic, 0..MESSAGES);
    }
    for _ in 0..scaled(KILLS) {
        let (answers, kill_after) = (AtomicUsize::new(0), 1 + chance.below(25));
        let is_done = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                wait_until("there was enough to do", || {
                    answers.load(Ordering::Relaxed) >= kill_after || is_done.load(Ordering::Relaxed) > 0
                });
                broker.kill();
            });
            give_back(&broker, &answers, &mut chance);
            is_done.store(1, Ordering::Relaxed);
        });
        broker.restart();
    }
    assert!(give_back(&broker, &AtomicUsize::new(0), &mut chance));
    let found = letters_of(&broker, "dead", 2 * MESSAGES as usize);
    let ids: BTreeSet<_> = found.iter().map(|letter| header(letter, "id")).collect();
    assert_eq!(ids.len(), found.len(), "a message came twice");
    // And once more, now that nothing is on its way.
    broker.kill();
    broker.restart();
    letters_of(&broker, "dead", 2 * MESSAGES as usize);
    for topic in ["t0", "t1"] {
        assert_eq!(broker.group(topic, "g")["committed_offset"], MESSAGES);
    }
}
