//! The client reads an event stream as the WHATWG standard describes, wherever it is cut, within a bound; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use proptest::prelude::*;
use ringmain_wire::sse::{self, Decoder, Error, Event};

fn decode(stream: &[u8], piece: usize) -> (Vec<Event>, Decoder) {
    let mut decoder = Decoder::default();
    let mut events = Vec::new();
    for piece in stream.chunks(piece) {
        decoder.feed(piece, &mut events).unwrap();
    }
    (events, decoder)
}

fn event(id: Option<&str>, name: &str, data: &str) -> Event {
    Event { id: id.map(str::to_owned), event: name.to_owned(), data: data.to_owned(), retry: None }
}

/// A stream and the events that it holds, each with its name and data.
type Case = (&'static [u8], &'static [(&'static str, &'static str)]);

const STREAMS: &[Case] = &[
    (b"", &[]),
    (b"data: a\n\n", &[("message", "a")]),
    (b"data: a\r\n\r\n", &[("message", "a")]),
    (b"data: a\r\r", &[("message", "a")]),
    (b"data: a\r\ndata: b\r\n\r\n", &[("message", "a\nb")]),
    (b"data: a\rdata: b\r\r", &[("message", "a\nb")]),
    (b"data: a\n\r", &[("message", "a")]),
    (b"data: a\n\r\ndata: b\r\n\n", &[("message", "a"), ("message", "b")]),
    (b"data: a\n", &[]),
    (b"data: a", &[]),
    (b"data: a\ndata: b\n\n", &[("message", "a\nb")]),
    (b"data\n\n", &[("message", "")]),
    (b"data:\n\n", &[("message", "")]),
    (b"data\ndata\n\n", &[("message", "\n")]),
    (b"data:a\ndata:  b\ndata:\tc\n\n", &[("message", "a\n b\n\tc")]),
    (b"event: gap\ndata:{}\n\ndata: x\n\n", &[("gap", "{}"), ("message", "x")]),
    (b"event: gap\n\ndata: x\n\n", &[("message", "x")]),
    (b"event: a\nevent: b\ndata: x\n\n", &[("b", "x")]),
    (b"event:\ndata: x\n\n", &[("message", "x")]),
    (b": comment\n\n:\n\ndata: x\n: more\n\n", &[("message", "x")]),
    (b"DATA: x\ndata : y\nother: z\n data: w\n\n", &[]),
    (b"\xEF\xBB\xBFdata: a\n\n", &[("message", "a")]),
    (b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n", &[]),
    (b"data: a\n\n\xEF\xBB\xBFdata: b\n\n", &[("message", "a")]),
    (b"data: \xff\xe2\x82\n\n", &[("message", "\u{fffd}\u{fffd}")]),
    (b"\n\n\ndata: a\n\n\n\n", &[("message", "a")]),
];

#[test]
fn streams_decode_to_their_events() {
    for (stream, expected) in STREAMS {
        for piece in 1..=stream.len().max(1) {
            let (events, _) = decode(stream, piece);
            let expected: Vec<_> = expected.iter().map(|(name, data)| event(None, name, data)).collect();
            assert_eq!(events, expected, "{} in pieces of {piece}", stream.escape_ascii());
        }
    }
}

#[test]
fn ids_persist_and_only_whole_blocks_count() {
    let stream = b"id: 1\ndata: a\n\ndata: b\n\nid: 2\n\nid: x\0y\ndata: c\n\nid\ndata: d\n\nid: 3\n\nid: 4\ndata: e\n";
    for piece in 1..stream.len() {
        let (events, decoder) = decode(stream, piece);
        let expected = [
            event(Some("1"), "message", "a"),
            event(Some("1"), "message", "b"),
            event(Some("2"), "message", "c"),
            event(None, "message", "d"),
        ];
        assert_eq!(events, expected);
        assert_eq!(decoder.last_event_id(), "3", "the block with id 4 is not finished");
    }
}

#[test]
fn reconnection_times_are_digits_only() {
    let (events, decoder) = decode(b"retry: 3000\n\nretry: 5s\n\nretry:\n\ndata: a\n\ndata: b\n\n", 3);
    assert_eq!(events.iter().map(|event| event.retry).collect::<Vec<_>>(), [Some(3000), None]);
    assert_eq!(decoder.retry_ms(), Some(3000));
    assert_eq!(decode(b"retry: 99999999999999999999999\n\n", 9).1.retry_ms(), Some(u64::MAX));
}

#[test]
fn lines_and_events_are_bounded() {
    let feed = |stream: &[u8], piece: usize| {
        let mut decoder = Decoder::new(10);
        let mut events = Vec::new();
        let result = stream.chunks(piece).try_for_each(|piece| decoder.feed(piece, &mut events));
        (result, decoder.feed(b"data: a\n\n", &mut Vec::new()))
    };
    let failed = Err(Error::EventTooLarge { event_bytes_max: 10 });
    for stream in [&b":aaaaaaaaaa"[..], b":aaaaaaaaaa\n", b"data: 12345", b"data: 1234\ndata: 5678\ndata: 9\n"] {
        for piece in 1..=stream.len() {
            assert_eq!(feed(stream, piece), (failed.clone(), failed.clone()), "{}", stream.escape_ascii());
        }
    }
    assert_eq!(feed(b"data: 1234\n\ndata: 1234\n\n:aaaaaaaaa\n", 4).0, Ok(()));
}

#[test]
fn a_new_connection_keeps_the_place_and_forgets_the_rest() {
    let (_, mut decoder) = decode(b"retry: 5\nid: 7\ndata: a\n\nid: 8\ndata: half", 4);
    decoder.restart();
    assert_eq!((decoder.last_event_id(), decoder.retry_ms()), ("7", Some(5)));
    let mut events = Vec::new();
    decoder.feed(b"\xEF\xBB\xBFdata: b\n\n", &mut events).unwrap();
    assert_eq!(events, [event(Some("7"), "message", "b")]);
}

proptest! {
    #[test]
    fn encoded_events_come_back(
        written in proptest::collection::vec(("[^\r\n\0]{1,8}", "[a-z]{1,6}", "([ -~\u{e9}\u{feff}]|\n|\r|\r\n){0,20}"), 1..6),
        piece in 1_usize..40,
    ) {
        let mut stream = Vec::new();
        sse::retry(&mut stream, 9);
        for (id, name, data) in &written {
            sse::comment(&mut stream, data);
            sse::event(&mut stream, Some(id), Some(name), data);
        }
        let (mut events, _) = decode(&stream, piece);
        prop_assert_eq!(events[0].retry.take(), Some(9));
        let expected: Vec<_> = written
            .iter()
            .map(|(id, name, data)| event(Some(id), name, &data.replace("\r\n", "\n").replace('\r', "\n")))
            .collect();
        prop_assert_eq!(events, expected);
    }

    #[test]
    fn arbitrary_streams_decode_alike_in_any_pieces(stream in "(data|id|event|retry|:| |\n|\r|\r\n|\u{feff}|[a-c0-9]){0,60}", piece in 1_usize..9) {
        prop_assert_eq!(decode(stream.as_bytes(), piece).0, decode(stream.as_bytes(), usize::MAX).0);
    }
}
