//! Promise: asked to end, the broker answers the publishes that it has in hand, tells subscribers when to come back, cuts
//! them so that they do, and exits with 0 in time.

use crate::broker::{Broker, Setup};
use crate::deadline::{LIMIT, wait_until};
use crate::events::{End, Step};
use crate::http::Connection;
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn broker_with_topic(setup: Setup) -> Broker {
    let broker = setup.start();
    broker.create_topic("t");
    broker
}

#[test]
fn an_idle_broker_ends_at_once() {
    let mut broker = broker_with_topic(Setup::new().flag("--drain-timeout-ms", 60_000));
    let _idle: Vec<_> = (0..5).map(|_| broker.connect()).collect();
    let start = Instant::now();
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
    assert!(start.elapsed() < LIMIT, "idle connections hold nobody");
}

#[test]
fn streams_are_told_when_to_come_back_and_cut() {
    let mut broker = broker_with_topic(Setup::new());
    broker.publish_numbers("t", 0..3);
    let mut streams: Vec<_> = (0..20).map(|_| broker.subscribe("t", "?from_offset=0", &[])).collect();
    for stream in &mut streams {
        stream.messages(3);
    }
    broker.terminate();
    let mut waits = Vec::new();
    for stream in &mut streams {
        let ended = stream.step(LIMIT);
        // streamq's clients come back after a cut, not after a response that ends in order.
        assert!(matches!(ended, Step::Ended(End::Cut)), "{ended:?}");
        assert_eq!(stream.retries.len(), 2, "retry is told again at the end");
        waits.push(stream.retries[1]);
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 5, "all would come back at the same moment: {waits:?}");
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn a_publish_in_hand_is_answered() {
    let mut broker = broker_with_topic(Setup::new());
    let mut connection = broker.connect();
    let headers = [("Expect", "100-continue"), ("Content-Length", "5")];
    connection.send_request("POST", "/topics/t/publish", &headers, b"");
    // The permission to go on shows that the broker has the request in hand.
    assert_eq!(connection.response_to("POST").status, 100);
    broker.terminate();
    wait_until("the broker accepts nobody any more", || TcpStream::connect(broker.address()).is_err());
    connection.send(b"hello");
    let answer = connection.response_to("POST").expect(202);
    assert_eq!(answer.data()["offset"], 0);
    assert!(answer.lists("connection", "close"), "{answer:?}");
    connection.expect_closed();
    // A client that saw the end closes its side; one that does not is waited for a few seconds.
    drop(connection);
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn every_publish_is_answered_or_cut_but_none_is_half_answered() {
    let mut broker = broker_with_topic(Setup::new());
    let mut connections: Vec<_> = (0..16).map(|_| broker.connect()).collect();
    for connection in &mut connections {
        (0..8).for_each(|_| connection.send_request("POST", "/topics/t/publish", &[], b"x"));
    }
    // The first answer of each shows that the broker is at it.
    let first = |connection: &mut Connection| connection.response_to("POST").expect(202).data();
    let mut offsets: Vec<u64> =
        connections.iter_mut().map(|connection| first(connection)["offset"].as_u64().unwrap()).collect();
    broker.terminate();
    for connection in &mut connections {
        while let Some(answer) = connection.try_response_to("POST") {
            if answer.status == 202 {
                offsets.push(answer.data()["offset"].as_u64().unwrap());
            } else {
                answer.expect(503);
            }
        }
        assert!(connection.pending.is_empty(), "half an answer: {:?}", connection.pending_text());
    }
    let answered = offsets.len();
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len(), answered, "two publishes were told one offset");
    drop(connections);
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn a_client_that_never_finishes_does_not_hold_the_end_up() {
    let setup = Setup::new().flag("--drain-timeout-ms", 700).flag("--body-timeout-ms", 120_000);
    let mut broker = broker_with_topic(setup.flag("--write-timeout-ms", 120_000));
    let mut half = broker.connect();
    half.send_request("POST", "/topics/t/publish", &[("Expect", "100-continue"), ("Content-Length", "5")], b"");
    assert_eq!(half.response_to("POST").status, 100);
    half.send(b"he");
    let mut waiting = broker.connect();
    waiting.send_request("GET", "/topics/t/messages?from_offset=0&wait_ms=60000", &[], b"");
    let asleep = broker.subscribe("t", "?from_offset=0", &[]);
    let payload = vec![b'x'; 500_000];
    (0..30).for_each(|_| {
        broker.publish("t", &payload);
    });
    let start = Instant::now();
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
    assert!(start.elapsed() < Duration::from_millis(700) + LIMIT / 2, "took {:?}", start.elapsed());
    drop(asleep);
}

#[test]
fn readers_that_wait_are_answered_at_the_end() {
    let mut broker = broker_with_topic(Setup::new());
    let mut waiting = broker.connect();
    // The first shows that the connection is served; the second waits longer than the test does.
    let pages = [0, 60_000]
        .map(|wait_ms| broker.request_to("GET", &format!("/topics/t/messages?from_offset=0&wait_ms={wait_ms}"), b""));
    waiting.send(&pages.concat());
    waiting.response_to("GET").expect(200);
    broker.terminate();
    assert_eq!(waiting.response_to("GET").expect(200).data()["messages"], serde_json::json!([]));
    drop(waiting);
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn an_interrupt_drains_too() {
    let mut broker = broker_with_topic(Setup::new());
    let mut stream = broker.subscribe("t", "", &[]);
    broker.interrupt();
    assert_eq!(stream.wait_for_end(), End::Cut);
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}
