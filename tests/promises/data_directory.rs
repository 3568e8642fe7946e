//! Promise: what a logged topic answered for is there after the process was killed, on any number of cores; a data directory is
//! one process's and keeps its number of shards; memory topics beside it end with the process.

use crate::broker::{Broker, Folder, Setup, program};
use std::process::Output;

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn logged(folder: &Folder) -> Setup {
    Setup::new().variable("STORAGE_MODE", "wal").variable("WAL_DIR", folder.path().join("data").display())
}

fn refused(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = program(folder, &["timeout", "--signal=KILL", "30"]);
    let output = command.args(["serve", "--port", "0", "--wal-dir", "data"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn payloads(broker: &Broker, topic: &str) -> Vec<serde_json::Value> {
    let page = broker.get(&format!("/topics/{topic}/messages?limit=10000")).expect(200).data();
    page["messages"].as_array().unwrap().iter().map(|message| message["payload"].clone()).collect()
}

#[test]
fn what_was_answered_survives_being_killed_on_any_number_of_cores() {
    let folder = Folder::new();
    let mut expected = Vec::new();
    for cores in [2, 1, 3] {
        // The directory has the four shards of its first start.
        let mut setup = logged(&folder).flag("--cores", cores);
        if expected.is_empty() {
            setup = setup.flag("--shards", 4);
        } else {
            // Nobody asks for a number, whatever the suite's environment says: the directory's counts.
            setup = setup.variable("RINGMAIN_SHARDS", "");
        }
        let broker = setup.start();
        for topic in 0..6 {
            let name = format!("t{topic}");
            if expected.len() < 6 {
                broker.create_topic(&name);
                expected.push(Vec::new());
            }
            assert_eq!(payloads(&broker, &name), expected[topic], "{name} on {cores} cores");
            let before = expected[topic].len() as u64;
            broker.publish_numbers(&name, before..before + 20);
            expected[topic] = payloads(&broker, &name);
            assert_eq!(expected[topic].len() as u64, before + 20);
        }
        // Dropping it kills it.
    }
}

#[test]
fn what_was_published_unwatched_is_there_after_an_orderly_end() {
    let folder = Folder::new();
    let mut broker = logged(&folder).start();
    broker.create_topic("t");
    let mut connection = broker.connect();
    for ack in ["none", "memory", "durable", "none"] {
        for number in 0..50 {
            connection.send_request("POST", &format!("/topics/t/publish?ack={ack}"), &[], &[number]);
            connection.response_to("POST").expect(202);
        }
    }
    broker.terminate();
    assert!(broker.wait_for_exit().success());
    assert_eq!(logged(&folder).start().stats("t")["message_count"], 200);
}

#[test]
fn a_directory_that_cannot_be_used_refuses_with_the_cure() {
    let folder = Folder::new();
    let broker = logged(&folder).flag("--shards", 2).start();
    let told = refused(&folder, &[]).stderr;
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains(&format!("process {}", broker.process_id())), "{told}");
    drop(broker);
    let told = refused(&folder, &["--shards", "3"]).stderr;
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("RINGMAIN_SHARDS") && told.contains('2') && told.contains('3'), "{told}");
}

#[test]
fn each_topic_may_choose_its_storage_where_there_is_a_directory() {
    let folder = Folder::new();
    let broker = logged(&folder).start();
    broker.create_topic("kept");
    broker.request("POST", "/topics", &[JSON], br#"{"name":"forgotten","storage":"memory"}"#).expect(201);
    assert_eq!(
        (&broker.stats("kept")["storage"], &broker.stats("forgotten")["storage"]),
        (&"wal".into(), &"memory".into())
    );
    broker.publish("forgotten", b"x");
    broker.get("/health/ready").expect(200);
    drop(broker);
    // A directory that is named is opened, and topics are still in memory unless they say.
    let broker = Setup::new().variable("WAL_DIR", folder.path().join("data").display()).start();
    broker.stats("kept");
    broker.get("/topics/forgotten").expect_error(404, "topic_not_found");
    broker.create_topic("forgotten");
    assert_eq!(broker.stats("forgotten")["storage"], "memory");
    broker.request("POST", "/topics", &[JSON], br#"{"name":"other","storage":"wal"}"#).expect(201);
    let metrics = String::from_utf8(broker.get("/metrics").expect(200).body).unwrap();
    for name in ["ringmain_wal_commits_total{shard=\"0\"}", "ringmain_wal_state{shard=\"0\",state=\"open\"} 1"] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}

#[test]
fn without_a_directory_no_topic_is_logged() {
    let broker = Broker::start();
    let answer = broker.request("POST", "/topics", &[JSON], br#"{"name":"a","storage":"wal"}"#);
    let told = answer.expect_error(400, "invalid_config").json();
    assert!(told["message"].as_str().unwrap().contains("WAL_DIR"), "{told}");
    let metrics = String::from_utf8(broker.get("/metrics").expect(200).body).unwrap();
    assert!(!metrics.contains("ringmain_wal"), "{metrics}");
}
