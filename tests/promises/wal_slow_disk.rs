//! Promise: while the disk does not answer, publishers wait, and more of them are refused before anything of them is stored; memory stays flat;
//! reads go on; and all who waited are answered once the disk answers.

use crate::broker::topic_path;
use crate::stored_directory::DataDirectory;
use crate::deadline::{growth_during, wait_until};
use crate::http::{Connection, request_bytes};
use crate::wal_disks::{Disk, FileSystem, in_own_mounts};
use std::time::{Duration, Instant};

const MESSAGE_BYTES: usize = 100_000;
const CONNECTIONS: u64 = 150;

#[test]
fn publishers_wait_and_more_are_refused() {
    if !in_own_mounts("wal_slow_disk::publishers_wait_and_more_are_refused") {
        return;
    }
    let mut disk = Disk::new(FileSystem::Ext4, 128 << 20);
    let data = DataDirectory::at(&disk.path().join("data"));
    let broker = data.start();
    broker.create_logged_topic("t");
    broker.publish_numbers("t", 0..10);
    wait_until("both slots are written", || data.marked(b"RMSLOT\0\0").len() == 2);
    disk.freeze();
    let host = broker.address().to_string();
    let request = request_bytes(&host, "POST", &topic_path("t", "/publish"), &[], &[b'x'; MESSAGE_BYTES]);
    let mut waiting: Vec<Connection> = Vec::new();
    let mut refused = 0;
    for _ in 0..CONNECTIONS {
        let mut connection = broker.connect();
        connection.send(&request);
        if connection.fill(Instant::now() + Duration::from_millis(30)) == crate::http::Filled::Quiet {
            waiting.push(connection);
            continue;
        }
        let answer = connection.response_to("POST").expect_error(503, "busy");
        assert!(answer.header("retry-after").is_some());
        refused += 1;
    }
    assert!(refused > CONNECTIONS / 3 && !waiting.is_empty(), "{refused} were refused, {} wait", waiting.len());
    // What waits is not to be seen, and reads go on.
    let everything = broker.everything("t", 0);
    assert_eq!(everything.offsets(), (0..10).collect::<Vec<_>>());
    broker.get("/health").expect(200);
    broker.create_topic_with(serde_json::json!({ "storage": "memory" }), "memory");
    broker.publish("memory", b"x");
    let before = broker.resident_bytes();
    let grown = growth_during(Duration::from_millis(1500), || {
        for _ in 0..20 {
            let answer = broker.request("POST", "/topics/t/publish", &[], &[b'x'; MESSAGE_BYTES]);
            answer.expect_error(503, "busy");
        }
        broker.resident_bytes()
    });
    assert!(grown < 16 << 20, "{before} bytes grew by {grown}");
    assert!(before < 200 << 20, "{before}");
    disk.thaw();
    let mut offsets: Vec<u64> = Vec::new();
    for connection in &mut waiting {
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
