//! Promise: a quiet stream shows that it lives, and each stream is told once, with some spread between clients, how long
//! to wait before it reconnects.

use crate::broker::Setup;
use crate::events::Step;
use std::collections::HashSet;
use std::time::Duration;

#[test]
fn a_quiet_stream_carries_comments() {
    let broker = Setup::new().flag("--heartbeat-ms", 100).start();
    broker.create_topic("t");
    let mut stream = broker.subscribe("t", "", &[]);
    stream.read_until("heartbeats arrive", |stream| stream.comments >= 4);
    broker.publish("t", b"x");
    assert_eq!(stream.message().payload, b"x", "comments disturb no message");
}

#[test]
fn heartbeats_are_as_rare_as_asked() {
    let broker = Setup::new().flag("--heartbeat-ms", 600_000).start();
    broker.create_topic("t");
    let mut stream = broker.subscribe("t", "", &[]);
    stream.read_until("the first bytes arrive", |stream| !stream.retries.is_empty());
    let before = stream.comments;
    assert!(matches!(stream.step(Duration::from_millis(700)), Step::Quiet));
    assert_eq!(stream.comments, before);
}

#[test]
fn retry_is_told_once_and_spread() {
    let broker = Setup::new().flag("--retry-ms", 3000).flag("--heartbeat-ms", 50).start();
    broker.create_topic("t");
    broker.publish("t", b"x");
    let mut values = HashSet::new();
    for _ in 0..40 {
        let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
        stream.message();
        let comments = stream.comments;
        stream.read_until("a heartbeat arrives", |stream| stream.comments > comments + 1);
        assert_eq!(stream.retries.len(), 1, "retry is told once, at the start");
        let value = stream.retries[0];
        assert!((1500..=6000).contains(&value), "{value} ms is far from 3000 ms");
        values.insert(value);
    }
    assert!(values.len() > 3, "all clients at once would come back at the same moment: {values:?}");
}
