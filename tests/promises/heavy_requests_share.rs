//! Promise: one connection that asks for much work in one packet does not keep a core from the others.

use crate::broker::Broker;
use crate::plenty::expect_health;
use std::time::{Duration, Instant};

const TOPICS: usize = 1000;
const PIPELINED: usize = 120;
/// A machine that is busy elsewhere may let all of the work pass before the first question: such a throw says nothing.
const THROWS: usize = 30;

fn started() -> Broker {
    let broker = Broker::start();
    let mut connection = broker.connect();
    for number in 0..TOPICS {
        let body = serde_json::json!({ "name": format!("t{number}"), "retention": { "max_messages": 10_000 } });
        connection.send(&broker.json_request_to("/topics", &body));
        connection.response_to("POST").expect(201);
    }
    broker.publish_many("t0", b"x", 10_000);
    broker
}

/// How many answers have come, as far as they are bodiless.
fn heads(bytes: &[u8]) -> usize {
    bytes.windows(9).filter(|bytes| bytes == b"HTTP/1.1 ").count()
}

#[track_caller]
fn expect_shared(broker: &Broker, method: &str, target: &str) {
    let shared = (0..THROWS).any(|_| {
        let mut probes = broker.probes();
        let mut greedy = broker.connect();
        greedy.send(&broker.request_to(method, target, b"").repeat(PIPELINED));
        expect_health(&mut probes);
        // What has come until now came before the others were answered: one look, because more comes all the time.
        let _ = greedy.fill(Instant::now() + Duration::from_millis(1));
        heads(&greedy.pending) < PIPELINED
    });
    assert!(shared, "{PIPELINED} × {method} {target} were answered before anybody else");
}

#[test]
fn scrapes_lists_and_pages_let_others_pass() {
    let broker = started();
    for target in ["/metrics", "/topics", "/topics/t0/messages?limit=10000"] {
        // Answers without bodies stop nobody by their bytes.
        expect_shared(&broker, "HEAD", target);
        let mut probes = broker.probes();
        let mut greedy = broker.connect_narrow();
        greedy.send(&broker.request_to("GET", target, b"").repeat(PIPELINED));
        expect_health(&mut probes);
    }
}
