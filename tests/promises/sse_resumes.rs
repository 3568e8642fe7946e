//! Promise: a stream that was cut goes on after the last event that the client saw, by `Last-Event-ID`.

use crate::broker::Broker;
use crate::events::EventStream;
use serde_json::json;

fn broker_with(count: u64) -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..count);
    broker
}

fn assert_next(stream: &mut EventStream, offsets: std::ops::Range<u64>) {
    let got: Vec<u64> = stream.messages(offsets.clone().count()).iter().map(|message| message.offset).collect();
    assert_eq!(got, offsets.collect::<Vec<u64>>());
}

#[test]
fn the_token_of_any_event_resumes_after_it() {
    let broker = broker_with(12);
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    let tokens: Vec<String> = stream.messages(12).into_iter().map(|message| message.last_id).collect();
    for (index, token) in tokens.iter().enumerate() {
        assert!(token.len() <= 200, "a token is sent back as a header: keep it short: {token}");
        let mut resumed = broker.subscribe("t", "", &[("Last-Event-ID", token)]);
        assert_next(&mut resumed, index as u64 + 1..12);
        broker.wait_for_subscribers("t", 2);
        drop(resumed);
        broker.wait_for_subscribers("t", 1);
    }
}

#[test]
fn what_was_published_meanwhile_is_not_lost() {
    let broker = broker_with(3);
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    let token = stream.messages(3).pop().unwrap().last_id;
    drop(stream);
    broker.publish_numbers("t", 3..8);
    let mut resumed = broker.subscribe("t", "?from_offset=0", &[("Last-Event-ID", &token)]);
    assert_next(&mut resumed, 3..8);
    broker.publish("t", b"8");
    assert_next(&mut resumed, 8..9);
}

#[test]
fn a_plain_number_is_the_offset_that_was_seen_last() {
    let broker = broker_with(10);
    assert_next(&mut broker.subscribe("t", "", &[("Last-Event-ID", "6")]), 7..10);
    assert_next(&mut broker.subscribe("t", "", &[("Last-Event-ID", "0")]), 1..10);
}

#[test]
fn the_header_wins_over_the_query() {
    let broker = broker_with(10);
    assert_next(&mut broker.subscribe("t", "?from_offset=2", &[("Last-Event-ID", "6")]), 7..10);
    let token = broker.subscribe("t", "?from_offset=4", &[]).message().last_id;
    assert_next(&mut broker.subscribe("t", "?from_offset=9", &[("last-event-id", &token)]), 5..10);
}

#[test]
fn polyfills_may_put_the_token_into_the_query() {
    let broker = broker_with(10);
    let token = broker.subscribe("t", "?from_offset=4", &[]).message().last_id;
    for name in ["lastEventId", "last_event_id"] {
        assert_next(&mut broker.subscribe("t", &format!("?from_offset=0&{name}={token}"), &[]), 5..10);
        let both = format!("?{name}={token}");
        assert_next(&mut broker.subscribe("t", &both, &[("Last-Event-ID", "7")]), 8..10);
    }
}

#[test]
fn an_empty_header_is_as_good_as_none() {
    let broker = broker_with(10);
    assert_next(&mut broker.subscribe("t", "?from_offset=8", &[("Last-Event-ID", "")]), 8..10);
}

#[test]
fn a_stream_that_saw_nothing_yet_resumes_without_loss() {
    let broker = broker_with(5);
    let mut stream = broker.subscribe("t", "", &[]);
    // A browser that is cut before the first message has only the id that the stream's first block gave it.
    stream.read_until("the first block gives an id", |stream| !stream.last_id.is_empty());
    let token = stream.last_id.clone();
    drop(stream);
    broker.publish_numbers("t", 5..7);
    assert_next(&mut broker.subscribe("t", "", &[("Last-Event-ID", &token)]), 5..7);
}

#[test]
fn a_token_that_cannot_be_read_is_told_and_everything_is_read_again() {
    let broker = broker_with(3);
    let long = "9".repeat(3000);
    let bad = [
        "-1",
        "x",
        "1~",
        "1~zz",
        "18446744073709551616",
        "1.5",
        "+1",
        "0x1",
        "1~0000000000000000.0",
        "~~~~",
        "é",
        &long,
    ];
    for token in bad {
        let mut stream = broker.subscribe("t", "?from_offset=2", &[("Last-Event-ID", token)]);
        assert_eq!(stream.control("gap"), json!({ "requested": null, "resumed": 0 }), "{token}");
        assert_next(&mut stream, 0..3);
    }
    // Numbers are offsets, and these are beyond the end.
    for token in [u64::MAX, u64::MAX / 2] {
        let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &token.to_string())]);
        assert_eq!(stream.control("gap"), json!({ "requested": token.saturating_add(1), "resumed": 3 }));
    }
}
