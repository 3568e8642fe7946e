//! Promise: a client that sends its request too slowly is told so and let go, and an idle connection ends in silence.

use crate::broker::{Broker, Setup};
use crate::http::{Connection, Filled};
use std::time::{Duration, Instant};

/// A timeout that a machine which is busy elsewhere does not reach between two steps of a test.
const TIMEOUT_MS: u64 = 2_500;

/// Sends a byte now and then until the broker answers; gives up when it has not after many.
fn drip(connection: &mut Connection, bytes: &mut dyn Iterator<Item = u8>) {
    for byte in bytes.take(300) {
        connection.try_send(&[byte]);
        // Waiting for the answer is the pause between two bytes.
        if connection.fill(Instant::now() + Duration::from_millis(50)) != Filled::Quiet {
            return;
        }
    }
    panic!("300 bytes in 15 s were endured");
}

fn assert_timed_out(connection: &mut Connection) {
    let answer = connection.response_to("POST").expect(408);
    answer.expect_envelope_of_error();
    assert!(answer.lists("connection", "close"), "{answer:?}");
    connection.expect_closed();
}

fn impatient() -> Broker {
    let broker = Setup::new().flag("--header-timeout-ms", TIMEOUT_MS).flag("--body-timeout-ms", TIMEOUT_MS).start();
    broker.create_topic("t");
    broker
}

#[test]
fn half_a_head_times_out() {
    let broker = impatient();
    let parts = ["G", "GET /health HTTP/1.1\r\n", "GET /health HTTP/1.1\r\nHost: localhost\r\n", "POST"];
    let mut connections = parts.map(|part| {
        let mut connection = broker.connect();
        connection.send(part.as_bytes());
        connection
    });
    connections.iter_mut().for_each(assert_timed_out);
}

#[test]
fn a_head_that_drips_times_out() {
    let broker = impatient();
    let mut connection = broker.connect();
    connection.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ");
    drip(&mut connection, &mut std::iter::repeat(b'y'));
    assert_timed_out(&mut connection);
}

#[test]
fn half_a_second_request_times_out() {
    let broker = impatient();
    let mut connection = broker.connect();
    connection.send_request("GET", "/health", &[], b"");
    connection.response_to("GET").expect(200);
    connection.send(b"GET /health HTTP/1.1\r\nHo");
    assert_timed_out(&mut connection);
}

#[test]
fn a_body_that_stops_or_drips_times_out() {
    let broker = impatient();
    let mut half = broker.connect();
    half.send_request("POST", "/topics/t/publish", &[("Content-Length", "10")], b"half");

    let mut connection = broker.connect();
    connection.send_request("POST", "/topics/t/publish", &[("Content-Length", "100000")], b"");
    drip(&mut connection, &mut std::iter::repeat(b'x'));
    assert_timed_out(&mut connection);
    assert_timed_out(&mut half);

    let mut connection = broker.connect();
    connection.send_request("POST", "/topics/t/publish", &[("Transfer-Encoding", "chunked")], b"");
    drip(&mut connection, &mut b"1\r\nx\r\n".iter().copied().cycle());
    assert_timed_out(&mut connection);
    assert_eq!(broker.stats("t")["message_count"], 0);
}

#[test]
fn a_body_that_makes_way_may_take_longer() {
    let broker = Setup::new().flag("--body-timeout-ms", 4_000).start();
    broker.create_topic("t");
    let mut connection = broker.connect();
    let (pieces, piece) = (50, [b'x'; 8 * 1024]);
    let length = (pieces * piece.len()).to_string();
    connection.send_request("POST", "/topics/t/publish", &[("Content-Length", &length)], b"");
    let start = Instant::now();
    for number in 1..=pieces {
        connection.send(&piece);
        if number == pieces {
            break;
        }
        let pause = Instant::now() + Duration::from_millis(100);
        assert_eq!(connection.fill(pause), Filled::Quiet, "cut while it made way");
    }
    assert!(start.elapsed() > Duration::from_millis(4_500));
    assert_eq!(connection.response_to("POST").expect(202).data()["offset"], 0);
}

#[test]
fn an_idle_connection_is_closed_in_silence() {
    let broker = Setup::new().flag("--idle-timeout-ms", TIMEOUT_MS).flag("--header-timeout-ms", 600_000).start();
    let mut unused = broker.connect();
    let mut used = broker.connect();
    used.send_request("GET", "/health", &[], b"");
    used.response_to("GET").expect(200);
    unused.expect_closed();
    used.expect_closed();
}

#[test]
fn waiting_for_messages_is_not_idleness() {
    let broker = Setup::new().flag("--idle-timeout-ms", TIMEOUT_MS).flag("--header-timeout-ms", TIMEOUT_MS).start();
    broker.create_topic("t");
    let mut stream = broker.subscribe("t", "", &[]);
    let mut page = broker.connect();
    page.send_request("GET", "/topics/t/messages?from_offset=0&wait_ms=20000", &[], b"");
    assert_eq!(
        page.fill(Instant::now() + Duration::from_millis(TIMEOUT_MS + 1_000)),
        Filled::Quiet,
        "the waiting reader was disturbed"
    );
    broker.publish("t", b"x");
    assert_eq!(stream.message().payload, b"x");
    assert_eq!(page.response_to("GET").expect(200).data()["messages"][0]["offset"], 0);
}

#[test]
fn a_slow_sender_holds_up_nobody() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut slow: Vec<Connection> = (0..100).map(|_| broker.connect()).collect();
    for (index, connection) in slow.iter_mut().enumerate() {
        let part: &[u8] = if index % 2 == 0 { b"POST /topics/t/publish HT" } else { b"" };
        connection.send(part);
    }
    broker.publish_numbers("t", 0..50);
    assert_eq!(broker.stats("t")["message_count"], 50);
}
