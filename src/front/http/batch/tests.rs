//! A batch gives the same messages, or the same fault, however its body is cut on its way; runs on the test thread.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests fail by panicking")]

use std::borrow::Cow;

use bytes::Bytes;
use ringmain_model::Storage;
use ringmain_wire::batch::encode_batch_payload;

use super::super::OriginPolicy;
use super::super::identity::IdName;
use super::*;

const MESSAGE_BYTES_MAX: usize = 100;
const BODY_BYTES_MAX: usize = 4000;

fn settings() -> FrontSettings {
    FrontSettings {
        header_timeout_ms: 1,
        body_timeout_ms: 1,
        idle_timeout_ms: 1,
        heartbeat_ms: 1,
        retry_ms: 1,
        message_bytes_max: MESSAGE_BYTES_MAX,
        body_bytes_max: BODY_BYTES_MAX,
        retention_messages: 1,
        storage: Storage::Memory,
        has_directory: false,
        ws_echo: false,
        origins: OriginPolicy::parse("", true).unwrap(),
    }
}

/// Gives a batch its body in pieces, as a session does.
fn read(mut batch: Batch, body: &[u8], piece: usize) -> Result<Vec<Message>, Problem> {
    let mut held = Vec::new();
    let mut pieces = body.chunks(piece).peekable();
    while let Some(piece) = pieces.next() {
        held.extend_from_slice(piece);
        if pieces.peek().is_some() {
            held.drain(..batch.take(&held)?);
        }
    }
    batch.finish(Cow::Owned(held))
}

/// All ways to read it agree; this is what they say.
fn agreed(batch: impl Fn() -> Batch, body: &[u8]) -> Result<Vec<Message>, Problem> {
    let whole = batch().finish(Cow::Borrowed(body));
    for piece in 1..=body.len() {
        assert_eq!(read(batch(), body, piece), whole, "in pieces of {piece} bytes");
    }
    whole
}

#[track_caller]
fn expect_fault(read: Result<Vec<Message>, Problem>, status: u16, code: &str, said: &str) {
    let problem = read.unwrap_err();
    assert_eq!((problem.status, problem.code), (status, code), "{problem:?}");
    assert!(problem.message.contains(said), "{problem:?}");
    assert!(problem.message.ends_with("; nothing of the batch was stored"), "{problem:?}");
}

#[test]
fn lines_keep_all_that_they_carry() {
    let settings = settings();
    let body = concat!(
        r#"{"payload":"YQ=="}"#,
        "\r\n\n",
        r#"{"payload":"","key":"","id":"i","headers":{"h":["1","2"],"g":""}}"#,
        "\n",
        r#"{"payload":"Yg==","key":"k"}"#
    );
    let messages = agreed(|| Batch::of_lines(&settings), body.as_bytes()).unwrap();
    let pair = |name: &'static str, value: &'static str| (Bytes::from(name), Bytes::from(value));
    let headers = vec![pair("h", "1"), pair("h", "2"), pair("g", "")];
    let mut named = Message { payload: Bytes::new(), key: Some(Bytes::new()), headers, id: None };
    IdName::new(b"i").unwrap().give(&mut named);
    let last = Message { key: Some(Bytes::from("k")), ..Message::of("b") };
    assert_eq!(messages, [Message::of("a"), named, last]);
}

#[test]
fn faults_of_lines_are_told_alike() {
    let settings = settings();
    let (good, large) = (r#"{"payload":"YQ=="}"#, "A".repeat(136));
    let table = [
        (format!("{good}\n{{\n{good}"), 400, "invalid_json", "In line 2 of the body"),
        (format!("{good}\n{good}\n{good}{good}"), 400, "invalid_json", "In line 3 of the body"),
        (
            format!("{{\"payload\":\"{large}\"}}\n{{"),
            413,
            "payload_too_large",
            "in line 1 of the body: the message has 102",
        ),
        ("\n{\"payload\":\"\",\"id\":\"\"}\n".to_owned(), 400, "invalid_request", "in line 2 of the body"),
    ];
    for (body, status, code, said) in table {
        expect_fault(agreed(|| Batch::of_lines(&settings), body.as_bytes()), status, code, said);
    }
    // A name is in the body once, and in memory with each of its values.
    let many = format!("{{\"payload\":\"\",\"headers\":{{\"{}\":[\"\",\"\"]}}}}\n", "n".repeat(50));
    let fault = agreed(|| Batch::of_lines(&settings), many.repeat(41).as_bytes());
    expect_fault(fault, 413, "payload_too_large", "more than 4000 bytes");
    let problem = Batch::of_lines(&settings).finish(Cow::Borrowed(b"\n \n")).unwrap_err();
    assert_eq!((problem.status, problem.code), (400, "invalid_body"));
}

#[test]
fn payloads_and_their_faults_are_told_alike() {
    let settings = settings();
    let framed = |lengths: &[usize]| {
        let mut body = Vec::new();
        lengths.iter().for_each(|&length| encode_batch_payload(&mut body, &vec![b'x'; length]));
        body
    };
    let good = framed(&[3, 0, MESSAGE_BYTES_MAX]);
    let cut = &good[..good.len() - 1];
    for is_announced in [true, false] {
        let batch = |body: &[u8]| {
            let framing = if is_announced { Framing::Length(body.len() as u64) } else { Framing::Chunked };
            agreed(|| Batch::of_payloads(framing, &settings), body)
        };
        let messages = batch(&good).unwrap();
        assert!(messages.iter().map(Message::bytes).eq([3, 0, MESSAGE_BYTES_MAX]));
        expect_fault(batch(cut), 400, "invalid_batch", "only 99 bytes are left for its 100 bytes");
        expect_fault(batch(&good[..8]), 400, "invalid_batch", "In message 2 of the body: only 1 bytes are left");
        let large = framed(&[1, MESSAGE_BYTES_MAX + 1, 1]);
        expect_fault(batch(&large), 413, "payload_too_large", "in message 2 of the body: the message has 101 bytes");
        expect_fault(batch(b"\0\0\0\0\xff\xff\xff\xffabc"), 400, "invalid_batch", "In message 2 of the body");
    }
}

#[test]
fn what_can_be_told_is_told_before_the_rest_comes() {
    let settings = settings();
    assert!(Batch::of_lines(&settings).take(b"{\n").is_err());
    assert_eq!(Batch::of_lines(&settings).take(b"{\"payload\":\"\"}\n{"), Ok(15));
    let line_bytes_max = MESSAGE_BYTES_MAX * LINE_BYTES_PER_BYTE + LINE_BYTES_BESIDE;
    assert_eq!(Batch::of_lines(&settings).take(&vec![b' '; line_bytes_max]), Ok(0));
    assert_eq!(Batch::of_lines(&settings).take(&vec![b' '; line_bytes_max + 1]).unwrap_err().status, 413);
    for (framing, status) in [(Framing::Length(1000), 400), (Framing::Chunked, 413)] {
        let problem = Batch::of_payloads(framing, &settings).take(&1001_u32.to_le_bytes()).unwrap_err();
        assert_eq!(problem.status, status);
    }
}

#[test]
fn lines_that_were_read_take_hardly_more_room_than_their_bytes() {
    let settings = FrontSettings { body_bytes_max: 16 << 20, ..settings() };
    for line in
        ["{\"payload\":\"\"}\n", "{\"payload\":\"\",\"headers\":{\"a\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\"]}}\n"]
    {
        let body = line.repeat(10_000);
        let mut batch = Batch::of_lines(&settings);
        assert_eq!(batch.take(body.as_bytes()), Ok(body.len()));
        assert!(batch.held_bytes() < 3 * body.len(), "{} bytes for {}", batch.held_bytes(), body.len());
    }
}
