//! Promise: members that read nothing cost the broker no more however many messages retention takes from their group.

use crate::broker::Setup;
use crate::reader::{Kind, Reader};
use serde_json::json;

const MEMBERS: usize = 20;
/// Batches that each push an earlier one out: each of them was once told to every member.
const EVICTIONS: usize = 12_000;
/// Less than half of what the news of all evictions takes.
const GROWTH_BYTES_MAX: u64 = 5 << 20;

#[test]
fn news_of_losses_do_not_pile_up() {
    let broker = Setup::new().flag("--write-timeout-ms", 600_000).flag("--heartbeat-ms", 600_000).start();
    broker.create_topic_with(json!({ "retention": { "max_messages": 5 } }), "t");
    let kinds = [Kind::Sse, Kind::Own];
    let members: Vec<_> =
        (0..MEMBERS).map(|number| Reader::open(&broker, "t", "?group=g", kinds[number % 2])).collect();
    broker.wait_for_group("t", "g", "members", MEMBERS as u64);
    // More than their sockets take.
    broker.publish_many("t", &vec![b'x'; 100_000], MEMBERS * 60);
    let mut connection = broker.connect();
    let request = broker.request_to("POST", "/topics/t/publish", b"x");
    let mut evict = |count: usize| {
        for _ in 0..count {
            connection.send(&request);
            connection.response_to("POST").expect(202);
        }
    };
    evict(200);
    let before = broker.resident_bytes();
    evict(EVICTIONS);
    let growth = broker.resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "{} KiB for members that read nothing", growth >> 10);
    assert_eq!(broker.group("t", "g")["members"], MEMBERS as u64);
    drop(members);
}
