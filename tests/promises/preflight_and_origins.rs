//! Promise: pages of the user's own machine may use a broker on loopback, pages of strangers may not, and what a page may
//! see it can read, errors included.

use crate::broker::{Broker, Setup};
use crate::http::Response;

const OURS: &[&str] = &["http://localhost", "http://localhost:3000", "https://127.0.0.1:8443", "http://[::1]:5173"];
const STRANGERS: &[&str] = &[
    "http://evil.example",
    "https://evil.example:443",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://evil.example/localhost",
    "http://localhost@evil.example",
    "http://[::1].evil.example",
    "http://[::1]evil.example",
    "null",
    "http://",
    "localhost",
    "file://",
];

fn broker_with_topic(setup: Setup) -> Broker {
    let broker = setup.start();
    broker.create_topic("t");
    broker
}

fn preflight(broker: &Broker, target: &str, origin: &str, method: &str) -> Response {
    let headers = [
        ("Origin", origin),
        ("Access-Control-Request-Method", method),
        ("Access-Control-Request-Headers", "content-type, last-event-id"),
    ];
    broker.request("OPTIONS", target, &headers, b"")
}

#[test]
fn a_preflight_of_our_own_pages_is_granted() {
    let broker = broker_with_topic(Setup::new());
    let routes =
        [("/topics", "POST"), ("/topics/t", "DELETE"), ("/topics/t/publish", "POST"), ("/topics/t/messages", "GET")];
    for origin in OURS {
        for (target, method) in routes {
            let answer = preflight(&broker, target, origin, method).expect(204);
            assert_eq!(answer.header("access-control-allow-origin"), Some(*origin));
            assert!(answer.lists("access-control-allow-methods", method), "{answer:?}");
            for name in ["Content-Type", "Last-Event-ID", "Authorization", "Idempotency-Key", "X-Key"] {
                assert!(answer.lists("access-control-allow-headers", name), "{name}: {answer:?}");
            }
            assert!(answer.header("access-control-max-age").is_some(), "{answer:?}");
            assert!(answer.lists("vary", "Origin"), "{answer:?}");
            assert!(answer.body.is_empty() && answer.header("content-length").is_none_or(|length| length == "0"));
        }
    }
}

#[test]
fn our_own_pages_can_read_answers_and_errors() {
    let broker = broker_with_topic(Setup::new());
    let get = |target: &str| broker.request("GET", target, &[("Origin", "http://localhost:3000")], b"");
    let answers =
        [get("/topics").expect(200), get("/nothing").expect(404), get("/topics/t/messages?limit=x").expect(400)];
    for answer in answers {
        assert_eq!(answer.header("access-control-allow-origin"), Some("http://localhost:3000"));
        assert!(answer.lists("vary", "Origin"), "{answer:?}");
    }
    let page = get("/topics/t/messages?from_offset=0&format=ndjson").expect(200);
    for name in ["X-Next-Offset", "X-Earliest-Offset", "X-Latest-Offset"] {
        assert!(page.lists("access-control-expose-headers", name), "{name}: {page:?}");
    }
    let refused = broker.request("PUT", "/topics", &[("Origin", "http://localhost:3000")], b"").expect(405);
    assert_eq!(refused.header("access-control-allow-origin"), Some("http://localhost:3000"));
    let stream = broker.subscribe("t", "", &[("Origin", "http://localhost:3000")]);
    assert_eq!(stream.head.header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert!(stream.head.lists("vary", "Origin"));
}

#[test]
fn a_request_that_cannot_be_read_is_answered_readably() {
    let broker = Setup::new().flag("--header-timeout-ms", 300).flag("--body-timeout-ms", 300).start();
    broker.create_topic("t");
    let mut connection = broker.connect();
    let headers = [("Origin", "http://localhost:3000"), ("Content-Length", "10")];
    connection.send_request("POST", "/topics/t/publish", &headers, b"half");
    let answer = connection.response_to("POST").expect(408);
    assert_eq!(answer.header("access-control-allow-origin"), Some("http://localhost:3000"), "also when it timed out");
    let large =
        broker.request("POST", "/topics/t/publish", &[("Origin", "http://localhost:3000")], &vec![b'x'; 2 << 20]);
    assert_eq!(large.expect(413).header("access-control-allow-origin"), Some("http://localhost:3000"));
}

#[test]
fn strangers_pages_are_refused_before_anything_happens() {
    let broker = broker_with_topic(Setup::new());
    for origin in STRANGERS {
        let answer = broker.request("POST", "/topics/t/publish", &[("Origin", origin)], b"x");
        answer.expect_error(403, "forbidden_origin");
        broker.request("GET", "/topics", &[("Origin", origin)], b"").expect_error(403, "forbidden_origin");
        let subscribe = broker.request("GET", "/topics/t/subscribe/sse", &[("Origin", origin)], b"");
        let subscribe = subscribe.expect_error(403, "forbidden_origin");
        assert!(subscribe.header("access-control-allow-origin").is_none(), "{subscribe:?}");
        let answer = preflight(&broker, "/topics/t/publish", origin, "POST");
        assert!(answer.header("access-control-allow-origin").is_none(), "{origin}: {answer:?}");
        assert_eq!(answer.status, 403, "{origin}: {answer:?}");
    }
    assert_eq!(broker.stats("t")["message_count"], 0);
}

#[test]
fn another_host_is_refused_so_that_names_cannot_be_rebound() {
    let broker = broker_with_topic(Setup::new());
    let port = broker.address().port();
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "localhost.evil.example".to_owned(),
        "10.0.0.1".to_owned(),
    ] {
        let answer = broker.request("POST", "/topics/t/publish", &[("Host", &host)], b"x");
        answer.expect_error(403, "forbidden_origin");
    }
    // A forwarded port is another one, and the default port is often left out.
    let [numeric, named, sixth] = ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}"));
    for host in [&numeric, &named, &sixth, "LOCALHOST", "127.0.0.1", "localhost:1", "[::1]"] {
        broker.request("GET", "/topics", &[("Host", host)], b"").expect(200);
    }
    assert_eq!(broker.stats("t")["message_count"], 0);
    // The target's own authority wins over the header.
    let mut connection = broker.connect();
    connection.send(b"GET http://evil.example/topics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    connection.response_to("GET").expect_error(403, "forbidden_origin");
}

#[test]
fn listed_origins_are_granted_beside_our_own() {
    let setup = Setup::new().variable("RINGMAIN_CORS_ORIGINS", "https://app.example, https://admin.example:8443");
    let broker = broker_with_topic(setup);
    for origin in ["https://app.example", "https://admin.example:8443"] {
        let answer = broker.request("GET", "/topics", &[("Origin", origin)], b"").expect(200);
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        preflight(&broker, "/topics/t/publish", origin, "POST").expect(204);
    }
    for origin in ["http://app.example", "https://app.example:444", "https://admin.example", "https://other.example"] {
        broker.request("GET", "/topics", &[("Origin", origin)], b"").expect_error(403, "forbidden_origin");
    }
}

#[test]
fn every_origin_is_granted_when_the_operator_says_so() {
    let broker = broker_with_topic(Setup::new().flag("--cors-origins", "*"));
    for origin in ["https://app.example", "http://localhost:3000"] {
        let answer = broker.request("GET", "/topics", &[("Origin", origin)], b"").expect(200);
        let granted = answer.header("access-control-allow-origin");
        assert!(granted == Some("*") || granted == Some(origin), "{answer:?}");
    }
}

#[test]
fn without_an_origin_nothing_is_said_about_origins() {
    let broker = broker_with_topic(Setup::new());
    let answer = broker.get("/topics").expect(200);
    assert!(answer.header("access-control-allow-origin").is_none(), "{answer:?}");
}
