//! Promise: what waits for a connection is bounded however many topics it reads, over either protocol.

use crate::broker::Broker;
use crate::deadline::{growth_during, wait_until};
use crate::several_topics::target;
use crate::websocket::HANDSHAKE;
use std::time::Duration;

const CONNECTIONS: usize = 8;

#[test]
fn connections_that_read_nothing_hold_little_whatever_they_asked_for() {
    let broker = Broker::start();
    let names: Vec<String> = (0..32).map(|number| format!("topic-{number}")).collect();
    let topics: Vec<&str> = names.iter().map(String::as_str).collect();
    for topic in &topics {
        broker.create_topic_of(topic, 100_000);
        // Half a megabyte each: more than a page.
        broker.publish_many(topic, &[b'x'; 4000], 130);
    }
    for (kind, headers) in [("sse", &[][..]), ("ws", &HANDSHAKE[..])] {
        let before = broker.resident_bytes();
        let connections: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let mut connection = broker.connect_narrow();
                connection.send_request("GET", &target(kind, &topics, "&from_offset=0"), headers, b"");
                connection
            })
            .collect();
        broker.wait_for_subscribers(topics[31], CONNECTIONS as u64);
        wait_until("nothing more is read", || {
            growth_during(Duration::from_millis(100), || broker.processor_time_ns()) < 20_000_000
        });
        let grown = broker.resident_bytes().saturating_sub(before);
        // A page of each topic would be 350 kB a topic, and 90 MB together.
        assert!(grown < 40 << 20, "{kind}: {grown} bytes");
        drop(connections);
        broker.wait_for_subscribers(topics[31], 0);
    }
}
