//! Promise: every route answers a method that it does not have with 405 and says which it has; HEAD is GET without the
//! body; a method that nobody knows is 501.

use crate::broker::Broker;

/// Each route with the methods that it has.
const ROUTES: &[(&str, &[&str])] = &[
    ("/topics", &["GET", "HEAD", "POST"]),
    ("/topics/t", &["GET", "HEAD", "PATCH", "DELETE"]),
    ("/topics/t/publish", &["POST"]),
    ("/topics/t/messages", &["GET", "HEAD"]),
    ("/topics/t/subscribe/sse", &["GET", "HEAD"]),
    ("/health", &["GET", "HEAD"]),
    ("/health/ready", &["GET", "HEAD"]),
    ("/metrics", &["GET", "HEAD"]),
    ("/dashboard", &["GET", "HEAD"]),
];

fn broker_with_topic() -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..3);
    broker
}

#[test]
fn other_methods_are_405_and_allow_says_which_there_are() {
    let broker = broker_with_topic();
    for (route, methods) in ROUTES {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            if methods.contains(&method) {
                continue;
            }
            let answer = broker.request(method, route, &[], b"").expect_error(405, "method_not_allowed");
            for allowed in *methods {
                assert!(answer.lists("allow", allowed), "{method} {route}: {allowed} is not in {answer:?}");
            }
            assert!(!answer.lists("allow", method), "{method} {route}: {answer:?}");
        }
    }
    assert_eq!(broker.stats("t")["message_count"], 3);
}

#[test]
fn a_route_of_a_topic_that_does_not_exist_has_the_same_methods() {
    let broker = Broker::start();
    broker.request("PUT", "/topics/nothing/publish", &[], b"x").expect_error(405, "method_not_allowed");
    broker.request("PUT", "/nothing", &[], b"x").expect(404);
}

#[test]
fn unknown_methods_are_501() {
    let broker = broker_with_topic();
    for method in ["BREW", "get", "PROPFIND", "X", &"M".repeat(200)] {
        let answer = broker.request(method, "/topics", &[], b"");
        answer.expect(501).expect_envelope_of_error();
    }
    for method in ["TRACE", "CONNECT"] {
        broker.request(method, "/topics", &[], b"").expect_error(405, "method_not_allowed");
    }
}

#[test]
fn head_is_get_without_the_body() {
    let broker = broker_with_topic();
    let mut connection = broker.connect();
    for target in ["/topics", "/topics/t", "/topics/t/messages?from_offset=0", "/health", "/nothing", "/topics/nothing"]
    {
        connection.send_request("GET", target, &[], b"");
        let get = connection.response_to("GET");
        connection.send_request("HEAD", target, &[], b"");
        let head = connection.response_to("HEAD");
        assert_eq!(head.status, get.status, "{target}");
        for name in ["content-type", "content-length"] {
            assert_eq!(head.header(name), get.header(name), "{target}: {name}");
        }
        assert_eq!(get.header("content-length"), Some(get.body.len().to_string().as_str()));
    }
    // No byte of a body may stand before the next answer.
    connection.send_request("HEAD", "/metrics", &[], b"");
    connection.response_to("HEAD").expect(200);
    connection.send_request("GET", "/health", &[], b"");
    connection.response_to("GET").expect(200);
}

#[test]
fn options_tells_what_can_be_done() {
    let broker = broker_with_topic();
    for (route, methods) in ROUTES {
        let answer = broker.request("OPTIONS", route, &[], b"");
        assert!(answer.status == 204, "{route}: {answer:?}");
        for method in *methods {
            assert!(answer.lists("allow", method), "{route}: {method} is not in {answer:?}");
        }
        assert!(answer.body.is_empty(), "{route}: {answer:?}");
    }
    broker.request("OPTIONS", "*", &[], b"").expect(204);
    // The server as a whole cannot be fetched.
    broker.request("GET", "*", &[], b"").expect(400);
}
