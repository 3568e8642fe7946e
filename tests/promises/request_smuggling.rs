//! Promise: a request whose ends two readers could see differently is refused and the connection closed, so that nothing
//! hidden in it is ever taken for a request.

use crate::broker::Broker;
use crate::http::Connection;

/// A request that creates a topic whose name shows that it was obeyed.
const HIDDEN: &str = "POST /topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                      Content-Length: 19\r\n\r\n{\"name\":\"smuggled\"}";

/// Sends the bytes with a hidden request behind them, and panics unless the first answer has one of the statuses, is
/// the only one, and the connection is closed.
fn assert_refused(broker: &Broker, what: &str, request: &str, statuses: &[u16]) {
    let mut connection = broker.connect();
    connection.send(request.as_bytes());
    connection.try_send(HIDDEN.as_bytes());
    let answer = connection.try_response_to("POST").unwrap_or_else(|| panic!("{what}: closed without an answer"));
    assert!(statuses.contains(&answer.status), "{what}: {answer:?}");
    answer.expect_envelope_of_error();
    assert!(
        answer.lists("connection", "close"),
        "{what}: the answer does not say that the connection ends: {answer:?}"
    );
    let rest = connection.read_to_end();
    assert!(rest.is_empty(), "{what}: more than one answer: {:?}", String::from_utf8_lossy(&rest));
}

/// A publish with these header lines, each ended by CRLF, and this body.
fn publish(lines: &str, body: &str) -> String {
    format!("POST /topics/t/publish HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n{body}")
}

fn assert_all_refused(cases: &[(&str, &str, &str, &[u16])]) {
    let broker = Broker::start();
    broker.create_topic("t");
    for (what, lines, body, statuses) in cases {
        assert_refused(&broker, what, &publish(lines, body), statuses);
    }
    broker.get("/topics/smuggled").expect_error(404, "topic_not_found");
    assert_eq!(broker.stats("t")["message_count"], 0, "a refused request was stored");
    // The broker is none the worse.
    assert_eq!(broker.publish("t", b"good"), 0);
}

#[test]
fn lengths_that_contradict_or_cannot_be_read_are_refused() {
    assert_all_refused(&[
        ("two different lengths", "Content-Length: 3\r\nContent-Length: 4\r\n", "abcd", &[400]),
        ("a list of different lengths", "Content-Length: 3, 4\r\n", "abcd", &[400]),
        ("a sign", "Content-Length: +3\r\n", "abc", &[400]),
        ("a negative length", "Content-Length: -3\r\n", "abc", &[400]),
        ("hexadecimal", "Content-Length: 0x3\r\n", "abc", &[400]),
        ("a fraction", "Content-Length: 3.0\r\n", "abc", &[400]),
        ("no number", "Content-Length: three\r\n", "abc", &[400]),
        ("an empty length", "Content-Length: \r\n", "", &[400]),
        ("a space inside", "Content-Length: 1 0\r\n", "abc", &[400]),
        ("an overflow of 64 bits", "Content-Length: 18446744073709551617\r\n", "a", &[400, 413]),
        ("a very long number", &format!("Content-Length: {}\r\n", "9".repeat(400)), "a", &[400, 413]),
        ("digits of another script", "Content-Length: ٣\r\n", "abc", &[400]),
    ]);
}

#[test]
fn length_beside_chunks_is_refused() {
    let chunked = "0\r\n\r\n";
    assert_all_refused(&[
        ("length, then chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", chunked, &[400]),
        ("chunks, then length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", chunked, &[400]),
        ("an obfuscated coding", "Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n", chunked, &[400, 501]),
        ("a tab before the coding", "Content-Length: 5\r\nTransfer-Encoding:\tchunked\r\n", chunked, &[400]),
        ("another case", "Content-Length: 5\r\ntransfer-encoding: CHUNKED\r\n", chunked, &[400]),
    ]);
}

#[test]
fn codings_other_than_chunked_are_refused() {
    assert_all_refused(&[
        ("chunked is not last", "Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n", &[400, 501]),
        ("a coding before chunked", "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n", &[501, 400]),
        ("an unknown coding", "Transfer-Encoding: brotli\r\n", "", &[501, 400]),
        ("identity", "Transfer-Encoding: identity\r\n", "", &[501, 400]),
        ("chunked twice", "Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n", &[400, 501]),
        (
            "chunked in two headers",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
            &[400, 501],
        ),
        (
            "two headers, one unknown",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
            "0\r\n\r\n",
            &[400, 501],
        ),
        ("an empty coding", "Transfer-Encoding: \r\n", "", &[400, 501]),
        ("a quoted coding", "Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n", &[400, 501]),
    ]);
}

#[test]
fn header_lines_that_readers_understand_differently_are_refused() {
    assert_all_refused(&[
        ("a space before the colon", "Content-Length : 0\r\n", "", &[400]),
        ("a tab before the colon", "Transfer-Encoding\t: chunked\r\n", "0\r\n\r\n", &[400]),
        ("a folded line", "X-Folded: one\r\n two\r\nContent-Length: 0\r\n", "", &[400]),
        ("a folded coding", "Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n", &[400]),
        ("a first line that is folded", " X: y\r\nContent-Length: 0\r\n", "", &[400]),
        ("a bare carriage return in a value", "X: a\rContent-Length: 9\r\nContent-Length: 0\r\n", "", &[400]),
        ("a bare carriage return in a name", "X\rY: a\r\nContent-Length: 0\r\n", "", &[400]),
        ("NUL in a value", "X: a\0b\r\nContent-Length: 0\r\n", "", &[400]),
        ("NUL in a name", "X\0: a\r\nContent-Length: 0\r\n", "", &[400]),
        ("a line without a colon", "X-Nothing\r\nContent-Length: 0\r\n", "", &[400]),
        ("an empty name", ": a\r\nContent-Length: 0\r\n", "", &[400]),
        ("a control character", "X: a\u{1}b\r\nContent-Length: 0\r\n", "", &[400]),
    ]);
}

#[test]
fn chunks_that_cannot_be_read_are_refused() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    assert_all_refused(&[
        ("no number", chunked, "g\r\nabc\r\n0\r\n\r\n", &[400]),
        ("an empty size", chunked, "\r\nabc\r\n0\r\n\r\n", &[400]),
        ("a sign", chunked, "+3\r\nabc\r\n0\r\n\r\n", &[400]),
        ("a negative size", chunked, "-3\r\nabc\r\n0\r\n\r\n", &[400]),
        ("a prefix", chunked, "0x3\r\nabc\r\n0\r\n\r\n", &[400]),
        ("a space before the size", chunked, " 3\r\nabc\r\n0\r\n\r\n", &[400]),
        ("an overflow", chunked, "ffffffffffffffff1\r\nabc\r\n0\r\n\r\n", &[400, 413]),
        ("the largest size", chunked, "ffffffffffffffff\r\nabc\r\n0\r\n\r\n", &[400, 413]),
        ("no end after the data", chunked, "3\r\nabcd\r\n0\r\n\r\n", &[400]),
        ("a bare line feed after the data", chunked, "3\r\nabc\n0\r\n\r\n", &[400]),
        ("a bare line feed after the size", chunked, "3\nabc\r\n0\r\n\r\n", &[400]),
        ("a bare carriage return after the size", chunked, "3\rabc\r\n0\r\n\r\n", &[400]),
        ("NUL in an extension", chunked, "3;a=\0\r\nabc\r\n0\r\n\r\n", &[400]),
        ("a giant extension", chunked, &format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(100_000)), &[400, 413, 431]),
        ("giant trailers", chunked, &format!("0\r\n{}\r\n", "X: y\r\n".repeat(50_000)), &[400, 413, 431]),
        ("a trailer that is folded", chunked, "0\r\nX: y\r\n z\r\n\r\n", &[400]),
    ]);
}

#[test]
fn hosts_that_contradict_or_are_missing_are_refused() {
    let broker = Broker::start();
    let get = |lines: &str| format!("GET /health HTTP/1.1\r\n{lines}\r\n");
    let hosts = [
        ("no host", ""),
        ("two hosts", "Host: localhost\r\nHost: localhost\r\n"),
        ("two different hosts", "Host: localhost\r\nHost: other\r\n"),
        ("a host with a space", "Host: local host\r\n"),
        ("a host with a path", "Host: localhost/x\r\n"),
        ("a host with a user", "Host: me@localhost\r\n"),
        ("a host with a bad port", "Host: localhost:http\r\n"),
        ("a list", "Host: localhost, localhost\r\n"),
    ];
    for (what, lines) in hosts {
        assert_refused(&broker, what, &get(lines), &[400]);
    }
    broker.get("/topics/smuggled").expect_error(404, "topic_not_found");
}

#[test]
fn request_lines_that_cannot_be_read_are_refused() {
    let broker = Broker::start();
    let cases: [(&str, &str, &[u16]); 15] = [
        ("no version", "GET /health\r\n\r\n", &[400, 505]),
        ("two spaces", "GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        ("a tab", "GET\t/health HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        ("a word too many", "GET /health x HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        ("no target", "GET  HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        ("a space after the version", "GET /health HTTP/1.1 \r\nHost: localhost\r\n\r\n", &[400]),
        ("lower case", "GET /health http/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        ("a bare carriage return", "GET /health HTTP/1.1\rHost: localhost\r\n\r\n", &[400]),
        ("a version of the future", "GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n", &[505, 400]),
        ("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[505, 400, 501]),
        ("version 1.2", "GET /health HTTP/1.10\r\nHost: localhost\r\n\r\n", &[505, 400]),
        ("no method", " /health HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        ("a method with a colon", "GE:T /health HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        ("control characters", "GET /he\u{1}alth HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400]),
        ("another protocol", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\r\n\r\n", &[400]),
    ];
    for (what, request, statuses) in cases {
        assert_refused(&broker, what, request, statuses);
    }
    broker.get("/topics/smuggled").expect_error(404, "topic_not_found");
}

#[test]
fn targets_that_cannot_be_read_are_refused() {
    let broker = Broker::start();
    for target in ["health", "?", "/he#alth", "ftp://localhost/health", "http:/health", "localhost:80"] {
        let answer = broker.request("GET", target, &[], b"").expect(400);
        answer.expect_envelope_of_error();
    }
}

#[test]
fn equal_lengths_and_other_spellings_of_good_requests_are_served_or_refused_but_never_misread() {
    let broker = Broker::start();
    broker.create_topic("t");
    // RFC 9112 lets a server take two equal lengths for one; it may also refuse. Reading on behind the body is the point.
    for lines in ["Content-Length: 3\r\nContent-Length: 3\r\n", "Content-Length: 3, 3\r\n", "Content-Length: 003\r\n"] {
        let mut connection = broker.connect();
        connection.send(publish(lines, "abc").as_bytes());
        let status = connection.response_to("POST").status;
        assert!(matches!(status, 202 | 400), "{lines}: {status}");
        if status == 202 {
            assert_is_usable(&mut connection);
        }
    }
    for lines in ["content-length:3\r\n", "CONTENT-LENGTH: \t 3 \t\r\n", "Content-Length: 3\r\nX-Empty:\r\n"] {
        let mut connection = broker.connect();
        connection.send(publish(lines, "abc").as_bytes());
        connection.response_to("POST").expect(202);
        assert_is_usable(&mut connection);
    }
}

fn assert_is_usable(connection: &mut Connection) {
    connection.send_request("GET", "/health", &[], b"");
    connection.response_to("GET").expect(200);
}

#[test]
fn empty_lines_before_a_request_are_passed_over() {
    let broker = Broker::start();
    let mut connection = broker.connect();
    for _ in 0..3 {
        connection.send(b"\r\n");
        assert_is_usable(&mut connection);
    }
}

#[test]
fn the_absolute_form_is_accepted() {
    let broker = Broker::start();
    let host = broker.address().to_string();
    let mut connection = broker.connect();
    connection.send(format!("GET http://{host}/health HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    connection.response_to("GET").expect(200);
    connection.send(format!("GET http://{host}/topics?x=1 HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    assert_eq!(connection.response_to("GET").expect(200).data(), serde_json::json!([]));
}
