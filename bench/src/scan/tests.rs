//! Scanners give the same counts however the bytes are cut.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use super::{EventScanner, RequestScanner, ResponseScanner};
use crate::failure::Failure;

const ANSWERS: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nhello\
    HTTP/1.1 100 Continue\r\n\r\n\
    HTTP/1.1 204 No Content\r\n\r\n\
    HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\ncontent-length: 0\r\n\r\n\
    HTTP/1.1 202 Accepted\r\nContent-Length: 1\r\n\r\n.";

const REQUESTS: &[u8] = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n\r\n\r\nabc\
    GET /b HTTP/1.1\r\nHost: a\r\n\r\n\
    POST /c HTTP/1.1\r\ncontent-length:0\r\nHost: a\r\n\r\n\
    POST /d HTTP/1.1\r\nCONTENT-LENGTH:  2 \r\n\r\nxy";

fn answers(pieces: &[&[u8]]) -> Result<Vec<u16>, Failure> {
    let mut scanner = ResponseScanner::default();
    let mut statuses = Vec::new();
    for piece in pieces {
        scanner.feed(piece, |status| statuses.push(status))?;
    }
    Ok(statuses)
}

#[test]
fn answers_are_counted_wherever_the_bytes_are_cut() {
    for cut in 0..=ANSWERS.len() {
        let (front, back) = ANSWERS.split_at(cut);
        assert_eq!(answers(&[front, back]).unwrap(), [202, 204, 503, 202], "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = ANSWERS.chunks(1).collect();
    assert_eq!(answers(&bytes).unwrap(), [202, 204, 503, 202]);
}

#[test]
fn an_answer_without_its_whole_body_does_not_count() {
    assert!(answers(&[b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nhell"]).unwrap().is_empty());
}

#[test]
fn an_answer_of_unknown_length_or_of_another_protocol_is_refused() {
    assert!(answers(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]).is_err());
    assert!(answers(&[b"SSH-2.0-OpenSSH_9.2\r\n\r\n"]).is_err());
}

fn requests(pieces: &[&[u8]]) -> usize {
    let mut scanner = RequestScanner::default();
    pieces.iter().map(|piece| scanner.feed(piece).unwrap()).sum()
}

#[test]
fn requests_are_counted_wherever_the_bytes_are_cut() {
    for cut in 0..=REQUESTS.len() {
        let (front, back) = REQUESTS.split_at(cut);
        assert_eq!(requests(&[front, back]), 4, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = REQUESTS.chunks(1).collect();
    assert_eq!(requests(&bytes), 4);
}

#[test]
fn a_request_that_cannot_end_is_refused() {
    assert!(RequestScanner::default().feed(&[b'a'; 20_000]).is_err());
    assert!(RequestScanner::default().feed(b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n").is_err());
}

const SUBSCRIPTION_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Puts a stream into chunks of this size.
fn chunked(stream: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let mut out = SUBSCRIPTION_HEAD.to_vec();
    for chunk in stream.chunks(chunk_bytes) {
        ringmain_wire::http::encode_chunk(&mut out, chunk);
    }
    out
}

fn message(offset: u64) -> String {
    format!(
        "id: 1~a.0.{offset}\ndata: {{\"id\":\"a-0-{offset}\",\"offset\":{offset},\"topic\":\"t\\\"offset\\\":9\",\
         \"payload\":\"QUJDREVGR0hJSktMTU5PUFFSUw==\",\"timestamp\":\"2026-01-02T03:04:05.000000Z\"}}\n\n"
    )
}

fn events(pieces: &[&[u8]]) -> Result<(Vec<u64>, u64), Failure> {
    let mut scanner = EventScanner::new();
    let mut offsets = Vec::new();
    for piece in pieces {
        scanner.feed(piece, |message| {
            assert_eq!(message.payload_prefix, b"QUJDREVGR0hJSktMTU5PUFFS");
            offsets.push(message.offset);
        })?;
    }
    Ok((offsets, scanner.controls()))
}

#[test]
fn messages_are_found_wherever_chunks_and_bytes_are_cut() {
    let stream = format!(
        "retry: 2000\n\n{}: sign of life\n\nid: 1~a.0.8\n\n{}event: gap\ndata:{{\"requested\":1}}\n\n{}",
        message(7),
        message(8),
        message(19)
    );
    let expected = (vec![7, 8, 19], 1);
    for chunk_bytes in [1, 5, 64, 10_000] {
        let bytes = chunked(stream.as_bytes(), chunk_bytes);
        for cut in 0..=bytes.len() {
            let (front, back) = bytes.split_at(cut);
            assert_eq!(events(&[front, back]).unwrap(), expected, "chunks of {chunk_bytes}, cut at {cut}");
        }
    }
}

#[test]
fn a_subscription_begins_with_its_head() {
    let mut scanner = EventScanner::new();
    let (front, back) = SUBSCRIPTION_HEAD.split_at(20);
    scanner.feed(front, |_| panic!("no message has come")).unwrap();
    assert!(!scanner.is_subscribed());
    scanner.feed(back, |_| panic!("no message has come")).unwrap();
    assert!(scanner.is_subscribed());
}

#[test]
fn a_refused_or_ended_subscription_is_an_error() {
    assert!(events(&[b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"]).is_err());
    assert!(events(&[b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]).is_err());
    let mut ended = chunked(b": sign of life\n\n", 100);
    ended.extend_from_slice(ringmain_wire::http::LAST_CHUNK);
    assert!(events(&[&ended]).is_err());
}

#[test]
fn data_that_is_no_message_is_an_error_and_not_a_guess() {
    assert!(events(&[&chunked(b"data: {\"offset\":7}\n\n", 100)]).is_err());
    assert!(events(&[&chunked(b"data: x\n\n", 100)]).is_err());
}

#[test]
fn messages_in_frames_are_found_however_they_are_cut() {
    let json = r#"{"id":"x-0-7","offset":7,"topic":"t","payload":"QUFBQUFBQUFBQUFBQUFBQUFBQUFB","timestamp":"…"}"#;
    let mut bytes = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n".to_vec();
    for _ in 0..2 {
        ringmain_wire::ws::frame(&mut bytes, ringmain_wire::ws::Opcode::Ping, b"", None);
        ringmain_wire::ws::text_frame(&mut bytes, json.as_bytes());
    }
    for cut in 0..bytes.len() {
        let mut scanner = EventScanner::new();
        let mut offsets = Vec::new();
        for part in [&bytes[..cut], &bytes[cut..]] {
            scanner.feed(part, |message| offsets.push(message.offset)).unwrap();
        }
        assert!(scanner.is_subscribed());
        assert_eq!(offsets, [7, 7], "cut at {cut}");
    }
}

#[test]
fn raw_messages_have_the_offset_before_their_token() {
    let stream = "retry: 2000\nid: 1~00000000000000aa.0.7\n\n\
        id: 1~00000000000000aa.0.8\ndata: abc\n\n: life\n\nid: 1~00000000000000aa.0.9\ndata: d.3\n\n";
    let answer = chunked(stream.as_bytes(), 11);
    for cut in 0..answer.len() {
        let mut scanner = EventScanner::of_raw();
        let mut offsets = Vec::new();
        for piece in [&answer[..cut], &answer[cut..]] {
            scanner.feed(piece, |message| offsets.push(message.offset)).unwrap();
        }
        assert_eq!((offsets, scanner.controls()), (vec![7, 8], 0));
    }
}

#[test]
fn a_raw_message_without_a_token_is_an_error() {
    let answer = chunked(b"data: abc\n\n", 100);
    assert!(EventScanner::of_raw().feed(&answer, |_| {}).is_err());
}
