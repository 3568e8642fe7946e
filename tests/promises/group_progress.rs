//! Promise: groups are independent of each other, start where their first member said, go on from their own progress after
//! that, and seek into a new epoch in which old acknowledgements do not count.

use crate::broker::Broker;
use crate::deadline::wait_until;
use crate::websocket::EXTENDED;
use serde_json::{Value, json};

fn started(messages: u64) -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..messages);
    broker
}

#[test]
fn each_group_gets_everything() {
    let broker = started(0);
    let mut groups: Vec<_> =
        (0..5).map(|number| broker.websocket("t", &format!("?group=group-{number}&from_offset=0"), &[])).collect();
    let mut stream = broker.subscribe("t", "?group=over-sse&from_offset=0", &[]);
    let mut everyone = broker.websocket("t", "", &[]);
    broker.publish_numbers("t", 0..50);
    let all: Vec<u64> = (0..50).collect();
    for (number, member) in groups.iter_mut().enumerate() {
        assert_eq!(member.offsets(50), all);
        member.acknowledge(&all[..number * 10]);
    }
    assert_eq!(stream.messages(50).iter().map(|message| message.offset).collect::<Vec<_>>(), all);
    assert_eq!(everyone.offsets(50), all);
    for number in 0..5 {
        let stats = broker.group("t", &format!("group-{number}"));
        assert!(stats["committed_offset"] == number * 10 && stats["lag"] == 50 - number * 10, "{stats}");
    }
    broker.wait_for_group("t", "over-sse", "committed_offset", 50);
}

#[test]
fn from_offset_places_only_a_group_that_does_not_exist() {
    let broker = started(10);
    let mut member = broker.websocket("t", "?group=g&from_offset=4", &[]);
    assert_eq!(member.offsets(6), [4, 5, 6, 7, 8, 9]);
    member.acknowledge(&[4, 5, 6]);
    assert_eq!(broker.group("t", "g")["committed_offset"], 7);
    drop(member);
    broker.wait_for_group("t", "g", "members", 0);
    for query in ["?group=g&from_offset=0", "?group=g", "?group=g&from_offset=9"] {
        let mut member = broker.websocket("t", query, &[]);
        assert_eq!(member.offsets(3), [7, 8, 9], "{query}");
        member.expect_nothing_before_pong();
        drop(member);
        broker.wait_for_group("t", "g", "members", 0);
    }
}

#[test]
fn a_new_group_without_an_offset_starts_at_the_tail() {
    let broker = started(10);
    let mut socket = broker.websocket("t", "?group=a", &[]);
    let mut stream = broker.subscribe("t", "?group=b", &[]);
    assert_eq!(broker.group("t", "a")["committed_offset"], 10);
    broker.publish("t", b"new");
    assert_eq!((socket.message().offset, stream.message().offset), (10, 10));
}

#[test]
fn a_start_outside_of_what_is_kept_is_put_right() {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "retention": { "max_messages": 5 } }), "t");
    broker.publish_numbers("t", 0..12);
    let mut early = broker.websocket("t", "?group=early&from_offset=0", &[]);
    assert_eq!(early.offsets(5), [7, 8, 9, 10, 11]);
    let mut late = broker.websocket("t", "?group=late&from_offset=500", &[]);
    late.expect_nothing_before_pong();
    broker.publish("t", b"next");
    assert_eq!(late.message().offset, 12);
    assert_eq!(broker.group("t", "late")["lost"], 0);
}

#[test]
fn groups_ignore_a_resume_token() {
    let broker = started(5);
    let mut stream = broker.subscribe("t", "?group=g&from_offset=0", &[("Last-Event-ID", "3")]);
    let offsets: Vec<u64> = stream.messages(5).iter().map(|message| message.offset).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4]);
}

#[test]
fn what_is_acknowledged_out_of_order_is_committed_when_the_hole_is_filled() {
    let broker = started(10);
    let mut member = broker.websocket("t", "?group=g&from_offset=0", &[]);
    member.offsets(10);
    for (acknowledged, committed) in [(9, 0), (1, 0), (0, 2), (3, 2), (4, 2), (2, 5), (8, 5), (7, 5), (5, 6), (6, 10)] {
        member.acknowledge(&[acknowledged]);
        let stats = broker.group("t", "g");
        assert!(stats["committed_offset"] == committed && stats["lag"] == 10 - committed, "{acknowledged}: {stats}");
    }
}

#[test]
fn seeking_begins_a_new_epoch() {
    let broker = started(10);
    let mut member = broker.websocket("t", "?group=g&from_offset=0", &[EXTENDED]);
    assert_eq!(member.offsets(10), (0..10).collect::<Vec<_>>());
    member.acknowledge(&[0, 1, 2, 3]);
    let before = broker.group("t", "g");
    let after = broker.group_post("t", "g", "seek", json!({ "offset": 6 }));
    assert!(after["committed_offset"] == 6 && after["pending"].as_u64() <= Some(4), "{after}");
    assert_ne!(before["epoch"], after["epoch"]);
    assert_eq!(member.other(), json!({ "moved": { "next": 6 } }));
    assert_eq!(member.offsets(4), [6, 7, 8, 9]);
    // Back, while it holds everything: nothing of it is acknowledged any more.
    broker.group_post("t", "g", "seek", json!({ "earliest": true }));
    assert_eq!(member.other(), json!({ "moved": { "next": 0 } }));
    assert_eq!(member.offsets(10), (0..10).collect::<Vec<_>>());
    assert_eq!(broker.group("t", "g")["committed_offset"], 0);
    broker.group_post("t", "g", "seek", json!({ "latest": true }));
    assert_eq!(member.other(), json!({ "moved": { "next": 10 } }));
    let stats = broker.group("t", "g");
    assert!(stats["lag"] == 0 && stats["pending"] == 0, "{stats}");
    member.expect_nothing_before_pong();
}

#[test]
fn seeking_by_time_finds_the_first_message_of_that_time() {
    let broker = started(3);
    let page = broker.get("/topics/t/messages?from_offset=0").expect(200).data();
    let time_of = |page: &Value, at: usize| page["messages"][at]["timestamp"].as_str().unwrap().to_owned();
    let third = time_of(&page, 2);
    wait_until("the clock has moved on", || {
        let last = broker.publish("t", b"later");
        let page = broker.get(&format!("/topics/t/messages?from_offset={last}")).expect(200).data();
        time_of(&page, 0) > third
    });
    broker.websocket("t", "?group=g", &[]);
    let stats = broker.group_post("t", "g", "seek", json!({ "time": third }));
    let next = stats["committed_offset"].as_u64().unwrap();
    // Messages of the same microsecond are not told apart: the first of them is the one.
    let first = page["messages"].as_array().unwrap().iter().position(|message| message["timestamp"] == third.as_str());
    assert_eq!(next, first.unwrap() as u64);
    let stats = broker.group_post("t", "g", "seek", json!({ "time": "2001-01-01T00:00:00Z" }));
    assert_eq!(stats["committed_offset"], 0);
    let stats = broker.group_post("t", "g", "seek", json!({ "time": "2999-01-01T00:00:00Z" }));
    assert_eq!(stats["lag"], 0);
}

#[test]
fn acknowledgements_of_an_old_epoch_do_not_count() {
    let broker = started(3);
    let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 3, "from_offset": 0 }));
    let epoch = fetched["epoch"].as_u64().unwrap();
    broker.group_post("t", "g", "seek", json!({ "offset": 0 }));
    let again = broker.group_post("t", "g", "fetch", json!({ "max": 3 }));
    assert_eq!(again["messages"].as_array().unwrap().len(), 3);
    let told = broker.group_post("t", "g", "ack", json!({ "offsets": [0, 1, 2], "epoch": epoch }));
    assert_eq!(told["acknowledged"], 0);
    assert_eq!(broker.group("t", "g")["committed_offset"], 0);
    let told = broker.group_post("t", "g", "ack", json!({ "offsets": [0, 1, 2], "epoch": again["epoch"] }));
    assert_eq!(told["acknowledged"], 3);
    assert_eq!(broker.group("t", "g")["committed_offset"], 3);
}

#[test]
fn a_members_acknowledgements_from_before_a_seek_do_not_count() {
    let broker = started(6);
    // It is no client of ours, so that it hears nothing of the seek; what it says of the messages before must not count for
    // those after.
    let mut member = broker.websocket("t", "?group=g&from_offset=0&max_in_flight=3", &[]);
    assert_eq!(member.offsets(3), [0, 1, 2]);
    broker.group_post("t", "g", "seek", json!({ "offset": 3 }));
    assert_eq!(member.offsets(3), [3, 4, 5]);
    broker.group_post("t", "g", "seek", json!({ "offset": 1 }));
    assert_eq!(member.offsets(3), [1, 2, 3], "three of the new epoch fit in its credit");
    member.say(json!({ "ack": [4, 5] }));
    member.expect_nothing_before_pong();
    assert_eq!(broker.group("t", "g")["committed_offset"], 1);
    member.acknowledge(&[1, 2, 3]);
    assert_eq!(member.offsets(2), [4, 5]);
    assert_eq!(broker.group("t", "g")["committed_offset"], 4);
}

#[test]
fn a_bad_seek_is_refused() {
    let broker = started(1);
    broker.post("/topics/t/groups/g/seek", &json!({ "earliest": true })).expect_error(404, "group_not_found");
    broker.websocket("t", "?group=g", &[]);
    let bodies = [
        json!({}),
        json!({ "offset": 1, "latest": true }),
        json!({ "offset": -1 }),
        json!({ "time": "noon" }),
        json!([]),
    ];
    for body in bodies {
        broker.post("/topics/t/groups/g/seek", &body).expect(400).expect_envelope_of_error();
    }
    // Beyond the end is the end.
    let stats = broker.group_post("t", "g", "seek", json!({ "offset": 1000 }));
    assert_eq!(stats["lag"], 0);
}
