//! Promise: when a write of the log fails, whoever waits is told that the outcome is unknown, nothing more is written, reads go on, the broker
//! is not ready and says why; and the next start has all that was answered.

use crate::broker::{Broker, topic_path};
use crate::deadline::wait_until;
use crate::stored_directory::{BLOCK, DataDirectory};
use crate::wal_disks::{Disk, FileSystem, in_own_mounts};
use serde_json::json;
use std::fs;

/// Whether both slots are there and all segments that are made ahead.
fn is_at_rest(data: &DataDirectory) -> bool {
    let is_preparing = data.files().iter().any(|path| path.extension().is_some_and(|name| name == "preparing"));
    data.marked(b"RMSLOT\0\0").len() == 2 && data.marked(b"RMLOGSEG").len() >= 4 && !is_preparing
}

/// Ranges of the log in which nothing is written yet.
fn free_ranges(data: &DataDirectory) -> Vec<(std::path::PathBuf, std::ops::Range<u64>)> {
    let batches = data.batches();
    let of = |path: std::path::PathBuf| {
        let written =
            batches.iter().filter(|batch| batch.file == path).map(|batch| batch.position + batch.length).max();
        let free = written.unwrap_or(BLOCK).next_multiple_of(BLOCK);
        let bytes = fs::metadata(&path).unwrap().len();
        (path, free..bytes)
    };
    data.marked(b"RMLOGSEG").into_iter().map(of).collect()
}

fn expect_reads(broker: &Broker, numbers: u64) {
    let everything = broker.everything("t", 0);
    let expected: Vec<_> = (0..numbers).map(|number| (number, number.to_string().into_bytes())).collect();
    assert_eq!(everything.messages, expected);
}

#[test]
fn a_failed_write_is_told_and_poisons() {
    if !in_own_mounts("wal_disk_fails::a_failed_write_is_told_and_poisons") {
        return;
    }
    let disk = Disk::new(FileSystem::Ext4, 64 << 20);
    let data = DataDirectory::at(&disk.path().join("data"));
    let broker = data.start();
    broker.create_logged_topic("t");
    broker.publish_numbers("t", 0..50);
    broker.group_post("t", "g", "fetch", json!({ "max": 10, "from_offset": 0 }));
    broker.group_post("t", "g", "ack", json!({ "offsets": [0, 1, 2, 3] }));
    wait_until("both slots are written and nothing is being made", || is_at_rest(&data));
    broker.get("/health/ready").expect(200);
    let ballast = disk.break_under(&free_ranges(&data));

    let unknown = broker.request("POST", &topic_path("t", "/publish"), &[], b"50");
    unknown.expect_error(500, "outcome_unknown");
    let refused = broker.request("POST", &topic_path("t", "/publish"), &[], b"51");
    assert!(refused.status >= 500, "{refused:?}");
    refused.expect_envelope_of_error();
    assert_ne!(refused.json()["code"], "outcome_unknown", "nothing was done, and that is known");
    expect_reads(&broker, 50);
    let ready = broker.get("/health/ready").expect(503);
    assert!(ready.text().contains("shard") && ready.text().contains('0'), "{}", ready.text());
    broker.get("/health").expect(200);
    wait_until("the log says so", || broker.log().contains("ERROR"));
    // Groups go on giving out; what is acknowledged is not durable, and says so.
    let page = broker.group_post("t", "g", "fetch", json!({ "max": 2 }));
    assert_eq!(crate::plenty::offsets(&page), [10, 11]);
    let ack = broker.post("/topics/t/groups/g/ack", &json!({ "offset": 10 }));
    assert!(ack.status >= 500, "an answered acknowledgement would be durable: {ack:?}");
    let delete = broker.request("DELETE", "/topics/t", &[], b"");
    assert!(delete.status >= 500, "{delete:?}");
    let create = broker.post("/topics", &json!({ "name": "new", "storage": "wal" }));
    assert!(create.status >= 500, "{create:?}");
    broker.create_topic_with(json!({ "storage": "memory" }), "memory");
    broker.publish("memory", b"x");
    expect_reads(&broker, 50);

    // A person makes the disk good again. Only a new start believes it.
    fs::remove_file(ballast).unwrap();
    broker.get("/health/ready").expect(503);
    let refused = broker.request("POST", &topic_path("t", "/publish"), &[], b"52");
    assert!(refused.status >= 500, "{refused:?}");
    drop(broker);
    let broker = data.start();
    broker.get("/health/ready").expect(200);
    expect_reads(&broker, broker.everything("t", 0).messages.len() as u64);
    let count = broker.everything("t", 0).messages.len() as u64;
    assert!((50..=51).contains(&count), "{count}");
    assert_eq!(broker.group("t", "g")["committed_offset"], 4);
    broker.publish_numbers("t", count..count + 5);
    expect_reads(&broker, count + 5);
}

#[test]
fn a_poisoned_broker_ends_in_order() {
    if !in_own_mounts("wal_disk_fails::a_poisoned_broker_ends_in_order") {
        return;
    }
    let disk = Disk::new(FileSystem::Ext4, 64 << 20);
    let data = DataDirectory::at(&disk.path().join("data"));
    let mut broker = data.start();
    broker.create_logged_topic("t");
    broker.publish_numbers("t", 0..5);
    wait_until("both slots are written and nothing is being made", || is_at_rest(&data));
    let _ballast = disk.break_under(&free_ranges(&data));
    broker.request("POST", &topic_path("t", "/publish"), &[], b"x").expect_error(500, "outcome_unknown");
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    stream.messages(5);
    broker.terminate();
    broker.wait_for_exit();
    assert!(!broker.log().contains("panicked"), "{}", broker.log());
}
