//! Messages in fragments come out whole, with control frames between them in their order; on any core.

use crate::stream::{
    BINARY, CLOSE, CONTINUATION, FIRST_BINARY, FIRST_TEXT, MIDDLE, PING, PONG, TEXT, close, decode, events, masked,
    plain, served, text,
};
use ringmain_wire::ws::{Event, Role};

fn ping(payload: &[u8]) -> Event {
    Event::Ping(payload.to_vec())
}

#[test]
fn fragments_are_joined() {
    let stream = [masked(FIRST_TEXT, b"a"), masked(MIDDLE, b"b"), masked(MIDDLE, b""), masked(CONTINUATION, b"c")];
    assert_eq!(events(&stream.concat()), [text("abc")]);
    let stream = [masked(FIRST_BINARY, b"\xe2"), masked(CONTINUATION, b"\x82"), masked(BINARY, b"next")];
    assert_eq!(events(&stream.concat()), [Event::Binary(b"\xe2\x82".to_vec()), Event::Binary(b"next".to_vec())]);
    let stream = [masked(FIRST_TEXT, b""), masked(MIDDLE, b""), masked(CONTINUATION, b""), masked(TEXT, b"x")];
    assert_eq!(events(&stream.concat()), [text(""), text("x")]);
}

#[test]
fn control_frames_interleave() {
    let stream = [
        masked(FIRST_TEXT, b"a"),
        masked(PING, b"one"),
        masked(MIDDLE, b"b"),
        masked(PONG, b""),
        masked(PING, &[b'x'; 125]),
        masked(CONTINUATION, b"c"),
        masked(PING, b"two"),
        masked(FIRST_BINARY, b"d"),
        masked(CLOSE, b"\x03\xe9"),
    ]
    .concat();
    let expected =
        [ping(b"one"), Event::Pong(Vec::new()), ping(&[b'x'; 125]), text("abc"), ping(b"two"), close(1001, "")];
    for sizes in [&[][..], &[1], &[2], &[3, 7]] {
        let told = decode(Role::Server, 1 << 20, &stream, sizes);
        assert_eq!((told.events, told.fault), (expected.to_vec(), None), "pieces of {sizes:?}");
    }
}

#[test]
fn a_character_may_span_fragments() {
    let whole = "\u{3ba}\u{20ac}\u{1f980}z";
    for cuts in 1..whole.len() {
        let (first, second) = whole.as_bytes().split_at(cuts);
        let stream =
            [masked(FIRST_TEXT, first), masked(PING, b"\xe2"), masked(MIDDLE, b""), masked(CONTINUATION, second)];
        let told = served(&stream.concat());
        assert_eq!((told.events, told.fault), (vec![ping(b"\xe2"), text(whole)], None), "cut at {cuts}");
    }
    let mut stream = masked(FIRST_TEXT, b"");
    whole.bytes().for_each(|byte| stream.extend(masked(MIDDLE, &[byte])));
    stream.extend(masked(CONTINUATION, b""));
    assert_eq!(events(&stream), [text(whole)]);
}

#[test]
fn a_character_that_spanned_fragments_is_forgotten_with_its_message() {
    let message = [masked(FIRST_TEXT, b"\xe2\x82"), masked(CONTINUATION, b"\xac")].concat();
    let stream = [&message[..], &masked(FIRST_TEXT, b"a"), &masked(CONTINUATION, b"b"), &message].concat();
    assert_eq!(events(&stream), [text("\u{20ac}"), text("ab"), text("\u{20ac}")]);
}

#[test]
fn a_server_may_send_fragments_too() {
    let stream = [plain(FIRST_TEXT, b"a"), plain(PING, b"p"), plain(CONTINUATION, b"b"), plain(TEXT, b"c")].concat();
    for sizes in [&[][..], &[1]] {
        assert_eq!(decode(Role::Client, 2, &stream, sizes).events, [ping(b"p"), text("ab"), text("c")]);
    }
}
