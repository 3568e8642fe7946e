//! Promise: a member that reads and never acknowledges costs the broker what it may hold, not what it was ever given.

use crate::broker::Broker;
use crate::chance::scaled;
use crate::websocket::Heard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// At least 34 bytes were once kept of each.
const MESSAGES: usize = 300_000;
const GROWTH_BYTES_MAX: u64 = 4 << 20;

#[test]
fn what_others_got_or_retention_took_is_forgotten() {
    let broker = Broker::start();
    broker.create_topic_of("t", 1000);
    let mut silent = broker.websocket("t", "?group=g", &[]);
    let messages = scaled(MESSAGES);
    broker.publish_many("t", b"x", 5000);
    let before = broker.resident_bytes();
    let done = AtomicBool::new(false);
    let mut read = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            broker.publish_many("t", b"x", messages);
            done.store(true, Ordering::Release);
        });
        loop {
            match silent.step(Duration::from_millis(100)) {
                Heard::Message(_) => read += 1,
                Heard::Quiet if done.load(Ordering::Acquire) => break,
                Heard::Quiet => {}
                other => panic!("{other:?}"),
            }
        }
    });
    assert!(read > messages / 2, "{read} of {messages} were given");
    let growth = broker.resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "{} KiB after {read} messages", growth >> 10);
    silent.expect_nothing_before_pong();
    assert!(broker.group("t", "g")["pending"].as_u64().unwrap() <= 1000);
}
