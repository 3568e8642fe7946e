//! Promise: a probe is told whether the broker lives and whether it is ready.

use crate::broker::Broker;

#[test]
fn health_is_ok_and_cheap_to_ask() {
    let broker = Broker::start();
    let answer = broker.get("/health").expect(200);
    assert_eq!(answer.data()["status"], "ok");
    assert!(answer.lists("cache-control", "no-store") || answer.header("cache-control").is_none());
    let ready = broker.get("/health/ready").expect(200);
    assert_eq!(ready.data()["status"], "ready");
    let mut connection = broker.connect();
    for _ in 0..100 {
        connection.send_request("GET", "/health", &[("Accept", "*/*")], b"");
        connection.response_to("GET").expect(200);
    }
}
