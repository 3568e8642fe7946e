//! Promise: a member that takes nothing any more does not keep what it was given: it is cut off, and others get it.

use crate::broker::{Broker, Setup};
use crate::reader::{KINDS, Kind, Reader};
use serde_json::json;

const MESSAGES: usize = 600;

fn started() -> Broker {
    // Longer than the machine may hold up one that reads.
    let broker = Setup::new().flag("--write-timeout-ms", 3_000).start();
    let settings = json!({ "ack_wait_ms": 400, "retention": { "max_messages": 100_000 } });
    broker.create_topic_with(settings, "t");
    broker
}

#[test]
fn what_a_stalled_stream_holds_goes_to_the_other() {
    let broker = started();
    let stalled = Reader::open(&broker, "t", "?group=g", Kind::Sse);
    let mut other = Reader::open(&broker, "t", "?group=g", Kind::Sse);
    broker.wait_for_group("t", "g", "members", 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            broker.publish_many("t", &vec![b'x'; 20_000], MESSAGES);
            broker.wait_for_group("t", "g", "members", 1);
            broker.wait_for_group("t", "g", "committed_offset", MESSAGES as u64);
            assert_eq!(broker.group("t", "g")["pending"], 0);
            // This one ends the reading of the other, which may have had any share of them.
            broker.publish("t", b"last");
        });
        while other.offset() < MESSAGES as u64 {}
    });
    drop(stalled);
}

#[test]
fn whatever_stalls_the_group_comes_to_its_end() {
    let broker = started();
    let stalled: Vec<_> = KINDS.iter().map(|kind| Reader::open(&broker, "t", "?group=g", *kind)).collect();
    broker.wait_for_group("t", "g", "members", 3);
    broker.publish_many("t", &vec![b'x'; 20_000], MESSAGES);
    let mut worker = broker.connect();
    let wish = json!({ "max": 100, "wait_ms": 100 });
    crate::deadline::wait_until("a worker has got and acknowledged what they left", || {
        worker.send(&broker.json_request_to("/topics/t/groups/g/fetch", &wish));
        let data = worker.response_to("POST").expect(200).data();
        let done = json!({ "offsets": crate::plenty::offsets(&data), "epoch": data["epoch"] });
        worker.send(&broker.json_request_to("/topics/t/groups/g/ack", &done));
        worker.response_to("POST").expect(200);
        broker.group("t", "g")["committed_offset"] == MESSAGES as u64
    });
    drop(stalled);
}
