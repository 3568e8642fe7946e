//! Promise: while the disk does not answer, publishers wait, and more of them are refused before anything of them is stored; memory stays flat;
//! reads go on; and all who waited are answered once the disk answers.

use crate::broker::{Broker, topic_path};
use crate::deadline::{growth_during, wait_until};
use crate::http::{Connection, Filled, request_bytes};
use crate::stored_directory::DataDirectory;
use crate::wal_disks::{Disk, FROZEN_SECONDS_MAX, FileSystem, in_own_mounts};
use std::time::{Duration, Instant};

const MESSAGE_BYTES: usize = 400_000;
const CONNECTIONS: u64 = 150;

/// A broker on a disk of its own, with a topic of some messages, whose log has room in the segment at hand.
fn started() -> (Disk, Broker) {
    let disk = Disk::new(FileSystem::Ext4, 256 << 20);
    let data = DataDirectory::at(&disk.path().join("data"));
    // The first segments of the log are twice as large as this.
    let setup = data.setup().flag("--shards", 1).flag("--cores", 1).flag("--max-message-bytes", 8 << 20);
    let broker = setup.start();
    broker.create_logged_topic("t");
    broker.publish_numbers("t", 0..10);
    let is_at_rest = || {
        let is_preparing = data.files().iter().any(|path| path.extension().is_some_and(|name| name == "preparing"));
        data.marked(b"RMSLOT\0\0").len() == 2 && data.marked(b"RMLOGSEG").len() == 4 && !is_preparing
    };
    wait_until("nothing is being written any more", is_at_rest);
    (disk, broker)
}

#[test]
fn a_segment_that_cannot_be_made_holds_up_no_reader() {
    if !in_own_mounts("wal_slow_disk::a_segment_that_cannot_be_made_holds_up_no_reader") {
        return;
    }
    let (mut disk, broker) = started();
    broker.create_topic_with(serde_json::json!({ "storage": "memory" }), "memory");
    // The next message does not fit the segment at hand: the next one is begun, and another one made ahead.
    for _ in 0..15 {
        broker.publish("t", &[b'x'; 1 << 20]);
    }
    disk.freeze();
    let large = broker.request_to("POST", "/topics/t/publish", &[b'x'; 1 << 20]);
    let mut waiting: Vec<Connection> = (0..3).map(|_| broker.connect()).collect();
    waiting.iter_mut().for_each(|connection| connection.send(&large));
    let frozen = Instant::now();
    for number in 0..50 {
        assert_eq!(broker.publish("memory", b"x"), number);
        broker.get("/health").expect(200);
    }
    assert!(
        frozen.elapsed() < Duration::from_secs(FROZEN_SECONDS_MAX / 2),
        "answered after the disk was: {:?}",
        frozen.elapsed()
    );
    // Who has waited for five seconds is refused, which only a machine that is very busy comes to.
    let is_late = frozen.elapsed() > Duration::from_secs(4);
    disk.thaw();
    for answer in waiting.iter_mut().map(|connection| connection.response_to("POST")) {
        assert!(answer.status == 202 || (is_late && answer.status == 503), "{answer:?}");
    }
}

#[test]
fn publishers_wait_and_more_are_refused() {
    if !in_own_mounts("wal_slow_disk::publishers_wait_and_more_are_refused") {
        return;
    }
    let (mut disk, broker) = started();
    disk.freeze();
    let host = broker.address().to_string();
    let request = request_bytes(&host, "POST", &topic_path("t", "/publish"), &[], &[b'x'; MESSAGE_BYTES]);
    let send = |()| {
        let mut connection = broker.connect();
        connection.send(&request);
        (Instant::now(), connection)
    };
    let mut waiting: Vec<(Instant, Connection)> = (0..CONNECTIONS).map(|_| send(())).collect();
    // Who may wait is refused after five seconds. Those that are refused before have not waited.
    let mut refused = 0;
    wait_until("many are refused at once", || {
        waiting.retain_mut(|(sent, connection)| {
            if connection.fill(Instant::now()) == Filled::Quiet {
                return true;
            }
            let answer = connection.response_to("POST").expect_error(503, "busy");
            assert!(answer.header("retry-after").is_some());
            refused += u64::from(sent.elapsed() < Duration::from_secs(4));
            false
        });
        refused > CONNECTIONS / 3
    });
    assert!(!waiting.is_empty(), "some may wait");
    // What waits is not to be seen, and reads go on.
    let everything = broker.everything("t", 0);
    assert_eq!(everything.offsets(), (0..10).collect::<Vec<_>>());
    broker.get("/health").expect(200);
    broker.create_topic_with(serde_json::json!({ "storage": "memory" }), "memory");
    broker.publish("memory", b"x");
    let before = broker.resident_bytes();
    let grown = growth_during(Duration::from_millis(1500), || {
        // Once those that wait have been refused, these wait in their place, and as long.
        let mut more = [(); 2].map(send);
        more.iter_mut().for_each(|(_, connection)| drop(connection.response_to("POST").expect_error(503, "busy")));
        broker.resident_bytes()
    });
    assert!(grown < 16 << 20, "{before} bytes grew by {grown}");
    assert!(before < 200 << 20, "{before}");
    disk.thaw();
    let mut offsets: Vec<u64> = Vec::new();
    for (_, connection) in &mut waiting {
        let answer = connection.response_to("POST");
        match answer.status {
            202 => offsets.push(answer.data()["offset"].as_u64().unwrap()),
            _ => drop(answer.expect_error(503, "busy")),
        }
    }
    offsets.sort_unstable();
    assert_eq!(offsets, (10..10 + offsets.len() as u64).collect::<Vec<_>>(), "each has its own");
    wait_until("publishes are taken again", || broker.request("POST", "/topics/t/publish", &[], b"y").status == 202);
    let everything = broker.everything("t", 0);
    assert_eq!(everything.messages.len(), 10 + offsets.len() + 1, "what was refused is not there");
}
