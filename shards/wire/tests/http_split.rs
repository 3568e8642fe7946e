//! However the network cuts a request, it decodes to the same head or the same refusal; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use proptest::prelude::*;
use ringmain_wire::http::{HeadLimits, Method, decode_request_head, decode_response_head};

/// Decodes ever longer prefixes until there is an answer, as a session does that receives byte by byte.
fn byte_by_byte(input: &[u8], limits: &HeadLimits) -> String {
    let answer = (0..=input.len()).find_map(|end| decode_request_head(&input[..end], limits).transpose());
    format!("{answer:?}")
}

fn at_once(input: &[u8], limits: &HeadLimits) -> String {
    format!("{:?}", decode_request_head(input, limits).transpose())
}

/// Lines that are good, bad, or bad only together.
fn line() -> impl Strategy<Value = String> {
    let lines = [
        "Host: a",
        "Host: b:80",
        "Content-Length: 5",
        "Content-Length: 6",
        "Content-Length: x",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
        "Connection: close",
        "Expect: 100-continue",
        "Expect: x",
        "X : y",
        " folded",
        "X: a\nY: b",
        "X: a\rb",
        "X: \u{e9}",
        "nothing",
        ": y",
        "Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    prop_oneof![4 => Just("Host: a".to_owned()), 8 => proptest::sample::select(lines.to_vec()).prop_map(str::to_owned)]
}

fn first_line() -> impl Strategy<Value = String> {
    let lines = [
        "GET / HTTP/1.1",
        "POST /topics/a HTTP/1.1",
        "GET / HTTP/1.0",
        "GET http://b/ HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "PRI * HTTP/2.0",
        "GET / HTTP/1.9",
        "GET / HTTX/1.1",
        "GET  / HTTP/1.1",
        "GET /",
        "\r\nGET / HTTP/1.1",
        "\nGET / HTTP/1.1",
    ];
    proptest::sample::select(lines.to_vec()).prop_map(str::to_owned)
}

proptest! {
    #[test]
    fn a_head_of_known_lines(first in first_line(), lines in proptest::collection::vec(line(), 0..7)) {
        let text = format!("{first}\r\n{}\r\n\r\nrest", lines.join("\r\n"));
        for limits in [HeadLimits::default(), HeadLimits { head_bytes_max: 90, headers_max: 3 }] {
            prop_assert_eq!(at_once(text.as_bytes(), &limits), byte_by_byte(text.as_bytes(), &limits));
        }
    }

    #[test]
    fn arbitrary_bytes(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        let limits = HeadLimits { head_bytes_max: 100, headers_max: 3 };
        prop_assert_eq!(at_once(&input, &limits), byte_by_byte(&input, &limits));
    }

    #[test]
    fn a_response(cut in 0_usize..70) {
        let text = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        let end = cut.min(text.len());
        let answer = decode_response_head(&text[..end], &HeadLimits::default(), Method::Post).unwrap();
        prop_assert_eq!(answer.map(|(_, used)| used), (end >= 63).then_some(63));
    }
}
