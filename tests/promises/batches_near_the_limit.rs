//! Promise: when the memory for messages is nearly used up, a batch is stored whole or refused with nothing stored and no offset used;
//! what messages take beside their payloads counts, too.

use crate::broker::{Broker, Setup};
use crate::http::Response;

const MEMORY_BYTES: u64 = 4 << 20;

fn started() -> Broker {
    let broker = Setup::new().flag("--shards", 1).flag("--memory-bytes", MEMORY_BYTES).start();
    broker.create_topic_of("t", 1_000_000);
    broker
}

/// Publishes so many payloads of so many bytes with one request.
fn publish(broker: &Broker, count: usize, bytes: usize) -> Response {
    let payload = [&(bytes as u32).to_le_bytes()[..], &vec![b'x'; bytes]].concat();
    let kind = ("Content-Type", "application/vnd.ringmain.batch");
    broker.request("POST", "/topics/t/publish", &[kind], &payload.repeat(count))
}

#[test]
fn a_batch_that_has_no_room_stores_nothing() {
    let broker = started();
    publish(&broker, 1_500, 1_000).expect(202);
    // Their payloads would fit, but not what each takes beside its payload; and all of them are more than one record batch.
    for (count, bytes) in [(50_000, 52), (40_000, 64), (20_000, 130)] {
        let before = broker.stats("t");
        publish(&broker, count, bytes).expect_error(507, "storage_full");
        let after = broker.stats("t");
        assert_eq!(after["latest_offset"], before["latest_offset"], "{count} messages of {bytes} bytes: {after}");
        assert_eq!(after["bytes"], before["bytes"], "{count} messages of {bytes} bytes: {after}");
    }
    let told = publish(&broker, 20_000, 60).expect(202).data();
    assert_eq!(told["first_offset"], 1_500, "a refused batch has used no offset: {told}");
}

#[test]
fn the_memory_is_never_exceeded_and_given_back_exactly() {
    let broker = started();
    let fill = || {
        let mut stored = 0;
        for count in [20_000, 5_000, 1_000, 100, 10, 1] {
            while publish(&broker, count, 20).status == 202 {
                stored += count;
            }
        }
        stored
    };
    let stored = fill();
    let stats = broker.stats("t");
    assert_eq!(stats["message_count"], stored, "{stats}");
    let bytes = stats["bytes"].as_u64().unwrap();
    assert!((MEMORY_BYTES - 1_000..=MEMORY_BYTES).contains(&bytes), "{stats}");
    for _ in 0..3 {
        broker.request("DELETE", "/topics/t", &[], b"").expect(200);
        broker.create_topic_of("t", 1_000_000);
        assert_eq!(fill(), stored, "a deleted topic gives back what it took");
    }
}
