//! Promise: the limit on bodies holds for every body, raw ones and those without a length included.

use crate::broker::Setup;
use crate::plenty::JSON;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

const LIMIT_BYTES: usize = 1000;

#[test]
fn no_body_is_above_the_limit() {
    let broker = Setup::new().flag("--max-body-bytes", LIMIT_BYTES).start();
    broker.create_topic("t");
    for length in [LIMIT_BYTES + 1, 5000, 200_000] {
        let answer = broker.request("POST", "/topics/t/publish", &[], &vec![b'x'; length]);
        answer.expect(413).expect_envelope_of_error();
        let body = json!({ "payload": STANDARD.encode(vec![b'x'; length]) }).to_string();
        broker.request("POST", "/topics/t/publish", JSON, body.as_bytes()).expect(413).expect_envelope_of_error();
        let chunked = format!("{length:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(length));
        let headers = [("Transfer-Encoding", "chunked")];
        broker
            .request("POST", "/topics/t/publish", &headers, chunked.as_bytes())
            .expect(413)
            .expect_envelope_of_error();
    }
    broker.request("POST", "/topics/t/publish", &[], &[b'x'; LIMIT_BYTES]).expect(202);
    assert_eq!(broker.stats("t")["message_count"], 1);
}
