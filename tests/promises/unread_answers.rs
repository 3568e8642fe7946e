//! Promise: a client that asks for much and reads nothing makes the broker hold little: it gets its answers one by one, whole,
//! as it takes them.

use crate::broker::Broker;
use serde_json::json;

const MESSAGES: u64 = 8;
const PIPELINED: usize = 40;
/// One answer is about 11 MB; all of them would be 400.
const GROWTH_BYTES_MAX: u64 = 120 << 20;

/// A broker with a topic of 8 MB, and how much memory it holds.
fn started() -> (Broker, u64) {
    let broker = Broker::start();
    broker.create_topic_of("t", MESSAGES);
    broker.publish_many("t", &vec![b'x'; 1_000_000], MESSAGES as usize);
    let held = broker.resident_bytes_peak();
    (broker, held)
}

fn expect_bounded(request: &[u8], method: &str) {
    let (broker, before) = started();
    let mut connection = broker.connect_narrow();
    connection.send(&request.repeat(PIPELINED));
    // A broker that made all answers at once has made them when the first ones arrive.
    let lengths: Vec<usize> = (0..4).map(|_| connection.response_to(method).expect(200).body.len()).collect();
    assert!(lengths.iter().all(|length| *length > 8_000_000 || *length == lengths[3]), "{lengths:?}");
    let growth = broker.resident_bytes_peak() - before;
    assert!(growth < GROWTH_BYTES_MAX, "{} MiB for answers that nobody took", growth >> 20);
    drop(connection);
    broker.get("/health").expect(200);
}

#[test]
fn pages_are_made_as_they_are_taken() {
    for format in ["json", "ndjson", "batch"] {
        let target = format!("/topics/t/messages?limit=100&from_offset=0&format={format}");
        expect_bounded(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes(), "GET");
    }
}

#[test]
fn many_connections_that_read_nothing_hold_little() {
    let (broker, before) = started();
    let request = broker.request_to("GET", "/topics/t/messages?limit=1&from_offset=0", b"");
    let mut crowd: Vec<_> = (0..8).map(|_| broker.connect_narrow()).collect();
    crowd.iter_mut().for_each(|connection| connection.send(&request.repeat(PIPELINED)));
    crowd.iter_mut().for_each(|connection| drop(connection.response_to("GET").expect(200)));
    let growth = broker.resident_bytes_peak() - before;
    assert!(growth < GROWTH_BYTES_MAX, "{} MiB for answers that nobody took", growth >> 20);
    // In the end each has all of them.
    let connection = &mut crowd[0];
    (1..PIPELINED).for_each(|_| drop(connection.response_to("GET").expect(200)));
}

#[test]
fn what_a_group_gives_is_made_as_it_is_taken() {
    let body = json!({ "max": 100, "from_offset": 0 }).to_string();
    let requests: Vec<u8> = (0..PIPELINED)
        .flat_map(|number| {
            let head = format!("POST /topics/t/groups/g{number}/fetch HTTP/1.1\r\nHost: localhost\r\n");
            format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
        })
        .collect();
    let (broker, before) = started();
    let mut connection = broker.connect_narrow();
    connection.send(&requests);
    (0..4).for_each(|_| assert!(connection.response_to("POST").expect(200).body.len() > 500_000));
    let growth = broker.resident_bytes_peak() - before;
    assert!(growth < GROWTH_BYTES_MAX, "{} MiB for answers that nobody took", growth >> 20);
}
