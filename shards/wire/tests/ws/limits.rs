//! A message is bounded before it is buffered, fragments added up, and memory follows what came; on any core.

use crate::stream::{BINARY, CONTINUATION, FIRST_BINARY, FIRST_TEXT, MIDDLE, PING, TEXT, decode, masked, plain, text};
use ringmain_wire::ws::{Decoder, Event, Role};

fn code(message_bytes_max: usize, stream: &[u8]) -> Option<u16> {
    decode(Role::Server, message_bytes_max, stream, &[]).fault.map(|fault| fault.code)
}

#[test]
fn the_largest_message_fits_and_one_byte_more_does_not() {
    for limit in [0, 1, 125, 126, 65_535, 65_536, 100_000] {
        assert_eq!(code(limit, &masked(BINARY, &vec![0xff; limit])), None);
        assert_eq!(code(limit, &masked(BINARY, &vec![0xff; limit + 1])), Some(1009));
        let half = limit / 2;
        let fragments =
            |last: usize| [masked(FIRST_BINARY, &vec![0; half]), masked(CONTINUATION, &vec![0; last])].concat();
        assert_eq!(code(limit, &fragments(limit - half)), None);
        assert_eq!(code(limit, &fragments(limit - half + 1)), Some(1009));
    }
}

#[test]
fn the_limit_counts_one_message_only() {
    let stream = [masked(TEXT, b"abcd"), masked(FIRST_TEXT, b"ab"), masked(CONTINUATION, b"cd"), masked(TEXT, b"e")];
    let told = decode(Role::Server, 4, &stream.concat(), &[]);
    assert_eq!((told.events, told.fault), (vec![text("abcd"), text("abcd"), text("e")], None));
}

#[test]
fn control_frames_do_not_count() {
    let stream = [masked(FIRST_TEXT, b"ab"), masked(PING, &[0; 125]), masked(CONTINUATION, b"c")].concat();
    for sizes in [&[][..], &[1]] {
        let told = decode(Role::Server, 3, &stream, sizes);
        assert_eq!((told.events, told.fault), (vec![Event::Ping(vec![0; 125]), text("abc")], None));
    }
    assert_eq!(code(0, &masked(PING, &[0; 125])), None);
}

#[test]
fn too_big_is_told_from_the_header() {
    let mut decoder = Decoder::new(Role::Client, 1000);
    let mut events = Vec::new();
    let fault = decoder.feed(&plain(BINARY, &[0; 1001])[..4], &mut events).unwrap_err();
    assert_eq!((fault.code, decoder.held_bytes(), events.len()), (1009, 0, 0));
    assert!(fault.message.contains("1000"));
}

#[test]
fn between_messages_nothing_is_held() {
    let mut decoder = Decoder::new(Role::Server, 1000);
    let mut events = Vec::new();
    assert!(size_of::<Decoder>() <= 64);
    let stream = [
        masked(PING, b"ping"),
        masked(FIRST_TEXT, b"a"),
        masked(PING, b"ping"),
        masked(CONTINUATION, b"bc"),
        masked(FIRST_TEXT, b""),
        masked(PING, b"ping"),
        masked(CONTINUATION, b""),
        masked(BINARY, &[0; 1000]),
        masked(BINARY, b""),
    ];
    for (index, frame) in stream.iter().enumerate() {
        for byte in frame {
            decoder.feed(&[*byte], &mut events).unwrap();
        }
        let in_pieces = matches!(index, 1 | 2);
        assert_eq!(decoder.held_bytes() > 0, in_pieces, "after frame {index}");
    }
    decoder.feed(&masked(FIRST_BINARY, b"abc"), &mut events).unwrap();
    assert!(decoder.held_bytes() > 0);
    decoder.feed(&masked(TEXT, b""), &mut events).unwrap_err();
    assert_eq!(decoder.held_bytes(), 0, "a fault lets go");
}

#[test]
fn an_announced_length_takes_no_memory() {
    let mut decoder = Decoder::new(Role::Server, 1 << 30);
    let frame = masked(BINARY, &[0; 70_000]);
    let mut came = 0;
    for piece in frame.chunks(100) {
        decoder.feed(piece, &mut Vec::new()).unwrap();
        came += piece.len();
        assert!(decoder.held_bytes() <= 2 * came, "{} held of {came}", decoder.held_bytes());
    }
}

/// Fragments and pings of one byte each must not make the decoder move the message each time.
#[test]
fn many_small_fragments_grow_the_buffer_seldom() {
    const LIMIT: usize = 50_000;
    let mut decoder = Decoder::new(Role::Server, LIMIT);
    let mut events = Vec::new();
    decoder.feed(&masked(FIRST_BINARY, b"x"), &mut events).unwrap();
    let (mut held, mut growths) = (decoder.held_bytes(), 0);
    for _ in 1..LIMIT {
        for frame in [masked(MIDDLE, b"x"), masked(PING, b"p")] {
            decoder.feed(&frame, &mut events).unwrap();
            growths += usize::from(decoder.held_bytes() != held);
            held = decoder.held_bytes();
        }
        assert!(held <= LIMIT + 125);
    }
    assert!(growths <= 40, "{growths} growths");
    decoder.feed(&masked(CONTINUATION, b""), &mut events).unwrap();
    assert_eq!(events.pop(), Some(Event::Binary(vec![b'x'; LIMIT])));
    assert_eq!(events.len(), LIMIT - 1, "each ping was told");
}
