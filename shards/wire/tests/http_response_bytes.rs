//! Heads and chunks are written byte for byte as clients expect them; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use ringmain_wire::http::{
    CONTINUE, Framing, HeadLimits, LAST_CHUNK, Method, ResponseBody, ResponseHead, Version, date_text,
    decode_request_head, encode_chunk, encode_request_head, encode_response_head, media_type,
};

const DATE: &str = "Fri, 02 Jan 2026 03:04:05 GMT";

fn encode(status: u16, headers: &[(&str, &str)], body: ResponseBody, close: bool, version: Version) -> String {
    let mut out = Vec::new();
    encode_response_head(&mut out, DATE, &ResponseHead { status, headers, body, close, version });
    String::from_utf8(out).unwrap()
}

#[test]
fn response_heads() {
    let (v11, v10) = (Version::Http11, Version::Http10);
    let json = ("Content-Type", "application/json");
    assert_eq!(
        encode(202, &[json], ResponseBody::Length(66), false, v11),
        "HTTP/1.1 202 Accepted\r\nDate: Fri, 02 Jan 2026 03:04:05 GMT\r\nContent-Type: application/json\r\n\
         Content-Length: 66\r\n\r\n"
    );
    let date = format!("Date: {DATE}\r\n");
    let table = [
        (200, ResponseBody::None, false, v11, "HTTP/1.1 200 OK\r\n", "Content-Length: 0\r\n"),
        (200, ResponseBody::Chunked, false, v11, "HTTP/1.1 200 OK\r\n", "Transfer-Encoding: chunked\r\n"),
        (204, ResponseBody::Length(3), false, v11, "HTTP/1.1 204 No Content\r\n", ""),
        (304, ResponseBody::None, false, v11, "HTTP/1.1 304 Not Modified\r\n", ""),
        (101, ResponseBody::None, false, v11, "HTTP/1.1 101 Switching Protocols\r\n", ""),
        (
            413,
            ResponseBody::Length(1),
            true,
            v11,
            "HTTP/1.1 413 Content Too Large\r\n",
            "Content-Length: 1\r\nConnection: close\r\n",
        ),
        (200, ResponseBody::UntilClose, false, v10, "HTTP/1.1 200 OK\r\n", "Connection: close\r\n"),
        (
            200,
            ResponseBody::Length(2),
            false,
            v10,
            "HTTP/1.1 200 OK\r\n",
            "Content-Length: 2\r\nConnection: keep-alive\r\n",
        ),
        (200, ResponseBody::Length(2), true, v10, "HTTP/1.1 200 OK\r\n", "Content-Length: 2\r\nConnection: close\r\n"),
        (599, ResponseBody::None, false, v11, "HTTP/1.1 599 \r\n", "Content-Length: 0\r\n"),
    ];
    for (status, body, close, version, first, last) in table {
        assert_eq!(encode(status, &[], body, close, version), format!("{first}{date}{last}\r\n"));
    }
}

#[test]
fn no_value_can_end_its_line() {
    let head = encode(200, &[("X", "a\r\nSet-Cookie: b\0\tc")], ResponseBody::None, false, Version::Http11);
    assert!(head.contains("\r\nX: a  Set-Cookie: b \tc\r\n"), "{head}");
}

#[test]
fn request_heads_decode_again() {
    let mut out = Vec::new();
    encode_request_head(&mut out, "POST", "/topics/a b/publish", "b:80", &[("X", "y\nz")], Some(5));
    assert_eq!(
        out.escape_ascii().to_string(),
        r"POST /topics/a%20b/publish HTTP/1.1\r\nHost: b:80\r\nX: y z\r\nContent-Length: 5\r\n\r\n"
    );
    let (head, used) = decode_request_head(&out, &HeadLimits::default()).unwrap().unwrap();
    assert_eq!((head.method, head.framing, used), (Method::Post, Framing::Length(5), out.len()));
    let mut out = Vec::new();
    encode_request_head(&mut out, "GET", "/", "b", &[], None);
    assert_eq!(out, b"GET / HTTP/1.1\r\nHost: b\r\n\r\n");
}

#[test]
fn chunks() {
    let mut out = Vec::new();
    encode_chunk(&mut out, b"");
    assert!(out.is_empty(), "an empty chunk would end the body");
    encode_chunk(&mut out, b"hello");
    assert_eq!(out, b"5\r\nhello\r\n");
    for (length, size) in [(15, "f"), (16, "10"), (255, "ff"), (256, "100"), (4096, "1000"), (65_535, "ffff")] {
        out.clear();
        encode_chunk(&mut out, &vec![b'x'; length]);
        assert!(out.starts_with(format!("{size}\r\nx").as_bytes()) && out.ends_with(b"x\r\n"));
        assert_eq!(out.len(), size.len() + length + 4);
    }
    assert_eq!((LAST_CHUNK, CONTINUE), (&b"0\r\n\r\n"[..], &b"HTTP/1.1 100 Continue\r\n\r\n"[..]));
}

#[test]
fn dates() {
    assert_eq!(date_text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(date_text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(date_text(1_767_323_045), DATE);
    assert_eq!(date_text(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
}

#[test]
fn media_types() {
    for (text, expected) in [
        ("application/json", "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        (" text/plain\t;a", "text/plain"),
        ("", ""),
        (";", ""),
    ] {
        assert_eq!(media_type(text), expected);
    }
}
