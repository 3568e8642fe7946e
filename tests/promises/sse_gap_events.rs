//! Promise: a stream never passes over messages in silence: what can no longer be told is told as a gap, written so that
//! streamq's clients skip it and `EventSource` hears it.

use crate::broker::{Broker, Setup};
use serde_json::json;

/// A broker whose topic `t` keeps the offsets 7 to 11.
fn broker_with_a_past() -> Broker {
    let broker = Setup::new().flag("--retention", 5).start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..12);
    broker
}

#[test]
fn a_start_below_what_is_kept_is_a_gap() {
    let broker = broker_with_a_past();
    let mut stream = broker.subscribe("t", "?from_offset=2", &[]);
    assert_eq!(stream.control("gap"), json!({ "requested": 2, "resumed": 7 }));
    assert_eq!(stream.message().offset, 7);
    let mut exact = broker.subscribe("t", "?from_offset=7", &[]);
    assert_eq!(exact.message().offset, 7, "the earliest message is no gap");
}

#[test]
fn a_start_beyond_the_end_is_a_gap_and_starts_at_the_end() {
    let broker = broker_with_a_past();
    let mut stream = broker.subscribe("t", "?from_offset=1000", &[]);
    assert_eq!(stream.control("gap"), json!({ "requested": 1000, "resumed": 12 }));
    broker.publish("t", b"12");
    assert_eq!(stream.message().offset, 12);
    let mut exact = broker.subscribe("t", "?from_offset=13", &[]);
    broker.publish("t", b"13");
    assert_eq!(exact.message().offset, 13, "the end itself is no gap");
}

#[test]
fn a_reader_that_was_away_too_long_is_told() {
    let broker = broker_with_a_past();
    let token = broker.subscribe("t", "?from_offset=8", &[]).message().last_id;
    broker.publish_numbers("t", 12..30);
    let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &token)]);
    assert_eq!(stream.control("gap"), json!({ "requested": 9, "resumed": 25 }));
    assert_eq!(stream.message().offset, 25);
    let mut by_number = broker.subscribe("t", "", &[("Last-Event-ID", "8")]);
    assert_eq!(by_number.control("gap"), json!({ "requested": 9, "resumed": 25 }));
}

#[test]
fn a_token_of_a_topic_that_was_deleted_is_told() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..6);
    let token = broker.subscribe("t", "?from_offset=3", &[]).message().last_id;
    broker.delete_topic("t");
    broker.create_topic("t");
    broker.publish_numbers("t", 0..6);
    let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &token)]);
    let gap = stream.control("gap");
    assert_eq!(gap["resumed"], 0, "a new life is read from its earliest message: {gap}");
    assert_eq!(gap["requested"], 4, "{gap}");
    assert_eq!(stream.message().offset, 0, "the messages before the old place were never seen");
}

#[test]
fn a_gap_does_not_disturb_the_resume() {
    let broker = broker_with_a_past();
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    let gap = stream.event();
    assert_eq!(gap.name, "gap");
    if !gap.last_id.is_empty() {
        let mut resumed = broker.subscribe("t", "", &[("Last-Event-ID", &gap.last_id)]);
        assert_eq!(resumed.message().offset, 7, "cut right after the gap was told");
    }
    let seen = stream.message();
    let mut resumed = broker.subscribe("t", "?from_offset=0", &[("Last-Event-ID", &seen.last_id)]);
    assert_eq!(resumed.message().offset, 8);
}
