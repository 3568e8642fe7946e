//! Promise: a client that has shut its sending side down gets its answers, waiting ones included, and the end right after them.

use crate::broker::{Broker, Setup};
use crate::http::Connection;
use serde_json::json;

fn started() -> Broker {
    // Longer than a test waits: nothing but the end of the answers ends the connection.
    let broker = Setup::new().flag("--idle-timeout-ms", 600_000).flag("--header-timeout-ms", 600_000).start();
    broker.create_topic("t");
    broker
}

fn half_closed(broker: &Broker, requests: &[u8]) -> Connection {
    let mut connection = broker.connect();
    connection.send(requests);
    connection.finish_sending();
    connection
}

#[test]
fn a_waiting_page_is_the_last() {
    let broker = started();
    let request =
        |wait_ms: u64| broker.request_to("GET", &format!("/topics/t/messages?from_offset=0&wait_ms={wait_ms}"), b"");
    let mut connection = half_closed(&broker, &request(200));
    connection.response_to("GET").expect(200);
    connection.expect_closed();
    let mut connection = half_closed(&broker, &request(50).repeat(3));
    (0..3).for_each(|_| drop(connection.response_to("GET").expect(200)));
    connection.expect_closed();
    // Woken by a message, and by the end of the topic.
    let mut connection = half_closed(&broker, &request(60_000));
    broker.publish("t", b"x");
    connection.response_to("GET").expect(200);
    connection.expect_closed();
    let late = broker.request_to("GET", "/topics/t/messages?from_offset=1&wait_ms=60000", b"");
    let mut connection = half_closed(&broker, &late);
    broker.stats("t");
    broker.delete_topic("t");
    connection.response_to("GET").expect(404);
    connection.expect_closed();
}

#[test]
fn whatever_was_asked_is_answered_and_then_comes_the_end() {
    let broker = started();
    let publish = broker.request_to("POST", "/topics/t/publish", b"x");
    let others = ["/health", "/topics", "/topics/t", "/metrics", "/nothing", "/topics/t/messages"];
    let others = others.map(|target| broker.request_to("GET", target, b""));
    let fetch = broker.json_request_to("/topics/t/groups/g/fetch", &json!({}));
    let all = [&others.concat()[..], &fetch, &publish.repeat(20)].concat();
    let mut connection = half_closed(&broker, &all);
    for number in 0..others.len() {
        connection.response_to("GET").expect(if number == 4 { 404 } else { 200 });
    }
    connection.response_to("POST").expect(200);
    (0..20).for_each(|_| drop(connection.response_to("POST").expect(202)));
    connection.expect_closed();
    // What is not whole never will be.
    let mut connection = half_closed(&broker, &[&publish[..], b"GET /heal"].concat());
    connection.response_to("POST").expect(202);
    connection.expect_closed();
}
