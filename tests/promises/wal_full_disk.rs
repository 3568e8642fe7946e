//! Promise: on a full disk publishes are answered 507 and nothing of them is stored; reads, group fetches, acknowledgements and deletes go
//! on; writing goes on by itself when there is room, without a restart; and the broker starts on a full disk.

use crate::broker::{Broker, topic_path};
use crate::deadline::wait_until;
use crate::http::Response;
use crate::stored_directory::DataDirectory;
use crate::wal_disks::{Disk, FileSystem, in_own_mounts};
use serde_json::json;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const MESSAGE_BYTES: usize = 60_000;

/// The log's first segments take 12 MiB of it.
const DISK_BYTES: u64 = 64 << 20;

fn payload(number: u64) -> Vec<u8> {
    let mut bytes = number.to_string().into_bytes();
    bytes.resize(MESSAGE_BYTES, b' ');
    bytes
}

fn publish(broker: &Broker, topic: &str, bytes: &[u8]) -> Response {
    broker.request("POST", &topic_path(topic, "/publish"), &[], bytes)
}

/// Publishes until the disk is full; gives how many messages the topic has then. Busy in between is no end.
fn fill_topic(broker: &Broker, topic: &str) -> u64 {
    let mut count = broker.stats(topic)["latest_offset"].as_i64().unwrap() as u64 + 1;
    let mut connection = broker.connect();
    wait_until("the disk is full", || {
        connection.send_request("POST", &topic_path(topic, "/publish"), &[], &payload(count));
        let answer = connection.response_to("POST");
        match answer.status {
            202 => assert_eq!(answer.data()["offset"], count),
            503 => return false,
            _ => {
                answer.expect_error(507, "storage_full");
                return true;
            }
        }
        count += 1;
        count > DISK_BYTES / MESSAGE_BYTES as u64 && panic!("more than the disk can hold was taken")
    });
    count
}

#[track_caller]
fn expect_whole(broker: &Broker, topic: &str, count: u64) {
    let everything = broker.everything(topic, 0);
    assert_eq!(everything.offsets(), (0..count).collect::<Vec<_>>());
    assert!(everything.messages.iter().all(|(offset, bytes)| *bytes == payload(*offset)));
    assert_eq!(broker.stats(topic)["latest_offset"], count - 1);
}

/// A broker on a disk with a topic `t` that has filled it, and a group with progress in it. Gives how many messages there are.
fn filled(file_system: FileSystem) -> (Disk, DataDirectory, Broker, PathBuf, u64) {
    let disk = Disk::new(file_system, DISK_BYTES);
    let data = DataDirectory::at(&disk.path().join("data"));
    let broker = data.start();
    broker.create_logged_topic("t");
    broker.create_logged_topic("other");
    publish(&broker, "t", &payload(0)).expect(202);
    publish(&broker, "other", &payload(0)).expect(202);
    broker.group_post("t", "g", "fetch", json!({ "max": 1, "from_offset": 0 }));
    wait_until("both slots are written", || data.marked(b"RMSLOT\0\0").len() == 2);
    let ballast = disk.fill();
    let count = fill_topic(&broker, "t");
    (disk, data, broker, ballast, count)
}

/// What goes on while the disk is full.
fn expect_life(broker: &Broker, count: u64) {
    expect_whole(broker, "t", count);
    expect_whole(broker, "other", 1);
    for topic in ["t", "other"] {
        for bytes in [payload(7), vec![b'x'; 1 << 20]] {
            let refused = publish(broker, topic, &bytes);
            assert!(matches!(refused.status, 507 | 503), "{refused:?}");
            refused.expect_envelope_of_error();
        }
    }
    expect_whole(broker, "t", count);
    let stats = broker.group("t", "g");
    let committed = stats["committed_offset"].as_u64().unwrap();
    let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 3 }));
    let offsets = crate::plenty::offsets(&fetched);
    assert_eq!(offsets.len(), 3);
    let taken: Vec<u64> = (committed..=offsets[2]).collect();
    broker.group_post("t", "g", "ack", json!({ "offsets": taken }));
    broker.wait_for_group("t", "g", "committed_offset", offsets[2] + 1);
    // Topics in memory need no disk.
    broker.create_topic_with(json!({ "storage": "memory" }), "memory");
    assert_eq!(broker.publish("memory", b"x"), 0);
    broker.delete_topic("memory");
    broker.get("/health/ready").expect(200);
    broker.get("/health").expect(200);
}

/// Publishes until it is taken, with no restart.
fn wait_for_room(broker: &Broker, topic: &str, number: u64) {
    let start = Instant::now();
    wait_until("writing goes on", || publish(broker, topic, &payload(number)).status == 202);
    println!("room was seen after {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(20));
}

fn goes_on_when_room_is_made(file_system: FileSystem) {
    let (disk, data, broker, ballast, count) = filled(file_system);
    expect_life(&broker, count);
    fs::remove_file(ballast).unwrap();
    wait_for_room(&broker, "t", count);
    // What a checkpoint frees by and by is filled, too.
    disk.fill();
    let count = fill_topic(&broker, "t");
    let committed = broker.group("t", "g")["committed_offset"].clone();
    drop(broker);
    let broker = data.start();
    expect_whole(&broker, "t", count);
    assert_eq!(broker.group("t", "g")["committed_offset"], committed);
}

fn goes_on_after_a_delete(file_system: FileSystem) {
    let (_disk, _data, broker, ballast, _) = filled(file_system);
    // So that the topic is worth deleting.
    let ballast = fs::OpenOptions::new().write(true).open(ballast).unwrap();
    ballast.set_len(ballast.metadata().unwrap().len().saturating_sub(24 << 20)).unwrap();
    wait_until("there is some room", || publish(&broker, "t", b"x").status == 202);
    for _ in 0..2 {
        wait_until("full", || publish(&broker, "t", &payload(1)).status == 507);
        broker.delete_topic("t");
        broker.get("/topics/t").expect(404);
        wait_for_room(&broker, "other", 1);
        broker.everything("other", 0);
        wait_until("a topic is made", || {
            let answer = broker.post("/topics", &json!({ "name": "t", "storage": "wal" }));
            assert!(matches!(answer.status, 201 | 503 | 507), "{answer:?}");
            answer.status == 201
        });
    }
}

/// A broker that was killed on a full disk and started there again, as often as that.
fn started_again(file_system: FileSystem, starts: usize) -> (Disk, DataDirectory, Broker, PathBuf, u64) {
    let (disk, data, broker, ballast, count) = filled(file_system);
    let committed = broker.group("t", "g")["committed_offset"].clone();
    drop(broker);
    for start in 1..=starts {
        // Whatever a start has freed is somebody else's at once.
        disk.fill();
        let broker = data.start();
        expect_whole(&broker, "t", count);
        expect_whole(&broker, "other", 1);
        assert_eq!(broker.group("t", "g")["committed_offset"], committed);
        if start == starts {
            return (disk, data, broker, ballast, count);
        }
    }
    unreachable!("there is at least one start")
}

fn starts_on_a_full_disk(file_system: FileSystem) {
    let (_disk, data, broker, ballast, count) = started_again(file_system, 3);
    let refused = publish(&broker, "t", &payload(7));
    assert!(matches!(refused.status, 507 | 503), "{refused:?}");
    fs::remove_file(&ballast).unwrap();
    wait_for_room(&broker, "t", count);
    expect_whole(&broker, "t", count + 1);
    drop(broker);
    let broker = data.start();
    expect_whole(&broker, "t", count + 1);
    broker.delete_topic("t");
    wait_for_room(&broker, "other", 1);
    drop(broker);
    let broker = data.start();
    broker.get("/topics/t").expect(404);
    expect_whole(&broker, "other", 2);
}

fn lives_after_a_start(starts: usize) {
    let (_disk, _data, broker, _ballast, count) = started_again(FileSystem::Ext4, starts);
    expect_life(&broker, count);
}

fn deletes_after_a_start(starts: usize) {
    let (_disk, _data, broker, _ballast, _) = started_again(FileSystem::Ext4, starts);
    broker.delete_topic("t");
    wait_for_room(&broker, "other", 1);
}

/// Publishes messages from that number on, all or none.
fn publish_batch(broker: &Broker, topic: &str, numbers: Range<u64>) -> Response {
    let framed = |number| [&u32::try_from(MESSAGE_BYTES).unwrap().to_le_bytes()[..], &payload(number)].concat();
    let body: Vec<u8> = numbers.flat_map(framed).collect();
    broker.request("POST", &topic_path(topic, "/publish"), &[("Content-Type", "application/vnd.ringmain.batch")], &body)
}

fn refuses_what_is_too_large_for_it(file_system: FileSystem) {
    let disk = Disk::new(file_system, DISK_BYTES);
    let data = DataDirectory::at(&disk.path().join("data"));
    let broker = data.start();
    broker.create_logged_topic("t");
    broker.create_logged_topic("other");
    publish(&broker, "t", &payload(0)).expect(202);
    publish(&broker, "other", &payload(0)).expect(202);
    wait_until("both slots are written", || data.marked(b"RMSLOT\0\0").len() == 2);
    let ballast = disk.fill();
    for round in 0..8 {
        // More than the segments hold that are there: 6 and 15 MB.
        for messages in [100, 250] {
            let begun = Instant::now();
            let refused = publish_batch(&broker, "other", 1..1 + messages);
            refused.expect_error(507, "storage_full");
            assert!(begun.elapsed() < Duration::from_secs(3), "{round}: told after {:?}", begun.elapsed());
        }
        // What fits goes in at once all the same.
        let begun = Instant::now();
        assert_eq!(publish(&broker, "t", &payload(1 + round)).expect(202).data()["offset"], 1 + round);
        assert!(begun.elapsed() < Duration::from_secs(3), "{round}: held up for {:?}", begun.elapsed());
        let page = broker.group_post("t", "g", "fetch", json!({ "max": 1, "from_offset": 0 }));
        broker.group_post("t", "g", "ack", json!({ "offsets": crate::plenty::offsets(&page) }));
        assert_eq!(broker.group("t", "g")["committed_offset"], round + 1);
    }
    let count = fill_topic(&broker, "t");
    expect_life(&broker, count);
    fs::remove_file(ballast).unwrap();
    wait_until("all of it goes in", || publish_batch(&broker, "other", 1..101).status == 202);
    drop(broker);
    let broker = data.start();
    expect_whole(&broker, "other", 101);
    expect_whole(&broker, "t", count);
}

/// Tests that run in mounts of their own.
macro_rules! tests_in_own_mounts {
    ($($name:ident => $run:expr,)*) => {
        $(
            #[test]
            fn $name() {
                if in_own_mounts(concat!("wal_full_disk::", stringify!($name))) {
                    $run;
                }
            }
        )*
    };
}

tests_in_own_mounts! {
    writing_goes_on_when_room_is_made_in_memory => goes_on_when_room_is_made(FileSystem::Memory),
    writing_goes_on_when_room_is_made => goes_on_when_room_is_made(FileSystem::Ext4),
    writing_goes_on_after_a_delete_in_memory => goes_on_after_a_delete(FileSystem::Memory),
    writing_goes_on_after_a_delete => goes_on_after_a_delete(FileSystem::Ext4),
    a_start_on_a_full_disk_in_memory => starts_on_a_full_disk(FileSystem::Memory),
    a_start_on_a_full_disk => starts_on_a_full_disk(FileSystem::Ext4),
    everything_else_goes_on_after_a_start_on_a_full_disk => lives_after_a_start(1),
    everything_else_goes_on_after_many_starts_on_a_full_disk => lives_after_a_start(4),
    a_delete_makes_room_after_a_start_on_a_full_disk => deletes_after_a_start(1),
    a_delete_makes_room_after_many_starts_on_a_full_disk => deletes_after_a_start(4),
    what_is_too_large_for_a_full_disk_holds_up_nothing_in_memory => refuses_what_is_too_large_for_it(FileSystem::Memory),
    what_is_too_large_for_a_full_disk_holds_up_nothing => refuses_what_is_too_large_for_it(FileSystem::Ext4),
}

#[test]
fn a_first_start_on_a_full_disk_is_told() {
    if !in_own_mounts("wal_full_disk::a_first_start_on_a_full_disk_is_told") {
        return;
    }
    let disk = Disk::new(FileSystem::Memory, 1 << 20);
    let data = DataDirectory::at(&disk.path().join("data"));
    let ballast = disk.fill();
    // Either is right, as long as it is told: a broker that waits for room, or none.
    if let Err(told) = data.try_start() {
        println!("{told}");
        assert!(told.contains("space") || told.contains("room") || told.contains("full"), "{told}");
        fs::remove_file(ballast).unwrap();
        return;
    }
    let broker = data.start();
    let answer = broker.post("/topics", &json!({ "name": "t", "storage": "wal" }));
    assert!(matches!(answer.status, 503 | 507), "{answer:?}");
    answer.expect_envelope_of_error();
}
