//! Promise: a reader without a stream pages through a topic, waits for news when it asks to, and is told when what it
//! asked for is no longer kept.

use crate::broker::{Broker, Setup};
use crate::http::Connection;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn broker_with(count: u64) -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..count);
    broker
}

fn page(broker: &Broker, query: &str) -> Value {
    broker.get(&format!("/topics/t/messages{query}")).expect(200).data()
}

fn offsets(page: &Value) -> Vec<u64> {
    page["messages"].as_array().unwrap().iter().map(|message| message["offset"].as_u64().unwrap()).collect()
}

/// A connection whose reader waits from that offset on: the answer to what it asked before shows that the broker has it.
fn waiting(broker: &Broker, from: u64) -> Connection {
    let mut connection = broker.connect();
    let pages = [0, 60_000].map(|wait_ms| {
        broker.request_to("GET", &format!("/topics/t/messages?from_offset={from}&wait_ms={wait_ms}"), b"")
    });
    connection.send(&pages.concat());
    assert!(offsets(&connection.response_to("GET").expect(200).data()).is_empty());
    connection
}

fn numbers(page: &Value) -> [i64; 3] {
    ["next_offset", "earliest_offset", "latest_offset"]
        .map(|name| page[name].as_i64().unwrap_or_else(|| panic!("{page}")))
}

#[test]
fn pages_follow_one_another_to_the_end() {
    let broker = broker_with(25);
    let mut from = 0;
    let mut seen = Vec::new();
    for expected in [10, 10, 5, 0] {
        let page = page(&broker, &format!("?from_offset={from}&limit=10"));
        assert_eq!(offsets(&page).len(), expected, "{page}");
        assert_eq!(numbers(&page)[1..], [0, 24]);
        assert!(page.get("gap").is_none(), "{page}");
        seen.extend(offsets(&page));
        from = page["next_offset"].as_u64().unwrap();
    }
    assert_eq!(seen, (0..25).collect::<Vec<u64>>());
    assert_eq!(from, 25);
}

#[test]
fn a_page_has_a_hundred_messages_unless_told_otherwise() {
    let broker = broker_with(150);
    assert_eq!(offsets(&page(&broker, "?from_offset=0")), (0..100).collect::<Vec<u64>>());
    assert_eq!(offsets(&page(&broker, "?from_offset=140&limit=10000")), (140..150).collect::<Vec<u64>>());
    assert_eq!(offsets(&page(&broker, "?from_offset=149&limit=1")), [149]);
}

#[test]
fn an_empty_topic_gives_an_empty_page() {
    let broker = broker_with(0);
    let page = page(&broker, "?from_offset=0");
    assert!(offsets(&page).is_empty(), "{page}");
    assert_eq!((numbers(&page)[0], numbers(&page)[2]), (0, -1));
}

#[test]
fn a_waiting_reader_is_woken_by_the_publish() {
    let broker = broker_with(3);
    let mut waiting: Vec<_> = (0..4).map(|_| waiting(&broker, 3)).collect();
    broker.publish("t", b"news");
    for connection in &mut waiting {
        let page = connection.response_to("GET").expect(200).data();
        assert_eq!(offsets(&page), [3]);
        assert_eq!(page["next_offset"], 4);
        // The connection is good for more.
        connection.send_request("GET", "/topics/t/messages?from_offset=0&limit=1&wait_ms=25000", &[], b"");
        assert_eq!(offsets(&connection.response_to("GET").expect(200).data()), [0], "there is something already");
    }
}

#[test]
fn a_wait_that_is_in_vain_ends_with_an_empty_page() {
    let broker = broker_with(3);
    let start = Instant::now();
    let page = page(&broker, "?from_offset=3&wait_ms=200");
    assert!(start.elapsed() >= Duration::from_millis(190), "it did not wait");
    assert!(offsets(&page).is_empty(), "{page}");
    assert_eq!(numbers(&page), [3, 0, 2]);
}

#[test]
fn a_wait_ends_when_the_topic_is_deleted() {
    let broker = broker_with(0);
    let mut connection = waiting(&broker, 0);
    // The next answer over another connection shows that the broker goes on while one waits.
    broker.stats("t");
    broker.delete_topic("t");
    connection.response_to("GET").expect_error(404, "topic_not_found");
}

#[test]
fn a_waiting_reader_that_goes_away_is_forgotten() {
    let broker = broker_with(0);
    (0..20).for_each(|_| drop(waiting(&broker, 0)));
    assert_eq!(broker.publish("t", b"x"), 0);
    assert_eq!(offsets(&page(&broker, "?from_offset=0&wait_ms=25000")), [0]);
}

#[test]
fn an_offset_that_is_no_longer_kept_is_told_as_a_gap() {
    let broker = Setup::new().flag("--retention", 5).start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..12);
    let page_below = page(&broker, "?from_offset=2&limit=3");
    assert_eq!(offsets(&page_below), [7, 8, 9]);
    assert_eq!(page_below["gap"], json!({ "requested": 2, "resumed": 7 }));
    assert_eq!(numbers(&page_below), [10, 7, 11]);
    let page_at = page(&broker, "?from_offset=7&limit=3");
    assert!(page_at.get("gap").is_none(), "{page_at}");
}

#[test]
fn an_offset_beyond_the_end_gives_an_empty_page() {
    let broker = broker_with(3);
    let page = page(&broker, "?from_offset=1000");
    assert!(offsets(&page).is_empty(), "{page}");
    assert_eq!(numbers(&page)[1..], [0, 2]);
}

#[test]
fn json_lines_hold_one_message_each() {
    let broker = broker_with(7);
    let answer = broker.get("/topics/t/messages?from_offset=2&limit=3&format=ndjson").expect(200);
    assert!(answer.header("content-type").unwrap().starts_with("application/x-ndjson"), "{answer:?}");
    let lines: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = page(&broker, "?from_offset=2&limit=3");
    assert_eq!(Value::from(lines), expected["messages"]);
    assert!(answer.text().ends_with('\n'));
    let told =
        ["x-next-offset", "x-earliest-offset", "x-latest-offset"].map(|name| answer.header(name).unwrap().to_owned());
    assert_eq!(told, ["5", "0", "6"]);
}

#[test]
fn a_batch_holds_lengths_and_payloads() {
    let broker = broker_with(0);
    let payloads: [&[u8]; 4] = [b"one", b"", b"\0\xff", &[7; 3000]];
    payloads.iter().for_each(|payload| {
        broker.publish("t", payload);
    });
    let answer = broker.get("/topics/t/messages?from_offset=0&format=batch").expect(200);
    assert!(answer.header("content-type").unwrap().starts_with("application/vnd.ringmain.batch"), "{answer:?}");
    let mut expected = Vec::new();
    for payload in payloads {
        expected.extend((payload.len() as u32).to_le_bytes());
        expected.extend(payload);
    }
    assert_eq!(answer.body, expected);
    assert_eq!(answer.header("x-next-offset"), Some("4"));
}

#[test]
fn a_page_of_large_messages_is_bounded_and_can_be_continued() {
    let broker = broker_with(0);
    let large = vec![b'x'; 1 << 20];
    (0..20).for_each(|_| {
        broker.publish("t", &large);
    });
    let mut from = 0;
    let mut seen = 0;
    while from < 20 {
        let page = page(&broker, &format!("?from_offset={from}&limit=100"));
        let found = offsets(&page);
        assert!(!found.is_empty() && found.len() <= 16, "{} MiB in a page", found.len());
        assert_eq!(found[0], from);
        let payload = page["messages"][0]["payload"].as_str().unwrap();
        assert!(STANDARD.decode(payload).unwrap() == large, "a large payload is damaged");
        seen += found.len();
        from = page["next_offset"].as_u64().unwrap();
    }
    assert_eq!(seen, 20);
}
