//! Promise: groups of logged topics go on from their own progress after the broker was killed or ended: what was acknowledged
//! and answered never comes again, everything else does, and attempts are counted on.

use crate::broker::{Broker, Setup};
use crate::deadline::wait_until;
use crate::plenty::offsets;
use crate::websocket::WebSocket;
use serde_json::json;

/// Long enough that what is held comes again for no other reason than a new start.
const ACK_WAIT_MS: u64 = 600_000;

fn started(messages: u64) -> Broker {
    let broker = Setup::new().logged().start();
    broker.create_topic_with(json!({ "ack_wait_ms": ACK_WAIT_MS }), "t");
    broker.publish_numbers("t", 0..messages);
    broker
}

/// Ends the broker one way or the other and starts it again.
fn restart(broker: &mut Broker, is_killed: bool) {
    if is_killed {
        broker.kill();
    } else {
        broker.terminate();
    }
    broker.restart();
}

fn member(broker: &Broker, query: &str) -> WebSocket {
    broker.websocket("t", &format!("?group=g&from_offset=0{query}"), &[])
}

#[test]
fn what_was_acknowledged_over_http_does_not_come_again() {
    for is_killed in [false, true] {
        let mut broker = started(20);
        let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 10, "from_offset": 0 }));
        assert_eq!(offsets(&fetched), (0..10).collect::<Vec<_>>());
        assert_eq!(broker.group_post("t", "g", "ack", json!({ "offsets": [0, 1, 2, 5, 7] }))["acknowledged"], 5);
        restart(&mut broker, is_killed);
        let stats = broker.group("t", "g");
        assert!(stats["committed_offset"] == 3 && stats["lag"] == 17 && stats["members"] == 0, "{stats}");
        // `from_offset` places only a group that does not exist.
        let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 100, "from_offset": 0 }));
        let expected: Vec<u64> = [3, 4, 6].into_iter().chain(8..20).collect();
        assert_eq!(offsets(&fetched), expected);
        assert_eq!(broker.group_post("t", "g", "ack", json!({ "offsets": expected }))["acknowledged"], 15);
        restart(&mut broker, is_killed);
        let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 100, "from_offset": 0 }));
        assert!(offsets(&fetched).is_empty(), "{fetched}");
        assert_eq!(broker.group("t", "g")["committed_offset"], 20);
    }
}

#[test]
fn members_over_websocket_go_on() {
    for is_killed in [false, true] {
        let mut broker = started(20);
        let mut member_before = member(&broker, "");
        assert_eq!(member_before.offsets(20), (0..20).collect::<Vec<_>>());
        member_before.acknowledge(&[0, 2, 4, 19]);
        member_before.acknowledge(&[1]);
        restart(&mut broker, is_killed);
        let mut first = member(&broker, "&max_in_flight=6");
        assert_eq!(first.offsets(6), [3, 5, 6, 7, 8, 9]);
        let mut second = member(&broker, "");
        assert_eq!(second.offsets(9), (10..19).collect::<Vec<_>>());
        broker.publish("t", b"20");
        assert_eq!(second.message().offset, 20);
        first.acknowledge(&[3, 5]);
        second.acknowledge(&(10..19).collect::<Vec<_>>());
        restart(&mut broker, is_killed);
        assert_eq!(broker.group("t", "g")["committed_offset"], 6);
        assert_eq!(member(&broker, "").offsets(5), [6, 7, 8, 9, 20]);
    }
}

#[test]
fn attempts_are_counted_on() {
    for is_killed in [false, true] {
        let mut broker = started(3);
        let attempts = |fetched: &serde_json::Value| -> Vec<u64> {
            let messages = fetched["messages"].as_array().unwrap();
            messages
                .iter()
                .map(|message| message.get("attempt").map_or(1, |attempt| attempt.as_u64().unwrap()))
                .collect()
        };
        for attempt in 1..=3 {
            let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 2, "from_offset": 0 }));
            assert_eq!((offsets(&fetched), attempts(&fetched)), (vec![0, 1], vec![attempt; 2]));
            broker.group_post("t", "g", "nack", json!({ "offsets": [0, 1] }));
        }
        // The fourth goes out, and an acknowledgement that is answered takes all that was before it to the disk.
        let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 3 }));
        assert_eq!(attempts(&fetched), [4, 4, 1]);
        broker.group_post("t", "g", "ack", json!({ "offset": 1 }));
        restart(&mut broker, is_killed);
        let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 3 }));
        assert_eq!((offsets(&fetched), attempts(&fetched)[0]), (vec![0, 2], 5), "{fetched}");
    }
}

#[test]
fn answered_seeks_and_deletions_stay() {
    for is_killed in [false, true] {
        let mut broker = started(20);
        for group in ["sought", "deleted", "reborn"] {
            broker.group_post("t", group, "fetch", json!({ "max": 20, "from_offset": 0 }));
            broker.group_post("t", group, "ack", json!({ "offsets": [0, 1, 2, 3, 4, 10] }));
        }
        let sought = broker.group_post("t", "sought", "seek", json!({ "offset": 2 }));
        broker.request("DELETE", "/topics/t/groups/deleted", &[], b"").expect(200);
        broker.request("DELETE", "/topics/t/groups/reborn", &[], b"").expect(200);
        broker.group_post("t", "reborn", "fetch", json!({ "from_offset": 18 }));
        restart(&mut broker, is_killed);
        let stats = broker.group("t", "sought");
        assert!(stats["committed_offset"] == 2 && stats["epoch"] == sought["epoch"], "{stats} was {sought}");
        let fetched = broker.group_post("t", "sought", "fetch", json!({ "max": 100 }));
        assert_eq!(offsets(&fetched), (2..20).collect::<Vec<_>>(), "acknowledgements of the old epoch do not count");
        broker.get("/topics/t/groups/deleted").expect_error(404, "group_not_found");
        assert_eq!(offsets(&broker.group_post("t", "reborn", "fetch", json!({ "max": 100 }))), [18, 19]);
        let latest = broker.group_post("t", "sought", "seek", json!({ "latest": true }));
        assert_eq!(latest["committed_offset"], 20);
        restart(&mut broker, is_killed);
        broker.publish("t", b"20");
        assert_eq!(offsets(&broker.group_post("t", "sought", "fetch", json!({ "max": 100 }))), [20]);
    }
}

#[test]
fn what_was_sent_over_sse_counts_once_the_broker_ended_in_order() {
    let mut broker = started(10);
    let mut stream = broker.subscribe("t", "?group=g&from_offset=0", &[]);
    assert_eq!(stream.messages(10).len(), 10);
    broker.wait_for_group("t", "g", "committed_offset", 10);
    restart(&mut broker, false);
    let mut stream = broker.subscribe("t", "?group=g&from_offset=0", &[]);
    broker.publish("t", b"10");
    assert_eq!(stream.message().offset, 10);
}

#[test]
fn acknowledgements_without_an_answer_are_soon_on_the_disk() {
    let mut broker = started(10);
    let mut socket = member(&broker, "");
    assert_eq!(socket.offsets(10).len(), 10);
    socket.say(json!({ "ack": [0, 1, 2, 3] }));
    // Which is by the next answered one of the same group at the latest.
    broker.wait_for_group("t", "g", "committed_offset", 4);
    socket.acknowledge(&[9]);
    restart(&mut broker, true);
    assert_eq!(member(&broker, "").offsets(5), [4, 5, 6, 7, 8]);
    // One that only saw its end in order may do without any.
    let mut socket = member(&broker, "");
    wait_until("it has its share", || broker.group("t", "g")["pending"] == 5);
    drop(std::mem::replace(&mut socket, member(&broker, "")));
    restart(&mut broker, false);
    assert_eq!(broker.group("t", "g")["committed_offset"], 4);
}

#[test]
fn a_new_group_is_there_after_its_first_delivery() {
    for is_killed in [false, true] {
        let mut broker = started(5);
        let mut at_tail = broker.websocket("t", "?group=tail", &[]);
        broker.publish("t", b"5");
        assert_eq!(at_tail.message().offset, 5);
        restart(&mut broker, is_killed);
        // Had it been forgotten, it would begin at the tail again.
        broker.publish("t", b"6");
        assert_eq!(broker.websocket("t", "?group=tail", &[]).offsets(2), [5, 6]);
    }
}
