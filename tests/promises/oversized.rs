//! Promise: what is too large is refused with a status that the client can read, even while it is still sending, and it
//! costs the broker no memory and no other client.

use crate::broker::{Broker, Setup};
use crate::http::Connection;
use std::io::Write as _;
use std::thread;

const MIB: usize = 1 << 20;

fn broker_with_topic() -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let broker = Broker::start();
    let long_line = format!("X: {}\r\n", "y".repeat(100_000));
    let many_lines = "X: y\r\n".repeat(5_000);
    for lines in [long_line, many_lines] {
        let mut connection = broker.connect();
        connection.try_send(format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n").as_bytes());
        let answer = connection.response_to("GET").expect(431);
        answer.expect_envelope_of_error();
        connection.expect_closed();
    }
}

#[test]
fn a_head_without_end_is_refused_before_it_ends() {
    let broker = Broker::start();
    let mut connection = broker.connect();
    connection.try_send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ");
    connection.try_send(&vec![b'y'; 200_000]);
    connection.response_to("GET").expect(431).expect_envelope_of_error();
    connection.expect_closed();
}

#[test]
fn a_target_that_is_too_long_is_refused() {
    let broker = Broker::start();
    for target in [format!("/topics/{}", "a".repeat(100_000)), format!("/topics?x={}", "a".repeat(100_000))] {
        let mut connection = broker.connect();
        connection.try_send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        connection.response_to("GET").expect(414).expect_envelope_of_error();
        connection.expect_closed();
    }
    let mut endless = broker.connect();
    endless.try_send(b"GET /");
    endless.try_send(&vec![b'a'; 100_000]);
    endless.response_to("GET").expect(414);
}

#[test]
fn a_message_at_the_limit_is_taken_and_one_above_is_not() {
    let broker = broker_with_topic();
    assert_eq!(broker.publish("t", &vec![b'x'; MIB]), 0);
    let answer = broker.request("POST", "/topics/t/publish", &[], &vec![b'x'; MIB + 1]);
    answer.expect_error(413, "payload_too_large");
    let small = Setup::new().flag("--max-message-bytes", 100).start();
    small.create_topic("t");
    assert_eq!(small.publish("t", &[b'x'; 100]), 0);
    small.request("POST", "/topics/t/publish", &[], &[b'x'; 101]).expect_error(413, "payload_too_large");
    assert_eq!(small.stats("t")["message_count"], 1);
}

#[test]
fn a_message_in_json_is_measured_by_its_payload() {
    let broker = Setup::new().flag("--max-message-bytes", 300).start();
    broker.create_topic("t");
    let send = |payload: String| {
        let body = format!("{{\"payload\":\"{payload}\"}}");
        broker.request("POST", "/topics/t/publish", &[("Content-Type", "application/json")], body.as_bytes())
    };
    send("A".repeat(400)).expect(202);
    send("A".repeat(404)).expect_error(413, "payload_too_large");
}

/// Says that a large body comes and sends it all from another thread while the answer is read.
fn send_while_reading(mut connection: Connection, head: &str, body: Vec<u8>) {
    connection.send(head.as_bytes());
    let mut sender = connection.sender();
    let sending = thread::spawn(move || {
        // The broker may close before all of it went out.
        let _ = sender.write_all(&body);
    });
    connection.response_to("POST").expect_error(413, "payload_too_large");
    drop(connection.read_to_end());
    sending.join().unwrap();
}

#[test]
fn the_refusal_of_a_large_body_can_be_read_while_sending() {
    let broker = broker_with_topic();
    for _ in 0..4 {
        let length = 20 * MIB;
        let head = format!("POST /topics/t/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        send_while_reading(broker.connect(), &head, vec![b'x'; length]);
    }
    assert_eq!(broker.publish("t", b"good"), 0);
}

#[test]
fn the_refusal_of_a_large_body_can_be_read_after_all_was_sent() {
    let broker = broker_with_topic();
    for length in [2 * MIB, 17 * MIB] {
        let mut connection = broker.connect();
        let head = format!("POST /topics/t/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        connection.send(head.as_bytes());
        // A simple client sends everything before it looks for an answer.
        connection.send(&vec![b'x'; length]);
        connection.response_to("POST").expect_error(413, "payload_too_large");
    }
}

#[test]
fn a_large_chunked_body_is_refused_too() {
    let broker = broker_with_topic();
    let head = "POST /topics/t/publish HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut chunk = format!("{:x}\r\n", 64 * 1024).into_bytes();
    chunk.extend(vec![b'x'; 64 * 1024]);
    chunk.extend(b"\r\n");
    let mut body = chunk.repeat(20 * 16);
    body.extend(b"0\r\n\r\n");
    send_while_reading(broker.connect(), head, body);
    let mut many_small = b"1\r\nx\r\n".repeat(MIB + 10);
    many_small.extend(b"0\r\n\r\n");
    send_while_reading(broker.connect(), head, many_small);
    assert_eq!(broker.publish("t", b"good"), 0);
}

#[test]
fn a_body_is_measured_where_none_is_expected() {
    let broker = broker_with_topic();
    for (method, target) in [("GET", "/topics"), ("DELETE", "/topics/t"), ("GET", "/health"), ("POST", "/nothing")] {
        let mut connection = broker.connect();
        connection.send_request(method, target, &[("Content-Length", "99999999999")], b"");
        connection.try_send(&vec![b'x'; 3 * MIB]);
        let answer = connection.response_to(method);
        assert!((200..500).contains(&answer.status), "{method} {target}: {answer:?}");
        assert!(answer.lists("connection", "close") || answer.status == 413, "{answer:?}");
    }
    // A small body that nobody needs is passed over and the connection goes on.
    let mut connection = broker.connect();
    for _ in 0..3 {
        connection.send_request("GET", "/health", &[], b"a body that nobody needs");
        connection.response_to("GET").expect(200);
    }
}

#[test]
fn a_large_body_that_is_announced_holds_no_memory() {
    let broker = broker_with_topic();
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", broker.process_id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    };
    let before = memory();
    let mut connections: Vec<Connection> = (0..200).map(|_| broker.connect()).collect();
    for connection in &mut connections {
        connection.send_request("POST", "/topics/t/publish", &[("Content-Length", "1000000")], b"");
        connection.send(b"only a little");
    }
    assert_eq!(broker.publish("t", b"good"), 0);
    let grown = memory().saturating_sub(before);
    assert!(grown < 64 * MIB, "200 announced megabytes cost {grown} bytes before they came");
}
