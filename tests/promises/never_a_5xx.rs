//! Promise: whatever bytes arrive, the broker answers with a status that blames the client, or closes, and goes on.

use crate::broker::{Broker, Setup};
use crate::chance::{Chance, scaled};
use crate::http::{Filled, request_bytes};
use std::time::{Duration, Instant};

/// Bytes that parsers stumble over.
const STUMBLING_BLOCKS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"%",
    b"%00",
    b"%zz",
    b"/",
    b"//",
    b"..",
    b"?",
    b"&",
    b"=",
    b"#",
    b"\xff",
    b"\xc0\xae",
    b"\xf0\x9f\x9a\x80",
    b"\"",
    b"\\",
    b"\\u",
    b"{",
    b"}",
    b"[",
    b"]",
    b"-1",
    b"0",
    b"99999999999999999999",
    b"1e309",
    b"chunked",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Host: a\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n",
    b"Range: bytes=0-1\r\n",
    b"HTTP/1.1",
    b"POST ",
    b"GET ",
];

fn valid_requests(host: &str) -> Vec<Vec<u8>> {
    let json = [("Content-Type", "application/json")];
    let chunked = [("Transfer-Encoding", "chunked")];
    let keyed = [("X-Key", "k"), ("X-Header-A", "b"), ("Origin", "http://localhost")];
    vec![
        request_bytes(host, "POST", "/topics", &json, br#"{"name":"fresh","storage":"memory","partitions":1}"#),
        request_bytes(host, "GET", "/topics", &[], b""),
        request_bytes(host, "GET", "/topics/t", &[], b""),
        request_bytes(host, "POST", "/topics/t/publish", &json, br#"{"payload":"aGk=","key":"k","headers":{"a":"b"}}"#),
        request_bytes(host, "POST", "/topics/t/publish", &keyed, b"raw body"),
        request_bytes(host, "POST", "/topics/t/publish", &chunked, b"5\r\nhello\r\n0\r\nX: y\r\n\r\n"),
        request_bytes(host, "GET", "/topics/t/messages?from_offset=1&limit=3&wait_ms=5&format=ndjson", &[], b""),
        request_bytes(host, "GET", "/topics/t/messages?from_offset=0&format=batch", &[("Accept", "*/*")], b""),
        request_bytes(
            host,
            "OPTIONS",
            "/topics/t",
            &[("Origin", "http://localhost"), ("Access-Control-Request-Method", "GET")],
            b"",
        ),
        request_bytes(host, "HEAD", "/topics/t/subscribe/sse?from_offset=0", &[("Last-Event-ID", "1")], b""),
        request_bytes(
            host,
            "GET",
            "/metrics",
            &[("Accept", "application/openmetrics-text; version=1.0.0, */*;q=0.1")],
            b"",
        ),
        request_bytes(host, "GET", "/health", &[], b""),
    ]
}

/// Changes a few places of a request.
fn mutate(chance: &mut Chance, request: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_vec();
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len() + 1);
        let length = chance.below(12).min(bytes.len() - at);
        let block = *chance.pick(STUMBLING_BLOCKS);
        match chance.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            1 => drop(bytes.drain(at..at + length)),
            2 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => bytes.truncate(at.max(1)),
            _ => drop(bytes.splice(at..at, block.iter().copied())),
        }
    }
    bytes
}

/// The statuses of all answers in a stream of bytes, found by their status lines.
fn statuses(bytes: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(bytes);
    text.match_indices("HTTP/1.1 ").filter_map(|(at, mark)| text[at + mark.len()..].get(..3)?.parse().ok()).collect()
}

fn assert_none_is_ours(bytes: &[u8], sent: &[u8]) {
    for status in statuses(bytes) {
        // An unknown method or coding is 501, an unknown version 505: both say what the client did.
        let is_allowed = status < 500 || matches!(status, 501 | 505);
        assert!(is_allowed, "{status} for {:?}\n{}", String::from_utf8_lossy(sent), String::from_utf8_lossy(bytes));
    }
}

#[test]
fn requests_damaged_at_random_are_the_clients_fault() {
    let mut chance = Chance::for_test();
    let mut broker = Setup::new().flag("--header-timeout-ms", 4_000).flag("--body-timeout-ms", 4_000).start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..5);
    let valid = valid_requests(&broker.address().to_string());
    for request in &valid {
        let mut connection = broker.connect();
        connection.send(request);
        connection.finish_sending();
        let answered = statuses(&connection.read_to_end());
        assert!(answered.len() == 1 && (200..300).contains(&answered[0]), "the model itself is bad: {answered:?}");
    }
    for round in 0..scaled(40) {
        let requests: Vec<Vec<u8>> = (0..25)
            .map(|_| {
                let model: &Vec<u8> = chance.pick(&valid);
                let mut bytes = mutate(&mut chance, model);
                if chance.below(4) == 0 {
                    let behind: &Vec<u8> = chance.pick(&valid);
                    bytes.extend(behind);
                }
                bytes
            })
            .collect();
        let mut connections: Vec<_> = requests.iter().map(|_| broker.connect()).collect();
        for (connection, request) in connections.iter_mut().zip(&requests) {
            connection.try_send(request);
            connection.finish_sending();
        }
        // A stream or a long wait may have come out of it: nobody waits for the end of those.
        let until = Instant::now() + Duration::from_secs(3);
        for (connection, request) in connections.iter_mut().zip(&requests) {
            while connection.fill(until) == Filled::Bytes {}
            assert_none_is_ours(&connection.pending, request);
        }
        assert!(broker.is_running(), "round {round}: the broker is gone");
    }
    assert_eq!(broker.get("/health").expect(200).data()["status"], "ok");
}

#[test]
fn noise_is_the_clients_fault() {
    let mut chance = Chance::for_test();
    let broker = Broker::start();
    for _ in 0..scaled(100) {
        let noise: Vec<u8> = (0..1 + chance.below(600)).map(|_| chance.below(256) as u8).collect();
        let mut connection = broker.connect();
        connection.try_send(&noise);
        connection.finish_sending();
        let answer = connection.read_to_end();
        assert_none_is_ours(&answer, &noise);
    }
    broker.get("/health").expect(200);
}
