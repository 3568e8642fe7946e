//! Promise: a batch is read while it is sent. What is wrong with it is told as soon as it has come, whatever was to follow; what
//! is too large is refused as soon as it is; and nothing of a batch is stored before all of it is there.

use crate::broker::{Broker, Setup};
use crate::deadline::wait_for;
use crate::http::{Connection, Filled, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::{Duration, Instant};

const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");
const PAYLOADS: (&str, &str) = ("Content-Type", "application/vnd.ringmain.batch");
const GOOD: &[u8] = b"{\"payload\":\"YQ==\"}\n";
const BODY_BYTES: usize = 10 << 20;

/// The two ways in which a body's end is known.
const FRAMINGS: [bool; 2] = [true, false];

/// A request whose body of [`BODY_BYTES`] has yet to come.
fn begin(broker: &Broker, kind: (&str, &str), is_chunked: bool, more: &[(&str, &str)]) -> Connection {
    let mut connection = broker.connect();
    let length = BODY_BYTES.to_string();
    let framing = if is_chunked { ("Transfer-Encoding", "chunked") } else { ("Content-Length", length.as_str()) };
    connection.send_request("POST", "/topics/t/publish", &[&[kind, framing], more].concat(), b"");
    connection
}

/// A part of a body as it goes out.
fn part(bytes: &[u8], is_chunked: bool) -> Vec<u8> {
    if !is_chunked {
        return bytes.to_vec();
    }
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn started(setup: Setup) -> Broker {
    let broker = setup.start();
    broker.create_topic("t");
    broker
}

fn told(answer: &Response) -> String {
    answer.json()["message"].as_str().unwrap().to_owned()
}

fn payloads(broker: &Broker) -> Vec<Vec<u8>> {
    let page = broker.get("/topics/t/messages?from_offset=0").expect(200).data();
    let messages = page["messages"].as_array().unwrap().iter();
    messages.map(|message| STANDARD.decode(message["payload"].as_str().unwrap()).unwrap()).collect()
}

/// The answer to the start of a body; then the client, which goes on sending, finds the connection at its end.
#[track_caller]
fn refused(connection: &mut Connection, start: &[u8], is_chunked: bool) -> Response {
    connection.send(&part(start, is_chunked));
    let answer = connection.response_to("POST");
    assert!(answer.lists("connection", "close"), "{answer:?}");
    connection.try_send(&part(&GOOD.repeat(1000), is_chunked));
    connection.expect_closed();
    answer
}

#[test]
fn a_fault_is_told_before_the_rest_is_sent() {
    let broker = started(Setup::new());
    for is_chunked in FRAMINGS {
        let mut connection = begin(&broker, LINES, is_chunked, &[]);
        let answer = refused(&mut connection, b"{\"payload\":\"-\"}\n", is_chunked).expect_error(400, "invalid_base64");
        assert!(told(&answer).starts_with("In line 1 of the body"), "{answer:?}");
        assert!(told(&answer).ends_with("nothing of the batch was stored"), "{answer:?}");

        let mut connection = begin(&broker, LINES, is_chunked, &[]);
        connection.send(&part(&GOOD.repeat(5000), is_chunked));
        connection.send(&part(b"\n{\"payl", is_chunked));
        let answer = refused(&mut connection, b"oad\":5}\n", is_chunked).expect_error(400, "invalid_body");
        assert!(told(&answer).starts_with("In line 5002 of the body"), "{answer:?}");

        let mut connection = begin(&broker, PAYLOADS, is_chunked, &[]);
        let answer = refused(&mut connection, b"\x01\0\0\0x\xff\xff\xff\xff", is_chunked);
        let answer = answer.expect_error(400, "invalid_batch");
        assert!(told(&answer).starts_with("In message 2 of the body"), "{answer:?}");
    }
    assert_eq!(broker.stats("t")["message_count"], 0);
}

#[test]
fn a_fault_in_a_body_that_is_there_whole_leaves_the_connection() {
    let broker = started(Setup::new());
    let mut connection = broker.connect();
    connection.send_request("POST", "/topics/t/publish", &[LINES], b"{\"payload\":\"YQ==\"}\n{");
    connection.response_to("POST").expect_error(400, "invalid_json");
    connection.send_request("POST", "/topics/t/publish", &[LINES], GOOD);
    connection.response_to("POST").expect(202);
}

#[test]
fn a_client_that_asks_first_hears_the_fault_after_its_leave() {
    let broker = started(Setup::new());
    let mut connection = begin(&broker, LINES, false, &[("Expect", "100-continue")]);
    assert_eq!(connection.response_to("POST").status, 100);
    refused(&mut connection, b"[]\n", false).expect_error(400, "invalid_body");
}

#[test]
fn a_fault_is_told_after_the_answers_to_earlier_requests() {
    let broker = started(Setup::new());
    let mut connection = broker.connect();
    connection.send_request("GET", "/topics/t/messages?from_offset=0&wait_ms=20000", &[], b"");
    connection.send_request("POST", "/topics/t/publish", &[LINES, ("Content-Length", "9999999")], b"{\n");
    broker.publish("t", b"news");
    assert_eq!(connection.response_to("GET").expect(200).data()["next_offset"], 1);
    connection.response_to("POST").expect_error(400, "invalid_json");
    connection.expect_closed();
}

#[test]
fn a_batch_that_comes_byte_by_byte_is_stored_when_it_is_whole() {
    let lines = b"{\"payload\":\"YQ==\",\"id\":\"1\"}\r\n\n{\"payload\":\"\"}\n{\"payload\":\"Yg==\"}";
    let framed = b"\x01\0\0\0a\0\0\0\0\x01\0\0\0b";
    for (kind, body) in [(LINES, &lines[..]), (PAYLOADS, &framed[..])] {
        for is_chunked in FRAMINGS {
            let broker = started(Setup::new());
            let length = body.len().to_string();
            let framing =
                if is_chunked { ("Transfer-Encoding", "chunked") } else { ("Content-Length", length.as_str()) };
            let mut connection = broker.connect();
            connection.send_request("POST", "/topics/t/publish", &[kind, framing], b"");
            let bytes: Vec<u8> = body.iter().flat_map(|&byte| part(&[byte], is_chunked)).collect();
            let (last, start) = if is_chunked {
                (&b"0\r\n\r\n"[..], &bytes[..])
            } else {
                bytes.split_last_chunk::<1>().map(|(start, last)| (&last[..], start)).unwrap()
            };
            start.iter().for_each(|&byte| connection.send(&[byte]));
            assert_eq!(broker.stats("t")["message_count"], 0, "stored before it was whole");
            connection.send(last);
            let told = connection.response_to("POST").expect(202).data();
            assert_eq!((&told["first_offset"], &told["count"]), (&0.into(), &3.into()));
            assert_eq!(payloads(&broker), [&b"a"[..], b"", b"b"]);
            // Where the body ended, the next request begins.
            connection.send_request("GET", "/health", &[], b"");
            connection.response_to("GET").expect(200);
        }
    }
}

#[test]
fn what_is_too_large_is_refused_when_it_is() {
    let broker = started(Setup::new().flag("--max-message-bytes", 100).flag("--max-body-bytes", BODY_BYTES));
    let headers = format!("{{\"payload\":\"\",\"headers\":{{\"n\":[\"\"{}]}}}}\n", ",\"\"".repeat(63));
    let table: [(_, Vec<u8>, &str); 5] = [
        (LINES, vec![b' '; 70_000], "In line 1 of the body: It has more than"),
        (LINES, [GOOD, &[b'x'; 70_000]].concat(), "In line 2 of the body: It has more than"),
        (LINES, GOOD.repeat(65_537), "more than 65536 messages"),
        (LINES, headers.repeat(8 * 65_536 / 64 + 1).into_bytes(), "more than 524288 headers"),
        (PAYLOADS, b"\0\0\0\0\x65\0\0\0".to_vec(), "in message 2 of the body: the message has 101 bytes"),
    ];
    for (kind, start, said) in table {
        for is_chunked in FRAMINGS {
            let answer = refused(&mut begin(&broker, kind, is_chunked, &[]), &start, is_chunked);
            let answer = answer.expect_error(413, "payload_too_large");
            assert!(told(&answer).contains(said), "{answer:?}");
        }
    }
    // The whole body's limit holds where its length is told by nothing else.
    let mut connection = begin(&broker, LINES, true, &[]);
    let blank = part(&b" \n".repeat(32 << 10), true);
    let answer = wait_for("the body is too large", || {
        connection.try_send(&blank);
        match connection.fill(Instant::now() + Duration::from_millis(1)) {
            Filled::Quiet => None,
            _ => Some(connection.response_to("POST")),
        }
    });
    answer.expect_error(413, "payload_too_large");
    assert_eq!(broker.stats("t")["message_count"], 0);
}

#[test]
fn what_was_refused_half_way_counts_no_more() {
    // More than all bodies of a core may have, one after the other.
    let broker = started(Setup::new().flag("--cores", 1));
    let start = [&(1_u32 << 20).to_le_bytes()[..], &vec![0; 1 << 20]].concat().repeat(9);
    for _ in 0..30 {
        let mut connection = begin(&broker, PAYLOADS, false, &[]);
        connection.send(&start);
        connection.send(b"\xff\xff\xff\xff");
        connection.response_to("POST").expect_error(400, "invalid_batch");
    }
    let mut connection = begin(&broker, LINES, true, &[]);
    connection.send(&part(GOOD, true));
    connection.send(b"0\r\n\r\n");
    connection.response_to("POST").expect(202);
}
