//! Promise: going down waits for what is in hand and for nothing else: not for a fetch that waits, half a head, a stream that
//! nobody reads, or a client that does not answer a close frame.

use crate::broker::{Broker, Setup};
use crate::deadline::wait_until;
use crate::reader::{KINDS, Kind, Reader};
use crate::websocket::{CLOSE, EXTENDED, Frame, LAST, TEXT, frame_bytes};
use serde_json::json;
use std::time::{Duration, Instant};

/// Far above what a test waits for: a broker that waits it out fails the test.
const DRAIN_MS: u64 = 600_000;

fn started() -> Broker {
    let mut setup = Setup::new();
    for name in ["--drain-timeout-ms", "--header-timeout-ms", "--body-timeout-ms", "--write-timeout-ms"] {
        setup = setup.flag(name, DRAIN_MS);
    }
    let broker = setup.start();
    broker.create_topic_of("t", 100_000);
    broker
}

#[track_caller]
fn expect_end(mut broker: Broker) {
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn a_waiting_fetch_of_a_group_is_answered() {
    let mut broker = started();
    broker.group_post("t", "g", "fetch", json!({}));
    let wish = json!({ "max": 5, "wait_ms": 60_000 });
    let mut workers: Vec<_> = (0..4)
        .map(|_| {
            let mut connection = broker.connect();
            // The first shows that the connection is served; the second waits.
            let two = [json!({}), wish.clone()].map(|wish| broker.json_request_to("/topics/t/groups/g/fetch", &wish));
            connection.send(&two.concat());
            connection.response_to("POST").expect(200);
            connection
        })
        .collect();
    broker.terminate();
    for worker in &mut workers {
        let answer = worker.response_to("POST").expect(200);
        assert_eq!(answer.data()["messages"], json!([]));
        assert!(answer.lists("connection", "close") || worker.read_to_end().is_empty(), "{answer:?}");
    }
    drop(workers);
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn half_a_head_is_nothing_in_hand() {
    for start in
        [&b"GET /health HT"[..], b"P", b"POST /topics/t/publish HTTP/1.1\r\nHost: localhost\r\nContent-Le", b"\r\n"]
    {
        let broker = started();
        let mut half = broker.connect();
        // After a whole request, so that what follows is known to have a server.
        half.send_request("GET", "/health", &[], b"");
        half.response_to("GET").expect(200);
        half.send(start);
        expect_end(broker);
        half.expect_closed();
    }
}

#[test]
fn readers_that_stopped_reading_are_cut() {
    let broker = started();
    let plain = KINDS.map(|kind| Reader::open(&broker, "t", "", kind));
    let members = KINDS.map(|kind| Reader::open(&broker, "t", "?group=g", kind));
    broker.wait_for_group("t", "g", "members", 3);
    broker.publish_many("t", &vec![b'x'; 100_000], 100);
    expect_end(broker);
    drop((plain, members));
}

#[test]
fn answers_that_nobody_takes_are_cut() {
    let broker = started();
    broker.publish_many("t", &vec![b'x'; 1_000_000], 10);
    let mut deaf = broker.connect_narrow();
    deaf.send(&broker.request_to("GET", "/topics/t/messages?from_offset=0&limit=10", b"").repeat(20));
    deaf.head(Instant::now() + Duration::from_secs(30)).expect("a head");
    expect_end(broker);
    drop(deaf);
}

#[test]
fn a_client_that_answers_no_close_frame_is_not_waited_for() {
    let mut broker = started();
    let mut passive: Vec<_> = ["", "?group=g"].iter().map(|query| broker.websocket("t", query, &[EXTENDED])).collect();
    // One of them stands in the middle of a message.
    passive[1].connection.send(&frame_bytes(LAST | TEXT, &[b' '; 200])[..100]);
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
    for socket in &mut passive {
        let frame = socket.frame(Instant::now() + Duration::from_secs(30)).unwrap();
        let is_going_away = |frame: &Frame| frame.opcode == CLOSE && frame.payload.starts_with(&1001_u16.to_be_bytes());
        assert!(frame.as_ref().is_some_and(is_going_away), "{frame:?}");
    }
}

#[test]
fn all_of_them_together() {
    let broker = started();
    broker.group_post("t", "g", "fetch", json!({}));
    let mut crowd = Vec::new();
    // The first answer of each shows that the broker has what follows.
    let fetches =
        [0, 60_000].map(|wait| broker.json_request_to("/topics/t/groups/g/fetch", &json!({ "wait_ms": wait })));
    let page = |wait: u64| broker.request_to("GET", &format!("/topics/t/messages?from_offset=0&wait_ms={wait}"), b"");
    let half = [&broker.request_to("GET", "/topics/t", b"")[..], b"GET /topics/t HTTP/1.1\r\nHost: loc"].concat();
    for bytes in [fetches.concat(), [page(0), page(60_000)].concat(), half].iter().cycle().take(30) {
        let mut connection = broker.connect_narrow();
        connection.send(bytes);
        connection.response_to("GET").expect(200);
        crowd.push(connection);
    }
    let readers: Vec<_> = KINDS.iter().map(|kind| Reader::open(&broker, "t", "?slow=close", *kind)).collect();
    wait_until("they are heard", || broker.stats("t")["subscriber_count"] == readers.len() as u64);
    assert!(matches!(readers[0], Reader::Stream(_)) && KINDS[0] == Kind::Sse);
    expect_end(broker);
    drop((crowd, readers));
}
