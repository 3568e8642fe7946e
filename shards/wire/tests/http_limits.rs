//! Each part of a request has a bound, and exceeding it has its own status; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use ringmain_wire::http::{BodyDecoder, Framing, HeadLimits, decode_request_head};

fn status(text: &str, limits: &HeadLimits) -> Option<u16> {
    decode_request_head(text.as_bytes(), limits).err().map(|refusal| refusal.status)
}

#[test]
fn the_largest_head_fits_and_one_byte_more_does_not() {
    let limits = HeadLimits::default();
    let around = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n".len();
    let head = |bytes: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(bytes - around));
    assert_eq!(status(&head(limits.head_bytes_max), &limits), None);
    assert_eq!(status(&head(limits.head_bytes_max + 1), &limits), Some(431));
    let unfinished = head(limits.head_bytes_max + 1);
    assert_eq!(status(&unfinished[..limits.head_bytes_max - 1], &limits), None);
    assert_eq!(status(&unfinished[..limits.head_bytes_max], &limits), Some(431));
}

#[test]
fn a_request_line_that_fills_the_head_is_too_long() {
    let limits = HeadLimits::default();
    assert_eq!(status(&format!("GET /{}", "x".repeat(limits.head_bytes_max)), &limits), Some(414));
    assert_eq!(status(&"G".repeat(limits.head_bytes_max), &limits), Some(414));
}

#[test]
fn header_lines_are_counted() {
    let head = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(count - 1));
    for headers_max in [1, 64, 100] {
        let limits = HeadLimits { headers_max, ..HeadLimits::default() };
        assert_eq!(status(&head(headers_max), &limits), None);
        assert_eq!(status(&head(headers_max + 1), &limits), Some(431));
    }
    let limits = HeadLimits { headers_max: 1000, ..HeadLimits::default() };
    assert_eq!((status(&head(100), &limits), status(&head(101), &limits)), (None, Some(431)), "100 is the most");
}

#[test]
fn few_empty_lines_may_come_first() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let limits = HeadLimits::default();
    assert_eq!(status(&format!("{}{request}", "\r\n".repeat(8)), &limits), None);
    assert_eq!(status(&format!("{}{request}", "\r\n".repeat(9)), &limits), Some(400));
    for incomplete in ["", "\r", "\r\n", "\r\n\r", "\r\n\r\n"] {
        assert_eq!(decode_request_head(incomplete.as_bytes(), &limits), Ok(None));
    }
}

#[test]
fn an_announced_body_is_refused_before_it_comes() {
    assert!(BodyDecoder::new(Framing::Length(10), 10).is_ok());
    assert_eq!(BodyDecoder::new(Framing::Length(11), 10).unwrap_err().status, 413);
    assert_eq!(BodyDecoder::new(Framing::Length(u64::MAX), u64::MAX - 1).unwrap_err().status, 413);
}

#[test]
fn chunks_are_refused_when_their_sum_exceeds_the_limit() {
    let decode = |input: &[u8]| BodyDecoder::new(Framing::Chunked, 10).unwrap().decode(input, &mut Vec::new());
    assert!(decode(b"5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n").unwrap().1);
    assert_eq!(decode(b"5\r\nhello\r\n6\r\n").unwrap_err().status, 413);
    assert_eq!(decode(b"b\r\n").unwrap_err().status, 413);
    assert_eq!(decode(b"ffffffffffffffff\r\n").unwrap_err().status, 413);
}

#[test]
fn extensions_and_trailers_share_a_bound() {
    let decode =
        |input: &str| BodyDecoder::new(Framing::Chunked, 10).unwrap().decode(input.as_bytes(), &mut Vec::new());
    let ok = format!("1;{}\r\na\r\n0\r\nX:{}\r\n\r\n", "e".repeat(4096), "t".repeat(4094));
    assert!(decode(&ok).unwrap().1);
    let above = format!("1;{}\r\na\r\n0\r\nX:{}\r\n\r\n", "e".repeat(4096), "t".repeat(4095));
    assert_eq!(decode(&above).unwrap_err().status, 400);
    assert_eq!(decode(&format!("1{}", " ".repeat(9000))).unwrap_err().status, 400);
}

#[test]
fn a_body_until_the_end_of_the_connection_is_bounded() {
    let mut decoder = BodyDecoder::new(Framing::UntilClose, 4).unwrap();
    let mut body = Vec::new();
    assert_eq!(decoder.decode(b"abc", &mut body), Ok((3, false)));
    assert_eq!(decoder.decode(b"de", &mut body).unwrap_err().status, 413);
}
