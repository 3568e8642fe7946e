//! Promise: messages of one key stay together in order, others go round; a batch is stored whole in one partition, or divided when its
//! publisher says so.

use crate::broker::{Broker, Setup, topic_path};
use ringmain_model::PartitionRef;
use serde_json::json;

const PARTITIONS: u32 = 4;
const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");

fn number_of(key: &str) -> u64 {
    PartitionRef::number_of_key(key.as_bytes(), PARTITIONS).into()
}

fn publish(broker: &Broker, query: &str, headers: &[(&str, &str)], body: &[u8]) -> crate::http::Response {
    broker.request("POST", &topic_path("t", &format!("/publish{query}")), headers, body)
}

fn lines(keys: &[Option<&str>]) -> Vec<u8> {
    let line = |key: &Option<&str>| match key {
        Some(key) => json!({ "payload": "bQ==", "key": key }).to_string() + "\n",
        None => json!({ "payload": "bQ==" }).to_string() + "\n",
    };
    keys.iter().map(line).collect::<String>().into_bytes()
}

/// Keys of as many different partitions.
fn keys(count: usize) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for key in (0..).map(|number| format!("key-{number}")) {
        if keys.len() == count {
            break;
        }
        if keys.iter().all(|other| number_of(other) != number_of(&key)) {
            keys.push(key);
        }
    }
    keys
}

fn stored(broker: &Broker) -> Vec<u64> {
    let stats = broker.stats("t");
    let parts = stats["partition_stats"].as_array().unwrap();
    parts.iter().map(|part| part["message_count"].as_u64().unwrap()).collect()
}

#[test]
fn a_key_stays_in_its_partition() {
    let broker = Broker::start();
    broker.create_partitions("t", PARTITIONS, json!({}));
    for round in 0..5 {
        for key in keys(3) {
            let told = publish(&broker, "", &[("X-Key", &key)], b"m").expect(202).data();
            assert_eq!((&told["partition"], &told["offset"]), (&number_of(&key).into(), &round.into()));
        }
    }
    // In JSON, too.
    let key = &keys(1)[0];
    let body = json!({ "payload": "", "key": key }).to_string();
    let told = publish(&broker, "", &[("Content-Type", "application/json")], body.as_bytes()).expect(202).data();
    assert_eq!((&told["partition"], &told["offset"]), (&number_of(key).into(), &5.into()));
}

#[test]
fn what_has_no_key_goes_round_and_an_id_finds_its_first_again() {
    let broker = Setup::new().flag("--cores", 1).start();
    broker.create_partitions("t", PARTITIONS, json!({}));
    for _ in 0..8 {
        publish(&broker, "", &[], b"m").expect(202);
    }
    assert_eq!(stored(&broker), [2; 4]);
    let first = publish(&broker, "", &[("Idempotency-Key", "order-7")], b"m").expect(202).data();
    for _ in 0..5 {
        assert_eq!(publish(&broker, "", &[("Idempotency-Key", "order-7")], b"m").expect(202).data(), first);
    }
    assert_eq!(stored(&broker).iter().sum::<u64>(), 9);
}

#[test]
fn a_partition_may_be_named() {
    let broker = Broker::start();
    broker.create_partitions("t", PARTITIONS, json!({}));
    for partition in 0..PARTITIONS {
        let told = publish(&broker, &format!("?partition={partition}"), &[("X-Key", "k")], b"m").expect(202).data();
        assert_eq!((&told["partition"], &told["offset"]), (&partition.into(), &0.into()));
    }
    publish(&broker, "?partition=4", &[], b"m").expect_error(400, "invalid_request");
    publish(&broker, "?partition=x", &[], b"m").expect_error(400, "invalid_request");
    broker.create_topic("u");
    let target = |partition: u32| topic_path("u", &format!("/publish?partition={partition}"));
    let told = broker.request("POST", &target(0), &[], b"m").expect(202).data();
    assert_eq!(told.get("partition"), None, "a topic of one partition looks as ever");
    broker.request("POST", &target(1), &[], b"m").expect_error(400, "invalid_request");
}

#[test]
fn a_batch_stays_whole() {
    let broker = Broker::start();
    broker.create_partitions("t", PARTITIONS, json!({}));
    let keys = keys(2);
    let told = publish(&broker, "", &[LINES], &lines(&[None; 3])).expect(202).data();
    assert_eq!((&told["first_offset"], &told["last_offset"], &told["count"]), (&0.into(), &2.into(), &3.into()));
    assert!(told["partition"].as_u64().unwrap() < PARTITIONS.into());
    let before = stored(&broker);
    let told = publish(&broker, "", &[LINES], &lines(&[None, Some(&keys[0]), None])).expect(202).data();
    assert_eq!(told["partition"], number_of(&keys[0]));
    let spanning = lines(&[Some(&keys[0]), Some(&keys[1])]);
    let refused = publish(&broker, "", &[LINES], &spanning).expect_error(400, "invalid_request").json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("atomic=false") && message.contains("nothing of the batch was stored"), "{message}");
    assert_eq!(stored(&broker).iter().sum::<u64>(), before.iter().sum::<u64>() + 3);
}

#[test]
fn a_batch_is_divided_when_its_publisher_says_so() {
    let broker = Setup::new().logged().start();
    broker.create_partitions("t", PARTITIONS, json!({}));
    let keys = keys(3);
    let mixed: Vec<Option<&str>> = (0..12).map(|at| Some(keys[at % 3].as_str())).collect();
    let told = publish(&broker, "?atomic=false", &[LINES], &lines(&mixed)).expect(202).data();
    assert_eq!((&told["count"], &told["topic"]), (&12.into(), &"t".into()));
    let parts = told["partitions"].as_array().unwrap();
    let mut numbers: Vec<u64> = keys.iter().map(|key| number_of(key)).collect();
    numbers.sort_unstable();
    assert_eq!(parts.iter().map(|part| part["partition"].as_u64().unwrap()).collect::<Vec<_>>(), numbers);
    for part in parts {
        assert_eq!((&part["first_offset"], &part["last_offset"], &part["count"]), (&0.into(), &3.into(), &4.into()));
    }
    // What goes to one partition is told in the same way.
    let told = publish(&broker, "?atomic=false", &[LINES], &lines(&[Some(&keys[0])])).expect(202).data();
    assert_eq!(told["partitions"][0]["first_offset"], 4);
    publish(&broker, "?atomic=perhaps", &[LINES], &lines(&[None])).expect_error(400, "invalid_request");
    // One message is no batch.
    let told = publish(&broker, "?atomic=false&partition=3", &[], b"m").expect(202).data();
    assert!(told["partition"] == 3 && told["offset"].is_u64(), "{told}");
}

#[test]
fn a_batch_whose_messages_were_stored_in_part_says_so() {
    let broker = Broker::start();
    broker.create_topic("t");
    let line = |id: &str| json!({ "payload": "bQ==", "id": id }).to_string() + "\n";
    let both = (line("a") + &line("b")).into_bytes();
    let first = publish(&broker, "", &[LINES], line("a").as_bytes()).expect(202).data();
    assert_eq!(first.get("repeated"), None);
    broker.publish_numbers("t", 0..3);
    let told = publish(&broker, "", &[LINES], &both).expect(202).data();
    assert_eq!((&told["repeated"], &told["count"]), (&1.into(), &2.into()));
    let again = publish(&broker, "", &[LINES], &both).expect(202).data();
    assert_eq!(again.get("repeated"), None, "a whole batch that comes again gets its first answer: {again}");
}

#[test]
fn a_topic_that_is_made_again_while_a_body_comes_takes_nothing_for_its_old_partitions() {
    let broker = Broker::start();
    broker.create_partitions("t", 1, json!({}));
    let mut connection = broker.connect();
    connection.send(b"POST /topics/t/publish HTTP/1.1\r\nHost: localhost\r\nX-Key: k\r\nContent-Length: 4\r\n\r\nab");
    // Its head has been read when another request of the connection's core has been answered behind it.
    broker.delete_topic("t");
    broker.create_partitions("t", PARTITIONS, json!({}));
    connection.send(b"cd");
    let answer = connection.response_to("POST");
    // Should the head have come late, it found the new topic.
    let is_by_key = answer.status == 202 && answer.data()["partition"] == number_of("k");
    assert!(answer.status == 404 || is_by_key, "{}", answer.text());
}
