//! A request whose end two readers could see differently is refused, with the status that RFC 9112 names; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use ringmain_wire::http::{Framing, HeadLimits, Version, decode_request_head};

/// Header lines (after a valid Host) of an HTTP/1.1 POST, and the status that they are refused with.
const REFUSED: &[(&str, u16)] = &[
    ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
    ("Transfer-Encoding: chunked\r\nContent-Length: 0", 400),
    ("Content-Length: 5\r\nContent-Length: 6", 400),
    ("Content-Length: 5, 6", 400),
    ("Content-Length: 5,", 400),
    ("Content-Length: ,5", 400),
    ("Content-Length: +5", 400),
    ("Content-Length: -5", 400),
    ("Content-Length: 0x5", 400),
    ("Content-Length: 5 5", 400),
    ("Content-Length: 5;a", 400),
    ("Content-Length: 1e3", 400),
    ("Content-Length: 5.0", 400),
    ("Content-Length: ٥", 400),
    ("Content-Length:", 400),
    ("Content-Length: 18446744073709551616", 400),
    ("Content-Length: 99999999999999999999999", 400),
    ("Content-Length : 5", 400),
    ("Content-Length\t: 5", 400),
    (" Content-Length: 5", 400),
    ("X: a\r\n Content-Length: 5", 400),
    ("X: a\r\n\tb", 400),
    ("X: a\rContent-Length: 5", 400),
    ("X: a\nContent-Length: 5", 400),
    ("X: a\r\r\nContent-Length: 5", 400),
    ("X: a\0b", 400),
    ("X\0: b", 400),
    ("X: a\x0bb", 400),
    ("X: a\x7fb", 400),
    (": a", 400),
    ("X", 400),
    ("X Y: a", 400),
    ("X(a): b", 400),
    ("X;: b", 400),
    ("Transfer-Encoding:", 400),
    ("Transfer-Encoding: ,", 400),
    ("Transfer-Encoding: gzip", 400),
    ("Transfer-Encoding: identity", 400),
    ("Transfer-Encoding: chunked, gzip", 400),
    ("Transfer-Encoding: chunked, identity", 400),
    ("Transfer-Encoding: chunked, foo", 400),
    ("Transfer-Encoding: chunked, chunked", 400),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", 400),
    ("Transfer-Encoding : chunked", 400),
    ("Transfer-Encoding: gzip, chunked", 501),
    ("Transfer-Encoding: identity, chunked", 501),
    ("Transfer-Encoding: foo", 501),
    ("Transfer-Encoding: foo, chunked", 501),
    ("Transfer-Encoding: xchunked", 501),
    ("Transfer-Encoding: chunked;a=b", 501),
    ("Transfer-Encoding: \"chunked\"", 501),
    ("Transfer-Encoding: chunked chunked", 501),
    ("Expect: 200-ok", 417),
    ("Expect: 100-continue, other", 417),
];

/// Header lines that have one meaning only.
const ACCEPTED: &[(&str, Framing)] = &[
    ("X: y", Framing::None),
    ("Content-Length: 0", Framing::Length(0)),
    ("Content-Length: 5", Framing::Length(5)),
    ("Content-Length: \t5 ", Framing::Length(5)),
    ("content-length:5", Framing::Length(5)),
    ("Content-Length: 005", Framing::Length(5)),
    ("Content-Length: 5, 5", Framing::Length(5)),
    ("Content-Length: 5\r\nContent-Length: 5", Framing::Length(5)),
    ("Content-Length: 18446744073709551615", Framing::Length(u64::MAX)),
    ("Transfer-Encoding: chunked", Framing::Chunked),
    ("transfer-encoding:\tCHUNKED\t", Framing::Chunked),
    ("Transfer-Encoding: , chunked ,", Framing::Chunked),
    ("Transfer-Encoding:\r\nTransfer-Encoding: chunked", Framing::Chunked),
    ("X-Transfer-Encoding: chunked\r\nContent-Length: 1", Framing::Length(1)),
    ("X: caf\u{e9} \ttab", Framing::None),
];

fn post(version: &str, lines: &str) -> String {
    format!("POST /topics/a/publish HTTP/{version}\r\nHost: a\r\n{lines}\r\n\r\n")
}

#[test]
fn ambiguous_framing_is_refused() {
    for (lines, status) in REFUSED {
        let refusal = decode_request_head(post("1.1", lines).as_bytes(), &HeadLimits::default()).expect_err(lines);
        assert_eq!(refusal.status, *status, "{lines:?}: {refusal}");
        assert!(!refusal.message.is_empty() && !refusal.code.is_empty());
        assert!(!refusal.message.contains(char::is_control), "{lines:?} leaks into {refusal:?}");
    }
}

#[test]
fn unambiguous_framing_is_accepted() {
    for (lines, framing) in ACCEPTED {
        let text = post("1.1", lines);
        let (head, used) = decode_request_head(text.as_bytes(), &HeadLimits::default()).expect(lines).expect(lines);
        assert_eq!((head.framing, used), (*framing, text.len()), "{lines:?}");
    }
}

#[test]
fn http_10_knows_lengths_only() {
    let text = post("1.0", "Transfer-Encoding: chunked");
    let refusal = decode_request_head(text.as_bytes(), &HeadLimits::default()).unwrap_err();
    assert_eq!(refusal.status, 400);
    let text = post("1.0", "Content-Length: 5\r\nExpect: whatever");
    let (head, _) = decode_request_head(text.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
    assert_eq!((head.framing, head.version, head.expect_continue), (Framing::Length(5), Version::Http10, false));
}

#[test]
fn bare_line_feeds_are_refused_everywhere() {
    let good = post("1.1", "Content-Length: 5");
    for (at, _) in good.match_indices("\r\n") {
        let mut text = good.clone();
        text.remove(at);
        let refusal = decode_request_head(text.as_bytes(), &HeadLimits::default()).expect_err(&text);
        assert_eq!(refusal.status, 400, "{text:?}");
    }
}

#[test]
fn bare_carriage_returns_are_refused_everywhere() {
    let good = post("1.1", "Content-Length: 5");
    for (at, _) in good.match_indices('\n') {
        let mut text = good.clone();
        text.replace_range(at..=at, "X");
        let refusal = decode_request_head(text.as_bytes(), &HeadLimits::default()).expect_err(&text);
        assert_eq!(refusal.status, 400, "{text:?}");
    }
}
