//! Promise: one fetch of a group gives at most 1 MiB and the message that goes beyond, and at least one message, so that
//! everything is fetched in the end.

use crate::broker::{Broker, Setup};
use crate::plenty::offsets;
use serde_json::json;

const FETCH_BYTES_MAX: usize = 1 << 20;

#[test]
fn a_fetch_ends_at_its_bytes() {
    const MESSAGES: u64 = 40;
    const PAYLOAD_BYTES: usize = 1_000_000;
    let broker = Broker::start();
    broker.create_topic_of("t", MESSAGES);
    broker.publish_many("t", &vec![b'x'; PAYLOAD_BYTES], MESSAGES as usize);
    let mut got = Vec::new();
    for wait_ms in [0, 10_000].into_iter().cycle() {
        if got.len() as u64 == MESSAGES {
            break;
        }
        let wish = json!({ "max": 10_000, "from_offset": 0, "wait_ms": wait_ms });
        let some = offsets(&broker.group_post("t", "g", "fetch", wish));
        assert!(!some.is_empty(), "after {} of {MESSAGES}", got.len());
        assert!((some.len() - 1) * PAYLOAD_BYTES <= FETCH_BYTES_MAX, "{} messages at once", some.len());
        got.extend(some);
    }
    assert_eq!(got, (0..MESSAGES).collect::<Vec<_>>());
    // What comes again is bounded alike.
    broker.group_post("t", "g", "nack", json!({ "offsets": got }));
    let again = offsets(&broker.group_post("t", "g", "fetch", json!({ "max": 10_000 })));
    assert!(!again.is_empty() && (again.len() - 1) * PAYLOAD_BYTES <= FETCH_BYTES_MAX, "{} at once", again.len());
}

#[test]
fn a_message_beyond_the_bound_comes_alone() {
    let large = 24 << 20;
    let broker = Setup::new().flag("--max-message-bytes", large).flag("--max-body-bytes", large).start();
    broker.create_topic("t");
    let payload = vec![b'x'; 20_000_000];
    for length in [payload.len(), payload.len(), 10] {
        broker.publish("t", &payload[..length]);
    }
    for expected in 0..3 {
        let data = broker.group_post("t", "g", "fetch", json!({ "max": 10_000, "from_offset": 0 }));
        assert_eq!(offsets(&data), [expected]);
    }
}
