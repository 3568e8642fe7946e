//! Promise: a body with a `Content-Encoding` is refused with 415 and nothing is stored, whatever it holds: a compressed message is never
//! taken for a plain one.

use crate::broker::Broker;

const TYPES: [&str; 4] =
    ["application/json", "application/x-ndjson", "application/vnd.ringmain.batch", "application/octet-stream"];

#[test]
fn coded_bodies_are_refused_and_not_stored() {
    let broker = Broker::start();
    broker.create_topic("t");
    for kind in TYPES {
        for coding in ["gzip", "br", "identity, GZIP", "deflate, identity"] {
            let headers = [("Content-Type", kind), ("Content-Encoding", coding)];
            let answer = broker.request("POST", "/topics/t/publish", &headers, b"\x1f\x8b\x08");
            let answer = answer.expect_error(415, "unsupported_encoding");
            assert!(answer.lists("accept-encoding", "identity"), "{answer:?}");
        }
    }
    let coded = [("Content-Encoding", "gzip")];
    broker.request("POST", "/topics", &coded, b"{\"name\":\"u\"}").expect_error(415, "unsupported_encoding");
    broker.request("PATCH", "/topics/t", &coded, b"{}").expect_error(415, "unsupported_encoding");
    broker.request("POST", "/topics/t/groups/g/fetch", &coded, b"{}").expect_error(415, "unsupported_encoding");
    assert_eq!(broker.stats("t")["message_count"], 0);
    broker.get("/topics/u").expect(404);
}

#[test]
fn what_is_no_coding_is_taken() {
    let broker = Broker::start();
    broker.create_topic("t");
    for coding in ["identity", "Identity", "", " , identity"] {
        broker.request("POST", "/topics/t/publish", &[("Content-Encoding", coding)], b"x").expect(202);
    }
    // A request without a body has nothing that could be coded.
    broker.request("GET", "/topics/t", &[("Content-Encoding", "gzip")], b"").expect(200);
}
