//! A body comes out of its framing as it went in, however both are cut, and broken framing is refused; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use proptest::prelude::*;
use ringmain_wire::http::{BodyDecoder, Framing, LAST_CHUNK, encode_chunk};

fn decode(input: &[u8]) -> Result<(usize, bool), u16> {
    let mut decoder = BodyDecoder::new(Framing::Chunked, 1000).unwrap();
    decoder.decode(input, &mut Vec::new()).map_err(|refusal| refusal.status)
}

proptest! {
    #[test]
    fn chunks_come_back(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8), piece in 1_usize..90) {
        let mut encoded = Vec::new();
        chunks.iter().for_each(|chunk| encode_chunk(&mut encoded, chunk));
        encoded.extend_from_slice(LAST_CHUNK);
        let length = encoded.len();
        encoded.extend_from_slice(b"next");
        let mut decoder = BodyDecoder::new(Framing::Chunked, 10_000).unwrap();
        let (mut body, mut used, mut complete) = (Vec::new(), 0, false);
        for piece in encoded.chunks(piece) {
            let (taken, now) = decoder.decode(piece, &mut body).unwrap();
            used += taken;
            complete = now;
            if complete {
                break;
            }
        }
        prop_assert!(complete && decoder.complete());
        prop_assert_eq!(used, length);
        prop_assert_eq!(body, chunks.concat());
    }
}

#[test]
fn a_length_takes_its_bytes_and_leaves_the_rest() {
    let mut decoder = BodyDecoder::new(Framing::Length(5), 5).unwrap();
    let mut body = Vec::new();
    assert_eq!(decoder.remaining_hint(), Some(5));
    assert_eq!(decoder.decode(b"", &mut body), Ok((0, false)));
    assert_eq!(decoder.decode(b"he", &mut body), Ok((2, false)));
    assert_eq!((decoder.remaining_hint(), decoder.complete()), (Some(3), false));
    assert_eq!(decoder.clone().end().unwrap_err().code, "incomplete_body");
    assert_eq!(decoder.decode(b"lloGET /", &mut body), Ok((3, true)));
    assert_eq!(decoder.decode(b"GET /", &mut body), Ok((0, true)));
    assert_eq!((body.as_slice(), decoder.remaining_hint()), (&b"hello"[..], Some(0)));
    assert_eq!(decoder.end(), Ok(()));
}

#[test]
fn no_body_is_complete_at_once() {
    for framing in [Framing::None, Framing::Length(0)] {
        let mut decoder = BodyDecoder::new(framing, 0).unwrap();
        assert_eq!(decoder.decode(b"GET", &mut Vec::new()), Ok((0, true)));
    }
}

#[test]
fn the_end_of_the_connection_ends_only_what_it_may() {
    let mut decoder = BodyDecoder::new(Framing::UntilClose, 10).unwrap();
    assert_eq!(decoder.decode(b"all", &mut Vec::new()), Ok((3, false)));
    assert_eq!((decoder.end(), decoder.complete()), (Ok(()), true));
    let mut decoder = BodyDecoder::new(Framing::Chunked, 10).unwrap();
    assert_eq!(decoder.decode(b"3\r\nall\r\n0\r\n", &mut Vec::new()), Ok((11, false)));
    assert_eq!((decoder.remaining_hint(), decoder.end().unwrap_err().status), (None, 400));
}

#[test]
fn sizes_extensions_and_trailers_are_read_as_the_grammar_says() {
    for (input, used) in [
        (&b"0\r\n\r\n"[..], 5),
        (b"0\r\n\r\nGET", 5),
        (b"000\r\n\r\n", 7),
        (b"5\r\nhello\r\n0\r\n\r\n", 15),
        (b"0000000000000005\r\nhello\r\n0\r\n\r\n", 30),
        (b"a\r\n0123456789\r\n00\r\n\r\n", 21),
        (b"A\r\n0123456789\r\n0\r\n\r\n", 20),
        (b"1;a\r\nx\r\n0;b=\"c\"\r\n\r\n", 19),
        (b"1 \t;a\r\nx\r\n0\r\n\r\n", 15),
        (b"0\r\nX-Sum: 1\r\nY:\r\n\r\n", 19),
    ] {
        assert_eq!(decode(input), Ok((used, true)), "{}", input.escape_ascii());
    }
}

#[test]
fn broken_chunks_are_refused() {
    for input in [
        &b"\r\n"[..],
        b";a\r\n",
        b" 5\r\n",
        b"+5\r\n",
        b"-5\r\n",
        b"0x5\r\n",
        b"5h\r\n",
        b"5 \r\n",
        b"5 5\r\n",
        b"5\n",
        b"5\r\r",
        b"5;a\n",
        b"5;a\0\r\n",
        b"5;a\rb",
        b"00000000000000005\r\n",
        b"10000000000000000\r\n",
        b"5\r\nhello0\r\n",
        b"5\r\nhello\n",
        b"5\r\nhello\rX",
        b"5\r\nhello!\r\n",
        b"0\r\n\n",
        b"0\r\n\rX",
        b"0\r\n: 1\r\n",
        b"0\r\n folded\r\n",
        b"0\r\nX 1: 2\r\n",
        b"0\r\nX: 1\n",
        b"0\r\nX: 1\rY",
        b"0\r\nX: \0\r\n",
        b"0\r\nX\r\n",
    ] {
        assert_eq!(decode(input), Err(400), "{}", input.escape_ascii());
    }
}
