//! Promise: a client that was told everything and does not hang up is not waited for when the broker goes down.

use crate::broker::{Broker, Setup};
use crate::reader::{KINDS, Kind, Reader, Told};
use std::time::{Duration, Instant};

/// Below the time for which a broker that stays lets such a client hang up by itself, and far above what going down takes.
const LIMIT: Duration = Duration::from_secs(4);

/// A broker that waits its drain time out fails the test.
fn started() -> Broker {
    let mut setup = Setup::new();
    for name in ["--drain-timeout-ms", "--header-timeout-ms", "--body-timeout-ms", "--write-timeout-ms"] {
        setup = setup.flag(name, 600_000);
    }
    setup.start()
}

#[track_caller]
fn expect_end(broker: &mut Broker) {
    let asked = Instant::now();
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
    assert!(asked.elapsed() < LIMIT, "took {:?}", asked.elapsed());
}

/// Readers of every kind of a topic that is gone, all of which have been told so.
fn told_readers(broker: &Broker, kinds: &[Kind]) -> Vec<Reader> {
    broker.create_topic("t");
    let mut readers: Vec<_> = kinds.iter().map(|kind| Reader::open(broker, "t", "", *kind)).collect();
    broker.wait_for_subscribers("t", readers.len() as u64);
    broker.delete_topic("t");
    for reader in &mut readers {
        assert!(matches!(reader.next(), Told::End(_)));
    }
    readers
}

#[test]
fn streams_of_a_topic_that_is_gone() {
    let mut broker = started();
    let streams = told_readers(&broker, &[Kind::Sse; 10]);
    expect_end(&mut broker);
    drop(streams);
}

#[test]
fn readers_of_every_kind() {
    let mut broker = started();
    let readers = told_readers(&broker, &KINDS);
    expect_end(&mut broker);
    drop(readers);
}

#[test]
fn clients_that_had_their_last_answer() {
    let mut broker = started();
    broker.create_topic("t");
    let mut connections: Vec<_> = (0..6).map(|_| broker.connect()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        match number % 3 {
            0 => connection.send_request("GET", "/health", &[("Connection", "close")], b""),
            // Refused with most of its body still to come.
            1 => connection.send_request("POST", "/topics/t/publish", &[("Content-Length", "99999999999")], b""),
            _ => connection.send(b"no request\r\n\r\n"),
        }
    }
    for (number, connection) in connections.iter_mut().enumerate() {
        let answer = connection.response_to("GET");
        assert_eq!(answer.status == 200, number % 3 == 0, "{answer:?}");
        connection.expect_closed();
    }
    expect_end(&mut broker);
    drop(connections);
}
