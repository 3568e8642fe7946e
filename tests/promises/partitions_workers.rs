//! Promise: workers fetch from all partitions of a topic as from one, acknowledge by ids, and miss and wait for nothing.

use crate::broker::{Broker, Setup};
use crate::deadline::{LIMIT, wait_until};
use crate::partitions::offsets_by_partition;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

fn messages(fetched: &Value) -> Vec<Value> {
    fetched["messages"].as_array().unwrap().clone()
}

fn ids(messages: &[Value]) -> Vec<Value> {
    messages.iter().map(|message| message["id"].clone()).collect()
}

#[test]
fn a_worker_gets_everything_and_acknowledges_by_ids() {
    for shards in [1, 2, 4] {
        let broker = Setup::new().flag("--shards", shards).start();
        for count in [2, 3, 64] {
            let topic = format!("t{count}");
            broker.create_partitions(&topic, count, json!({}));
            let used: Vec<u32> = [0, 1, count / 2, count - 1].into_iter().collect();
            for partition in &used {
                broker.publish_in(&topic, (*partition, count), 3);
            }
            let mut got = Vec::new();
            loop {
                let fetched = broker.group_post(&topic, "g", "fetch", json!({ "max": 2, "from_offset": 0 }));
                let given = messages(&fetched);
                if given.is_empty() {
                    break;
                }
                assert!(given.iter().all(|message| message["partition"] == fetched["partition"]), "{fetched}");
                let done = broker.group_post(&topic, "g", "ack", json!({ "ids": ids(&given) }));
                assert_eq!(done["acknowledged"], given.len());
                got.extend(given);
            }
            let mut expected: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for partition in used {
                let offsets = expected.entry(partition.into()).or_default();
                let next = offsets.len() as u64;
                offsets.extend(next..next + 3);
            }
            assert_eq!(offsets_by_partition(&got), expected, "in order in each partition");
            let group = broker.group(&topic, "g");
            assert!(group["lag"] == 0 && group["pending"] == 0, "{group}");
        }
    }
}

#[test]
fn no_partition_is_left_out_by_one_that_always_has_messages() {
    let broker = Broker::start();
    broker.create_partitions("t", 4, json!({}));
    for partition in 0..4 {
        broker.publish_in("t", (partition, 4), 20);
    }
    let mut seen = BTreeMap::new();
    let mut connection = broker.connect();
    for _ in 0..8 {
        let body = json!({ "from_offset": 0 }).to_string();
        connection.send_request("POST", "/topics/t/groups/g/fetch", &[], body.as_bytes());
        let fetched = connection.response_to("POST").expect(200).data();
        *seen.entry(fetched["partition"].as_u64().unwrap()).or_insert(0) += 1;
    }
    assert_eq!(seen, BTreeMap::from([(0, 2), (1, 2), (2, 2), (3, 2)]), "a connection goes round");
}

#[test]
fn a_waiting_worker_is_woken_by_any_partition() {
    let broker = Broker::start();
    broker.create_partitions("t", 5, json!({}));
    assert!(messages(&broker.group_post("t", "g", "fetch", json!({}))).is_empty());
    assert!(messages(&broker.group_post("t", "g", "fetch", json!({ "wait_ms": 50 }))).is_empty());
    let mut connection = broker.connect();
    for partition in [4, 0, 2, 3, 1, 1, 4] {
        let body = json!({ "max": 10, "wait_ms": 30_000 }).to_string();
        connection.send_request("POST", "/topics/t/groups/g/fetch", &[], body.as_bytes());
        broker.publish_in("t", (partition, 5), 1);
        let fetched = connection.response_to("POST").expect(200).data();
        let given = messages(&fetched);
        assert!(given.len() == 1 && fetched["partition"] == partition, "{fetched}");
        let acks = json!({ "ids": ids(&given), "epoch": fetched["epoch"] });
        assert_eq!(broker.group_post("t", "g", "ack", acks)["acknowledged"], 1);
    }
    assert_eq!(broker.group("t", "g")["lag"], 0);
}

#[test]
fn several_waiting_workers_share_what_comes() {
    let broker = Broker::start();
    broker.create_partitions("t", 3, json!({}));
    broker.group_post("t", "g", "fetch", json!({}));
    thread::scope(|scope| {
        let work = || {
            let (mut connection, mut got) = (broker.connect(), 0);
            let mut ask = |verb: &str, body: &Value| {
                let target = format!("/topics/t/groups/g/{verb}");
                connection.send_request("POST", &target, &[], body.to_string().as_bytes());
                connection.response_to("POST").expect(200).data()
            };
            loop {
                let fetched = ask("fetch", &json!({ "max": 7, "wait_ms": 1_000 }));
                let given = messages(&fetched);
                if given.is_empty() && broker.group("t", "g")["lag"] == 0 {
                    return got;
                }
                got += ask("ack", &json!({ "ids": ids(&given) }))["acknowledged"].as_u64().unwrap();
            }
        };
        // It keeps them from ending before they have seen anything.
        broker.publish_in("t", (0, 3), 1);
        let workers: Vec<_> = (0..6).map(|_| scope.spawn(work)).collect();
        for round in 0..10 {
            broker.publish_in("t", (round % 3, 3), 10);
        }
        let sum: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        // On a slow machine they may have ended in a pause of the publisher.
        assert_eq!(sum + broker.group("t", "g")["lag"].as_u64().unwrap(), 101, "each message was acknowledged once");
    });
}

#[test]
fn a_new_group_begins_in_every_partition_with_the_first_answer() {
    for storage in ["memory", "wal"] {
        let broker = Setup::new().logged().start();
        broker.create_partitions("t", 4, json!({ "storage": storage }));
        for partition in 0..4 {
            broker.publish_in("t", (partition, 4), 2);
        }
        // It exists in one partition and has messages there.
        broker.group_post("t", "g", "fetch", json!({ "partition": 3, "from_offset": 0 }));
        let first = broker.group_post("t", "g", "fetch", json!({ "max": 10 }));
        assert!(first["partition"] == 3, "{first}");
        for partition in 0..4 {
            broker.publish_in("t", (partition, 4), 1);
        }
        let mut got = Vec::new();
        wait_until("all that was published since is there", || {
            got.extend(messages(&broker.group_post("t", "g", "fetch", json!({ "max": 10 }))));
            got.len() >= 4
        });
        assert_eq!(offsets_by_partition(&got), (0..4).map(|partition| (partition, vec![2])).collect());
    }
}

#[test]
fn a_group_that_was_deleted_begins_again() {
    let broker = Broker::start();
    broker.create_partitions("t", 3, json!({}));
    let mut connection = broker.connect();
    let mut fetch = |body: Value| {
        connection.send_request("POST", "/topics/t/groups/g/fetch", &[], body.to_string().as_bytes());
        connection.response_to("POST").expect(200).data()
    };
    for _ in 0..3 {
        assert!(messages(&fetch(json!({}))).is_empty());
        for partition in 0..3 {
            broker.publish_in("t", (partition, 3), 1);
        }
        let mut got = 0;
        while got < 3 {
            got += messages(&fetch(json!({ "max": 5, "wait_ms": 30_000 }))).len();
        }
        broker.request("DELETE", "/topics/t/groups/g", &[], b"").expect(200);
    }
}

#[test]
fn what_is_given_back_comes_again() {
    let broker = Broker::start();
    broker.create_partitions("t", 3, json!({}));
    for partition in 0..3 {
        broker.publish_in("t", (partition, 3), 1);
    }
    let mut got = Vec::new();
    for _ in 0..3 {
        got.extend(messages(&broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }))));
    }
    assert_eq!(broker.group_post("t", "g", "nack", json!({ "ids": ids(&got) }))["acknowledged"], 3);
    let again: Vec<_> =
        (0..3).flat_map(|_| messages(&broker.group_post("t", "g", "fetch", json!({ "wait_ms": 30_000 })))).collect();
    assert_eq!(offsets_by_partition(&again), offsets_by_partition(&got));
    assert!(again.iter().all(|message| message["attempt"] == 2), "{again:?}");
    let by_offset = json!({ "offsets": [0], "partition": 1 });
    assert_eq!(broker.group_post("t", "g", "ack", by_offset)["acknowledged"], 1);
    let group = broker.group("t", "g");
    assert!(group["lag"] == 2 && group["partitions"][1]["lag"] == 0, "{group}");
}

#[test]
fn ids_that_name_nothing_here_are_told() {
    let broker = Broker::start();
    for topic in ["t", "other"] {
        broker.create_partitions(topic, 3, json!({}));
        broker.publish_in(topic, (1, 3), 1);
        broker.group_post(topic, "g", "fetch", json!({ "from_offset": 0 }));
    }
    let id = broker.page_of("t", 1, "")[0]["id"].as_str().unwrap().to_owned();
    let foreign = broker.page_of("other", 1, "")[0]["id"].clone();
    let life = id.split('-').next().unwrap();
    let bad = [
        json!({ "ids": [id, foreign] }),
        json!({ "ids": foreign }),
        json!({ "ids": format!("{life}-3-0") }),
        json!({ "ids": format!("{life}-1") }),
        json!({ "ids": format!("{life}-1-x") }),
        json!({ "ids": format!("{life}-1-+1") }),
        json!({ "ids": format!("{life}--1") }),
        json!({ "ids": "" }),
        json!({ "ids": 7 }),
        json!({ "ids": [7] }),
        json!({ "ids": id, "offsets": [0] }),
        json!({ "offsets": [0] }),
        json!({ "offsets": [0], "partition": 3 }),
        json!({ "ids": [format!("{life}-0-0"), format!("{life}-1-0")], "epoch": 1 }),
        json!({}),
    ];
    for body in bad {
        for verb in ["ack", "nack"] {
            broker.post(&format!("/topics/t/groups/g/{verb}"), &body).expect(400).expect_envelope_of_error();
        }
    }
    assert_eq!(broker.group("t", "g")["pending"], 1, "nothing was acknowledged");
    assert_eq!(broker.group_post("t", "g", "ack", json!({ "ids": id }))["acknowledged"], 1);
    assert_eq!(broker.group_post("t", "g", "ack", json!({ "ids": [] }))["acknowledged"], 0);
    broker.post("/topics/none/groups/g/ack", &json!({ "ids": id })).expect_error(404, "topic_not_found");
    broker.post("/topics/t/groups/none/ack", &json!({ "ids": id })).expect_error(404, "group_not_found");
}

#[test]
fn waiting_workers_end_with_their_group_their_topic_and_the_broker() {
    let mut broker = Broker::start();
    let fetch = |broker: &Broker| broker.post("/topics/t/groups/g/fetch", &json!({ "wait_ms": 60_000 }));
    for (what, path) in [("group_not_found", "/topics/t/groups/g"), ("topic_not_found", "/topics/t")] {
        broker.create_partitions("t", 3, json!({}));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| fetch(&broker));
            wait_until("the fetch ends", || {
                broker.request("DELETE", path, &[], b"");
                waiting.is_finished()
            });
            let answer = waiting.join().unwrap().expect(404);
            assert!(what == "group_not_found" || answer.json()["code"] == what, "{answer:?}");
        });
        broker.request("DELETE", "/topics/t", &[], b"");
    }
    broker.create_partitions("t", 3, json!({}));
    broker.group_post("t", "g", "fetch", json!({}));
    let mut connection = broker.connect();
    connection.send_request("POST", "/topics/t/groups/g/fetch", &[], br#"{"wait_ms":60000}"#);
    // Its looks have come when the group is there again after it was deleted; a message shows that it waits.
    broker.publish_in("t", (1, 3), 1);
    assert_eq!(messages(&connection.response_to("POST").expect(200).data()).len(), 1);
    // The first shows that the connection is served; the second waits.
    let two = [json!({}), json!({ "wait_ms": 60_000 })];
    connection.send(&two.map(|wish| broker.json_request_to("/topics/t/groups/g/fetch", &wish)).concat());
    connection.response_to("POST").expect(200);
    broker.terminate();
    assert!(messages(&connection.response_to("POST").expect(200).data()).is_empty());
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn a_worker_that_hangs_up_while_it_waits_loses_nothing() {
    let broker = Broker::start();
    broker.create_partitions("t", 3, json!({ "ack_wait_ms": 200 }));
    broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
    for _ in 0..5 {
        let mut connection = broker.connect();
        connection.send_request("POST", "/topics/t/groups/g/fetch", &[], br#"{"wait_ms":60000}"#);
    }
    for partition in 0..3 {
        broker.publish_in("t", (partition, 3), 1);
    }
    let mut got = Vec::new();
    wait_until("all three are there", || {
        let given = messages(&broker.group_post("t", "g", "fetch", json!({ "max": 5, "wait_ms": 1_000 })));
        broker.group_post("t", "g", "ack", json!({ "ids": ids(&given) }));
        got.extend(given);
        broker.group("t", "g")["lag"] == 0
    });
    assert_eq!(offsets_by_partition(&got), (0..3).map(|partition| (partition, vec![0])).collect());
}

#[test]
fn each_of_many_waiting_workers_waits_for_all_partitions_and_none_is_refused() {
    const WORKERS: usize = 200;
    const MESSAGES: u64 = 50;
    let broker = Setup::new().flag("--cores", 2).flag("--shards", 2).start();
    broker.create_partitions("t", 16, json!({ "ack_wait_ms": 600_000 }));
    broker.group_post("t", "g", "fetch", json!({}));
    let (given, got) = mpsc::channel();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            let (given, broker, stop) = (given.clone(), &broker, &stop);
            scope.spawn(move || {
                let mut connection = broker.connect();
                while !stop.load(Ordering::Relaxed) {
                    connection.send_request("POST", "/topics/t/groups/g/fetch", &[], br#"{"wait_ms":2000}"#);
                    let answer = connection.response_to("POST");
                    let fetched = if answer.status == 200 { messages(&answer.data()) } else { vec![answer.json()] };
                    fetched.into_iter().for_each(|message| given.send(message).unwrap());
                }
            });
        }
        for number in 0..MESSAGES {
            broker.publish_in("t", (u32::try_from(number % 16).unwrap(), 16), 1);
        }
        let each: Vec<_> = (0..MESSAGES).map(|_| got.recv_timeout(LIMIT)).collect();
        stop.store(true, Ordering::Relaxed);
        let each: Vec<_> = each.into_iter().map(Result::unwrap).collect();
        let expected = (0..16).map(|partition| (partition, (0..if partition < 2 { 4 } else { 3 }).collect())).collect();
        assert_eq!(offsets_by_partition(&each), expected, "each once");
    });
    assert!(got.try_recv().is_err(), "nothing came twice");
}

#[test]
fn workers_that_find_the_way_full_wait_all_the_same() {
    // As many as 128 fetches may wait on the way to the other core, where 32 of the partitions are.
    let broker = Setup::new().flag("--cores", 2).flag("--shards", 2).flag("--lane-requests", 8).start();
    broker.create_partitions("t", 64, json!({}));
    let wait = |group: &str, wait_ms: u64| {
        let mut connection = broker.connect();
        let body = json!({ "wait_ms": wait_ms }).to_string();
        connection.send_request("POST", &format!("/topics/t/groups/{group}/fetch"), &[], body.as_bytes());
        connection
    };
    let _others: Vec<_> = (0..20).map(|_| wait("other", 60_000)).collect();
    // One whose time is over before there was room to look is refused: longer than the machine may hold the broker up.
    let mut found = wait("g", 4_000);
    assert!(messages(&found.response_to("POST").expect(200).data()).is_empty());
    for partition in [0, 1, 62, 63] {
        let mut waiting = wait("g", 60_000);
        let target = format!("/topics/t/publish?partition={partition}");
        wait_until("it is published", || broker.request("POST", &target, &[], b"x").status == 202);
        let fetched = waiting.response_to("POST").expect(200).data();
        assert!(messages(&fetched).len() == 1 && fetched["partition"] == partition, "{fetched}");
    }
}

#[test]
fn what_wakes_a_worker_that_has_gone_comes_to_another() {
    let broker = Setup::new().flag("--cores", 2).flag("--shards", 2).start();
    broker.create_partitions("t", 4, json!({ "ack_wait_ms": 200 }));
    broker.group_post("t", "g", "fetch", json!({}));
    for round in 0..10 {
        let ask = || {
            let mut connection = broker.connect();
            connection.send_request("POST", "/topics/t/groups/g/fetch", &[], br#"{"wait_ms":60000}"#);
            connection
        };
        let gone: Vec<_> = (0..5).map(|_| ask()).collect();
        let mut stays = ask();
        // They are woken and hang up at the same time.
        broker.publish_in("t", (round % 4, 4), 1);
        drop(gone);
        broker.publish_in("t", ((round + 1) % 4, 4), 1);
        let mut given = messages(&stays.response_to("POST").expect(200).data());
        assert!(!given.is_empty());
        wait_until("all is acknowledged", || {
            broker.group_post("t", "g", "ack", json!({ "ids": ids(&given) }));
            given = messages(&broker.group_post("t", "g", "fetch", json!({ "wait_ms": 20 })));
            given.is_empty() && broker.group("t", "g")["lag"] == 0
        });
    }
}
