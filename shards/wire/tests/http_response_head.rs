//! The client's side reads how a response ends from its status, its fields and the request's method; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use ringmain_wire::http::{Framing, HeadLimits, Method, Refusal, Version, decode_response_head};

fn framing(method: Method, status_line: &str, lines: &str) -> Result<(Framing, bool), Refusal> {
    let text = format!("HTTP/{status_line}\r\n{lines}\r\n");
    let (head, used) = decode_response_head(text.as_bytes(), &HeadLimits::default(), method)?.expect("it is complete");
    assert_eq!(used, text.len());
    Ok((head.framing, head.keep_alive))
}

#[test]
fn bodies_end_as_the_standard_says() {
    let table = [
        (Method::Get, "1.1 200 OK", "Content-Length: 5\r\n", Framing::Length(5), true),
        (Method::Get, "1.1 200 OK", "Transfer-Encoding: chunked\r\n", Framing::Chunked, true),
        (Method::Get, "1.1 200 OK", "", Framing::UntilClose, false),
        (Method::Get, "1.1 200 OK", "Transfer-Encoding: gzip\r\n", Framing::UntilClose, false),
        (Method::Head, "1.1 200 OK", "Content-Length: 5\r\n", Framing::None, true),
        (Method::Get, "1.1 204 No Content", "", Framing::None, true),
        (Method::Get, "1.1 304 Not Modified", "Content-Length: 5\r\n", Framing::None, true),
        (Method::Get, "1.1 100 Continue", "", Framing::None, true),
        (Method::Get, "1.1 101 Switching Protocols", "Connection: upgrade\r\n", Framing::None, true),
        (Method::Connect, "1.1 200 OK", "", Framing::None, true),
        (Method::Post, "1.1 202", "Content-Length: 0\r\nConnection: close\r\n", Framing::Length(0), false),
        (Method::Get, "1.0 200 OK", "Content-Length: 5\r\n", Framing::Length(5), false),
        (Method::Get, "1.0 200 OK", "Content-Length: 5\r\nConnection: keep-alive\r\n", Framing::Length(5), true),
    ];
    for (method, status_line, lines, expected, keep_alive) in table {
        assert_eq!(framing(method, status_line, lines), Ok((expected, keep_alive)), "{status_line} {lines}");
    }
}

#[test]
fn a_head_tells_status_version_and_fields() {
    let text = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
    let (head, _) = decode_response_head(text, &HeadLimits::default(), Method::Get).unwrap().unwrap();
    assert_eq!((head.status, head.version, head.headers.text("retry-after")), (503, Version::Http11, Some("1")));
    assert_eq!(decode_response_head(&text[..40], &HeadLimits::default(), Method::Get), Ok(None));
}

#[test]
fn what_cannot_be_trusted_is_refused() {
    for (status_line, lines) in [
        ("1.1 200 OK", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        ("1.1 200 OK", "Content-Length: 5\r\nContent-Length: 6\r\n"),
        ("1.1 200 OK", "Content-Length: x\r\n"),
        ("1.1 200 OK", "X : y\r\n"),
        ("1.1 200 OK", "X: y\nZ: w\r\n"),
        ("1.1 20 OK", ""),
        ("2 200 OK", ""),
    ] {
        let refusal = framing(Method::Get, status_line, lines).expect_err(lines);
        assert_eq!((refusal.status, refusal.code), (502, "invalid_response"));
        assert!(!refusal.message.contains("request"), "{refusal}");
    }
}
