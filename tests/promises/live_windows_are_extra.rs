//! Promise: what is kept for a moment for live readers beyond a topic's retention never makes a publish fail: a topic inside its
//! retention is not told that the storage is full.

use crate::broker::{Broker, Setup};
use crate::reader::{KINDS, Reader};
use serde_json::json;

const PAYLOAD_BYTES: usize = 10_000;
/// More than the memory of the shard holds.
const MESSAGES: usize = 900;

fn started() -> Broker {
    let memory = 4 << 20;
    Setup::new().flag("--shards", 1).flag("--memory-bytes", memory).start()
}

#[test]
fn a_topic_inside_its_retention_takes_every_publish() {
    let broker = started();
    for number in 0..3 {
        let topic = format!("t{number}");
        broker.create_topic_with(json!({ "retention": { "max_messages": 10 } }), &topic);
        let mut readers = KINDS.map(|kind| Reader::open(&broker, &topic, "", kind));
        std::thread::scope(|scope| {
            scope.spawn(|| broker.publish_many(&topic, &vec![b'x'; PAYLOAD_BYTES], MESSAGES));
            // One reads all of it; the others nothing, which is their own affair.
            (0..MESSAGES as u64).for_each(|offset| assert_eq!(readers[0].offset(), offset));
        });
        assert!(broker.stats(&topic)["message_count"].as_u64().unwrap() <= 10);
    }
}

#[test]
fn what_is_retained_is_bounded_all_the_same() {
    let broker = started();
    broker.create_topic_of("t", 100_000);
    let mut connection = broker.connect();
    let request = broker.request_to("POST", "/topics/t/publish", &vec![b'x'; PAYLOAD_BYTES]);
    let stored = (0..MESSAGES).take_while(|_| {
        connection.send(&request);
        let answer = connection.response_to("POST");
        assert!(matches!(answer.status, 202 | 507), "{answer:?}");
        answer.status == 202
    });
    let stored = stored.count();
    assert!((100..420).contains(&stored), "{stored} messages of {PAYLOAD_BYTES} bytes in 4 MiB");
    broker.get("/topics/t/messages?limit=1").expect(200);
}
