//! Promise: when retention takes messages that a group has not dealt with, the group goes on after them, counts them as lost,
//! and tells its members.

use crate::broker::{Broker, Setup};
use crate::websocket::{EXTENDED, Heard};
use serde_json::json;
use std::time::Duration;

fn started() -> Broker {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "retention": { "max_messages": 10 } }), "t");
    broker
}

fn dropped(broker: &Broker) -> u64 {
    let text = broker.get("/metrics").expect(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix("streamq_messages_dropped_total{topic=\"t\"} "));
    line.unwrap().parse().unwrap()
}

#[test]
fn what_nobody_took_in_time_is_lost_and_counted() {
    let broker = started();
    broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
    broker.publish_numbers("t", 0..25);
    let stats = broker.group("t", "g");
    assert!(stats["committed_offset"] == 15 && stats["lost"] == 15 && stats["lag"] == 10, "{stats}");
    let fetched = broker.group_post("t", "g", "fetch", json!({ "max": 100 }));
    assert_eq!(fetched["messages"].as_array().unwrap().len(), 10);
    assert_eq!(fetched["messages"][0]["offset"], 15);
    assert_eq!(dropped(&broker), 15);
}

#[test]
fn one_that_fell_behind_goes_on_at_the_earliest_and_is_told_so_once() {
    let mut broker = Setup::new().logged().start();
    for storage in ["memory", "wal"] {
        broker.create_topic_with(json!({ "storage": storage, "retention": { "max_messages": 10 } }), storage);
        let mut member = broker.websocket(storage, "?group=g&from_offset=0&max_in_flight=1", &[EXTENDED]);
        broker.publish(storage, b"0");
        assert_eq!(member.offsets(1), [0]);
        // All at once, so that there is one loss: of the one that it holds and of those that it never saw.
        let lines = "{\"payload\":\"\"}\n".repeat(30);
        let target = format!("/topics/{storage}/publish");
        broker.request("POST", &target, &[("Content-Type", "application/x-ndjson")], lines.as_bytes()).expect(202);
        assert_eq!(member.other(), json!({ "lost": { "messages": 21, "resumed": 21 } }), "{storage}");
        for offset in 21..31 {
            // Nothing is told again, and no message comes twice.
            assert_eq!(member.offsets(1), [offset], "{storage}");
            member.say(json!({ "ack": offset }));
        }
        // This answer takes all that was before it to the disk.
        member.acknowledge(&[30]);
        member.expect_nothing_before_pong();
        let stats = broker.group(storage, "g");
        assert!(stats["lost"] == 21 && stats["committed_offset"] == 31 && stats["lag"] == 0, "{stats}");
    }
    broker.kill();
    broker.restart();
    let mut member = broker.websocket("wal", "?group=g&from_offset=0", &[EXTENDED]);
    member.expect_nothing_before_pong();
    broker.publish("wal", b"31");
    assert_eq!(member.offsets(1), [31]);
}

#[test]
fn what_was_acknowledged_is_not_lost() {
    let broker = started();
    broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
    broker.publish_numbers("t", 0..10);
    let mut member = broker.websocket("t", "?group=g", &[EXTENDED]);
    member.offsets(10);
    member.acknowledge(&[0, 1, 4, 6, 7]);
    // 2, 3 and 5 fall out of the log with the acknowledged ones around them.
    broker.publish_numbers("t", 10..17);
    let mut lost = 0;
    let mut offsets = Vec::new();
    while offsets.len() < 7 || lost < 3 {
        match member.step(crate::deadline::LIMIT) {
            Heard::Message(message) => offsets.push(message.offset),
            Heard::Other(notice) => lost += notice["lost"]["messages"].as_u64().unwrap(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((offsets, lost), ((10..17).collect(), 3));
    let stats = broker.group("t", "g");
    assert!(stats["lost"] == 3 && stats["committed_offset"] == 8, "{stats}");
    assert!(stats["pending"] == 9, "8, 9 and the seven new ones: {stats}");
    assert_eq!(dropped(&broker), 3);
    // What it says of lost ones is no fault, and changes nothing.
    member.acknowledge(&[2, 3, 5]);
    member.acknowledge(&[8, 9, 10, 11, 12, 13, 14, 15, 16]);
    assert_eq!(broker.group("t", "g")["committed_offset"], 17);
    assert_eq!(broker.group("t", "g")["lost"], 3);
}

#[test]
fn clients_that_do_not_know_the_notice_get_messages_only() {
    let broker = started();
    let mut plain = broker.websocket("t", "?group=g&max_in_flight=1", &[]);
    let mut stream = broker.subscribe("t", "?group=h", &[]);
    broker.publish_numbers("t", 0..30);
    assert_eq!(plain.message().offset, 0);
    assert_eq!(broker.group("t", "g")["lost"], 20);
    // The loss of what it held gave its credit back each time, so that it has one of those that are kept.
    loop {
        let Heard::Message(message) = plain.step(crate::deadline::LIMIT) else { panic!("a notice, or nothing") };
        if message.offset == 20 {
            break;
        }
        assert!(message.offset < 20, "{message:?}");
    }
    assert_eq!(plain.step(Duration::from_millis(20)), Heard::Quiet);
    // Over SSE the notice is an event of its own, so that all clients may have it. Here it may also lose: it is bounded by nothing
    // but how soon its bytes are sent.
    let mut next = 0;
    while next < 30 {
        let event = stream.event();
        match event.name.as_str() {
            "message" => next = crate::events::message_of(&event).offset + 1,
            "lost" => assert!(event.json()["messages"].as_u64() > Some(0), "{event:?}"),
            _ => panic!("{event:?}"),
        }
    }
}
