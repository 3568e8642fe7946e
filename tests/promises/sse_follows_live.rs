//! Promise: a stream begins at once, replays from where it was asked to, then follows what is published: each message
//! once, in order, on one `data` line.

use crate::broker::{Broker, topic_path};
use crate::deadline::wait_until;
use crate::events::{End, EventStream};
use crate::http::request_bytes;

fn broker_with(count: u64) -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..count);
    broker
}

fn assert_follows(stream: &mut EventStream, offsets: std::ops::Range<u64>) {
    for offset in offsets {
        let message = stream.message();
        assert_eq!(message.offset, offset);
        assert_eq!(message.payload, offset.to_string().as_bytes());
    }
}

#[test]
fn the_head_says_that_nothing_may_hold_the_stream_back() {
    let broker = broker_with(0);
    let mut stream = broker.subscribe("t", "", &[]);
    let head = &stream.head;
    assert!(head.header("content-type").unwrap().starts_with("text/event-stream"));
    assert!(head.lists("cache-control", "no-store") || head.lists("cache-control", "no-cache"), "{head:?}");
    assert_eq!(head.header("x-accel-buffering"), Some("no"), "a proxy must not buffer");
    assert!(head.lists("transfer-encoding", "chunked"), "{head:?}");
    // The first bytes come without any message.
    stream.read_until("the first bytes arrive", |stream| !stream.retries.is_empty());
}

#[test]
fn without_an_offset_only_news_arrive() {
    let broker = broker_with(5);
    let mut stream = broker.subscribe("t", "", &[]);
    broker.wait_for_subscribers("t", 1);
    broker.publish_numbers("t", 5..50);
    assert_follows(&mut stream, 5..50);
}

#[test]
fn whatever_is_published_after_the_head_arrived_is_seen() {
    let broker = broker_with(0);
    let names: Vec<String> = (0..20).map(|number| format!("after-{number}")).collect();
    for name in &names {
        broker.create_topic(name);
        broker.publish(name, b"before");
        let mut stream = broker.subscribe(name, "", &[]);
        broker.publish(name, b"after");
        assert_eq!(stream.message().payload, b"after");
    }
}

#[test]
fn from_an_offset_the_past_comes_first() {
    let broker = broker_with(300);
    let mut from_start = broker.subscribe("t", "?from_offset=0", &[]);
    let mut from_middle = broker.subscribe("t", "?from_offset=150", &[]);
    let mut from_end = broker.subscribe("t", "?from_offset=300", &[]);
    assert_follows(&mut from_start, 0..300);
    broker.wait_for_subscribers("t", 3);
    broker.publish_numbers("t", 300..340);
    assert_follows(&mut from_start, 300..340);
    assert_follows(&mut from_middle, 150..340);
    assert_follows(&mut from_end, 300..340);
}

#[test]
fn a_message_is_told_whole() {
    let broker = broker_with(0);
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    let headers = [("X-Key", "k"), ("X-Header-A", "b")];
    let told = broker.request("POST", &topic_path("t", "/publish"), &headers, b"line\r\nbreak\n").expect(202).data();
    let message = stream.message();
    assert_eq!(message.payload, b"line\r\nbreak\n");
    assert_eq!(message.value["topic"], "t");
    assert_eq!(message.value["timestamp"], told["timestamp"]);
    assert_eq!(message.value["key"], "k");
    assert!(message.value["id"].as_str().unwrap().ends_with("-0-0"));
    assert!(!message.last_id.is_empty() && message.last_id.bytes().all(|byte| byte.is_ascii_graphic()));
}

#[test]
fn large_messages_arrive_whole() {
    let broker = broker_with(0);
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    let sizes = [1 << 20, 0, (1 << 20) - 1, 70_000, 1, 300_000];
    for (index, size) in sizes.into_iter().enumerate() {
        broker.publish("t", &vec![b'a' + index as u8; size]);
    }
    for (index, size) in sizes.into_iter().enumerate() {
        let message = stream.message();
        assert_eq!(message.offset, index as u64);
        assert!(message.payload == vec![b'a' + index as u8; size], "message {index} of {size} bytes is damaged");
    }
}

#[test]
fn many_streams_share_a_topic() {
    let broker = broker_with(0);
    let mut streams: Vec<EventStream> = (0..60).map(|_| broker.subscribe("t", "", &[])).collect();
    broker.wait_for_subscribers("t", 60);
    broker.publish_numbers("t", 0..20);
    streams.iter_mut().for_each(|stream| assert_follows(stream, 0..20));
    drop(streams);
    broker.wait_for_subscribers("t", 0);
    broker.publish("t", b"20");
    assert_follows(&mut broker.subscribe("t", "?from_offset=20", &[]), 20..21);
}

#[test]
fn a_stream_follows_only_its_topic() {
    let broker = broker_with(0);
    broker.create_topic("other");
    let mut stream = broker.subscribe("t", "", &[]);
    broker.wait_for_subscribers("t", 1);
    broker.publish("other", b"not for t");
    broker.publish("t", b"0");
    assert_follows(&mut stream, 0..1);
}

#[test]
fn a_client_of_http_1_0_is_served_until_the_connection_closes() {
    let broker = broker_with(3);
    let mut connection = broker.connect();
    connection.send(b"GET /topics/t/subscribe/sse?from_offset=0 HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n");
    let mut stream = EventStream::from_connection(connection);
    assert!(stream.head.header("transfer-encoding").is_none(), "HTTP/1.0 knows no chunks: {:?}", stream.head);
    assert_follows(&mut stream, 0..3);
    broker.publish("t", b"3");
    assert_follows(&mut stream, 3..4);
    broker.delete_topic("t");
    assert_eq!(stream.wait_for_end(), End::Cut, "the end of the connection is the end of the stream");
}

#[test]
fn a_head_request_makes_no_subscriber() {
    let broker = broker_with(3);
    let mut connection = broker.connect();
    for _ in 0..3 {
        connection.send_request("HEAD", "/topics/t/subscribe/sse?from_offset=0", &[], b"");
        let head = connection.response_to("HEAD").expect(200);
        assert!(head.header("content-type").unwrap().starts_with("text/event-stream"), "{head:?}");
    }
    connection.send_request("GET", "/topics/t", &[], b"");
    assert_eq!(connection.response_to("GET").expect(200).data()["subscriber_count"], 0);
    assert_eq!(broker.request("HEAD", "/topics/nothing/subscribe/sse", &[], b"").status, 404);
}

#[test]
fn a_stream_can_follow_an_answer_on_the_same_connection() {
    let broker = broker_with(2);
    let mut connection = broker.connect();
    let host = broker.address().to_string();
    let mut bytes = request_bytes(&host, "GET", "/topics/t", &[], b"");
    bytes.extend(request_bytes(&host, "GET", "/topics/t/subscribe/sse?from_offset=0", &[], b""));
    connection.send(&bytes);
    assert_eq!(connection.response_to("GET").expect(200).data()["message_count"], 2);
    let mut stream = EventStream::from_connection(connection);
    assert_follows(&mut stream, 0..2);
}

#[test]
fn subscribers_are_counted_and_forgotten() {
    let broker = broker_with(0);
    let streams: Vec<EventStream> = (0..5).map(|_| broker.subscribe("t", "", &[])).collect();
    broker.wait_for_subscribers("t", 5);
    let health = broker.get("/health").expect(200);
    assert_eq!(health.data()["status"], "ok");
    drop(streams);
    wait_until("the subscribers are gone", || broker.stats("t")["subscriber_count"] == 0);
}
