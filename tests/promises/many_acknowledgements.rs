//! Promise: everything that one fetch may bring can be acknowledged, or given back, in one request.

use crate::broker::Broker;
use crate::plenty::offsets;
use serde_json::{Value, json};

const FETCH_MESSAGES_MAX: u64 = 10_000;
const ACK_OFFSETS_MAX: u64 = 65_536;

#[test]
fn a_whole_fetch_is_given_back_and_acknowledged_at_once() {
    let broker = Broker::start();
    broker.create_topic_of("t", FETCH_MESSAGES_MAX);
    broker.publish_many("t", b"x", FETCH_MESSAGES_MAX as usize);
    let fetch = || broker.group_post("t", "g", "fetch", json!({ "max": FETCH_MESSAGES_MAX, "from_offset": 0 }));
    for attempt in [1, 2] {
        let data = fetch();
        let got = offsets(&data);
        assert_eq!(got, (0..FETCH_MESSAGES_MAX).collect::<Vec<_>>());
        let verb = if attempt == 1 { "nack" } else { "ack" };
        let told = broker.group_post("t", "g", verb, json!({ "offsets": got, "epoch": data["epoch"] }));
        assert_eq!(told["acknowledged"], FETCH_MESSAGES_MAX, "{verb}");
    }
    assert_eq!(broker.group("t", "g")["committed_offset"], FETCH_MESSAGES_MAX);
}

#[test]
fn as_many_as_are_allowed_fit_whatever_their_digits() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.group_post("t", "g", "fetch", json!({}));
    for verb in ["ack", "nack"] {
        let with = |count: u64| -> Value {
            let first = 9_999_999_999_999_000_000;
            json!({ "offsets": (first..first + count).collect::<Vec<u64>>() })
        };
        assert_eq!(broker.group_post("t", "g", verb, with(ACK_OFFSETS_MAX))["acknowledged"], 0);
        let answer = broker.post(&format!("/topics/t/groups/g/{verb}"), &with(ACK_OFFSETS_MAX + 1));
        answer.expect(400).expect_envelope_of_error();
    }
}
