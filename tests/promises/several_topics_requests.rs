//! Promise: a stream of several topics that cannot be given is refused before it starts, with the reason.

use crate::broker::Broker;
use crate::several_topics::target;
use crate::websocket::HANDSHAKE;

#[test]
fn a_request_that_cannot_be_meant_is_refused() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b"]);
    let many: Vec<String> = (0..33).map(|number| format!("t{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let wrong = [
        (target("sse", &["a", "b", "a"], ""), "twice"),
        (target("sse", &many, ""), "32"),
        (target("sse", &["a", "b"], "&group=g"), "group"),
        (target("sse", &["a", "b"], "&from_offset=x"), "from_offset"),
        (target("sse", &["a", "b"], "&format=xml"), "format"),
        (target("sse", &["a", "b"], "&slow=never"), "slow"),
        ("/subscribe/sse".to_owned(), "topic"),
    ];
    for (target, word) in wrong {
        let answer = broker.get(&target).expect_error(400, "invalid_request");
        assert!(answer.json()["message"].as_str().unwrap().contains(word), "{target}: {}", answer.text());
    }
    broker.get(&target("sse", &["a", ".."], "")).expect_error(400, "invalid_name");
    for token in ["7", "nonsense"] {
        let target = target("sse", &["a", "b"], &format!("&last_event_id={token}"));
        broker.get(&target).expect_error(400, "invalid_resume_token");
    }
    broker.request("POST", "/subscribe/sse", &[], b"x").expect_error(405, "method_not_allowed");
}

#[test]
fn a_missing_topic_is_named_before_the_stream_starts() {
    let broker = Broker::start();
    broker.create_topics(&["a", "c"]);
    let mut connection = broker.connect();
    for headers in [&[][..], &HANDSHAKE[..]] {
        let kind = if headers.is_empty() { "sse" } else { "ws" };
        connection.send_request("GET", &target(kind, &["a", "missing", "c"], ""), headers, b"");
        let answer = connection.response_to("GET").expect_error(404, "topic_not_found");
        assert!(answer.json()["message"].as_str().unwrap().contains("missing"), "{}", answer.text());
    }
    // The connection goes on, and nothing of the topics that are there was left behind.
    connection.send_request("GET", "/health", &[], b"");
    connection.response_to("GET").expect(200);
    broker.wait_for_subscribers("a", 0);
    let answer = broker.request("HEAD", &target("sse", &["a", "c"], ""), &[], b"").expect(200);
    assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
}
