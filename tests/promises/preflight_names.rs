//! Promise: a page that may use the broker may send a message's own headers, and a preflight promises no method that no path takes.

use crate::broker::{Broker, Setup};
use crate::http::Response;

const ORIGIN: &str = "http://localhost:3000";

fn preflight(broker: &Broker, origin: &str, names: &str) -> Response {
    let headers =
        [("Origin", origin), ("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", names)];
    broker.request("OPTIONS", "/topics/t/publish", &headers, b"")
}

#[test]
fn headers_of_messages_may_be_sent() {
    let broker = Broker::start();
    broker.create_topic("t");
    for names in [
        "x-header-trace",
        "content-type,x-header-a, x-header-b-c_d.1",
        "X-Header-Trace,\tx-key",
        "x-header-a,x-header-a",
    ] {
        let answer = preflight(&broker, ORIGIN, names).expect(204);
        for name in names.split(',') {
            assert!(answer.lists("access-control-allow-headers", name.trim()), "{names}: {answer:?}");
        }
    }
    let headers = [("Origin", ORIGIN), ("X-Header-Trace", "7")];
    broker.request("POST", "/topics/t/publish", &headers, b"x").expect(202);
    let page = broker.get("/topics/t/messages").expect(200).data();
    assert_eq!(page["messages"][0]["headers"]["trace"], "7", "{page}");
}

#[test]
fn nothing_else_is_allowed_by_asking_for_it() {
    let broker = Broker::start();
    broker.create_topic("t");
    for names in ["x-forwarded-for", "x-header", "cookie, x-header-ok", "x-header-a b", "x-header-\u{7f}", "x-header-;"]
    {
        let answer = preflight(&broker, ORIGIN, names);
        let refused = names.split(',').map(str::trim).filter(|name| *name != "x-header-ok");
        for name in refused {
            assert!(!answer.lists("access-control-allow-headers", name), "{name}: {answer:?}");
        }
    }
    let stranger = preflight(&broker, "https://evil.example", "x-header-trace").expect(403);
    assert!(stranger.header("access-control-allow-headers").is_none(), "{stranger:?}");
}

#[test]
fn each_method_that_is_promised_is_taken_somewhere() {
    let broker = Setup::new().flag("--cors-origins", "https://app.example").start();
    broker.create_topic("t");
    let answer = preflight(&broker, "https://app.example", "x-key").expect(204);
    let methods = answer.header("access-control-allow-methods").unwrap().to_owned();
    let targets = ["/topics/t/messages", "/topics/t/publish", "/topics/none", "/health"];
    for method in methods.split(',').map(str::trim) {
        let is_taken = |target: &&str| !matches!(broker.request(method, target, &[], b"").status, 405 | 501);
        assert!(targets.iter().any(is_taken), "no path takes {method}");
    }
}
