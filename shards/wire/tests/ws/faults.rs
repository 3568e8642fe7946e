//! Each broken rule has its close code, is told after all that came before it, and ends the connection; on any core.

use crate::stream::{
    BINARY, CLOSE, CONTINUATION, FIRST_BINARY, FIRST_TEXT, MASK, MIDDLE, PING, PONG, TEXT, close, decode, events,
    masked, plain, served, text,
};
use ringmain_wire::ws::{CLOSE_REASON_BYTES_MAX, Decoder, Event, Role};

/// A header with a length in a form of the test's choice, and the mask behind it.
fn header(first: u8, second: u8, length: &[u8]) -> Vec<u8> {
    [&[first, second], length, &MASK].concat()
}

/// What a client must not send, and the code that it gets for it.
fn table() -> Vec<(&'static str, Vec<u8>, u16)> {
    let mut table = vec![
        ("no mask", plain(TEXT, b"hi"), 1002),
        ("no mask on a ping", plain(PING, b""), 1002),
        ("no mask on an empty close", plain(CLOSE, b""), 1002),
        ("first reserved bit", masked(TEXT | 0x40, b"hi"), 1002),
        ("second reserved bit", masked(BINARY | 0x20, b"hi"), 1002),
        ("third reserved bit", masked(PING | 0x10, b"hi"), 1002),
        ("all reserved bits", masked(CLOSE | 0x70, b""), 1002),
        ("ping in fragments", masked(0x09, b"hi"), 1002),
        ("pong in fragments", masked(0x0a, b""), 1002),
        ("close in fragments", masked(0x08, b""), 1002),
        ("ping of 126 bytes", masked(PING, &[b'x'; 126]), 1002),
        ("pong of 126 bytes", masked(PONG, &[b'x'; 126]), 1002),
        ("close of 126 bytes", masked(CLOSE, &[3; 126]), 1002),
        ("ping of 65536 bytes", masked(PING, &[b'x'; 65536]), 1002),
        ("ping with a long length", header(PING, 0xfe, &[0, 5]), 1002),
        ("continuation of nothing", masked(CONTINUATION, b"hi"), 1002),
        ("fragment of nothing", masked(MIDDLE, b"hi"), 1002),
        ("text in a text", [masked(FIRST_TEXT, b"a"), masked(TEXT, b"b")].concat(), 1002),
        ("text in an empty text", [masked(FIRST_TEXT, b""), masked(TEXT, b"b")].concat(), 1002),
        ("binary in a text", [masked(FIRST_TEXT, b"a"), masked(BINARY, b"b")].concat(), 1002),
        ("binary in a binary", [masked(FIRST_BINARY, b"a"), masked(FIRST_BINARY, b"b")].concat(), 1002),
        ("length 0 in two bytes", header(TEXT, 0xfe, &[0, 0]), 1002),
        ("length 125 in two bytes", header(TEXT, 0xfe, &[0, 125]), 1002),
        ("length 0 in eight bytes", header(TEXT, 0xff, &[0; 8]), 1002),
        ("length 126 in eight bytes", header(TEXT, 0xff, &[0, 0, 0, 0, 0, 0, 0, 126]), 1002),
        ("length 65535 in eight bytes", header(BINARY, 0xff, &[0, 0, 0, 0, 0, 0, 0xff, 0xff]), 1002),
        ("top bit", header(BINARY, 0xff, &[0x80, 0, 0, 0, 0, 1, 0, 0]), 1002),
        ("all bits", header(BINARY, 0xff, &[0xff; 8]), 1002),
        ("beyond the limit", header(BINARY, 0xff, &[0, 0, 0, 0, 0, 0x10, 0, 1]), 1009),
        ("far beyond the limit", header(TEXT, 0xff, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), 1009),
        ("close of one byte", masked(CLOSE, &[3]), 1002),
        ("close reason not UTF-8", masked(CLOSE, b"\x03\xe8a\xff"), 1007),
        ("close reason ends in a character", masked(CLOSE, b"\x03\xe8\xe2\x82"), 1007),
        ("bad code and bad reason", masked(CLOSE, b"\x03\xed\xff"), 1002),
        ("text not UTF-8", masked(TEXT, b"a\xffb"), 1007),
        ("text ends in a character", masked(TEXT, b"\xe2\x82"), 1007),
        ("lone continuation byte", masked(TEXT, b"\x80"), 1007),
        ("overlong", masked(TEXT, b"\xc0\xaf"), 1007),
        ("surrogate", masked(TEXT, b"\xed\xa0\x80"), 1007),
        ("above the last character", masked(TEXT, b"\xf4\x90\x80\x80"), 1007),
        (
            "fragment ends in a character that does not go on",
            [masked(FIRST_TEXT, b"\xe2\x82"), masked(CONTINUATION, b"a")].concat(),
            1007,
        ),
        ("last fragment ends in a character", [masked(FIRST_TEXT, b"a"), masked(CONTINUATION, b"\xe2")].concat(), 1007),
        (
            "empty last fragment after half a character",
            [masked(FIRST_TEXT, b"\xe2"), masked(CONTINUATION, b"")].concat(),
            1007,
        ),
        (
            "a ping does not complete a character",
            [masked(FIRST_TEXT, b"\xe2\x82"), masked(PING, b"\xac"), masked(CONTINUATION, b"")].concat(),
            1007,
        ),
    ];
    for opcode in (3..=7).chain(11..=15) {
        table.push(("reserved opcode", masked(0x80 | opcode, b""), 1002));
        table.push(("reserved opcode in fragments", masked(opcode, b""), 1002));
    }
    for code in [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535_u16] {
        table.push(("close code", masked(CLOSE, &code.to_be_bytes()), 1002));
    }
    table
}

#[test]
fn each_fault_has_its_code() {
    for (name, stream, code) in table() {
        let told = served(&[masked(TEXT, b"before"), masked(PING, b"p"), stream, masked(TEXT, b"after")].concat());
        let fault = told.fault.unwrap_or_else(|| panic!("{name} was taken: {:?}", told.events));
        assert_eq!(fault.code, code, "{name}: {fault}");
        assert!(fault.message.len() <= CLOSE_REASON_BYTES_MAX && fault.message.ends_with('.'), "{name}: {fault}");
        assert_eq!(told.events[..2], [text("before"), Event::Ping(b"p".to_vec())], "{name}");
        assert!(told.is_closed && !told.events.contains(&text("after")), "{name}");
    }
}

#[test]
fn a_fault_is_the_same_byte_by_byte() {
    for (name, stream, _) in table() {
        let stream = [masked(TEXT, b"before"), stream, masked(TEXT, b"after")].concat();
        assert_eq!(served(&stream), decode(Role::Server, 1 << 20, &stream, &[1]), "{name}");
    }
}

#[test]
fn what_is_allowed_at_the_edge() {
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1011, 1014, 3000, 3999, 4000, 4408, 4999_u16] {
        assert_eq!(events(&masked(CLOSE, &code.to_be_bytes())), [close(code, "")]);
    }
    assert_eq!(events(&masked(CLOSE, b"")), [Event::Close { code: None, reason: String::new() }]);
    let longest = [&1000_u16.to_be_bytes()[..], &[b'x'; 123]].concat();
    assert_eq!(events(&masked(CLOSE, &longest)), [close(1000, &"x".repeat(123))]);
    assert_eq!(events(&masked(PING, &[0xff; 125])), [Event::Ping(vec![0xff; 125])]);
    assert_eq!(events(&masked(BINARY, b"\xff\xfe")), [Event::Binary(b"\xff\xfe".to_vec())]);
    assert_eq!(events(&masked(TEXT, b"")), [text("")]);
    assert_eq!(
        events(&masked(TEXT, "\0\u{feff}\u{d7ff}\u{10ffff}".as_bytes())),
        [text("\0\u{feff}\u{d7ff}\u{10ffff}")]
    );
}

#[test]
fn a_client_takes_no_masked_frame() {
    let told = decode(Role::Client, 1 << 20, &[plain(TEXT, b"a"), masked(TEXT, b"b")].concat(), &[]);
    assert_eq!((told.events, told.fault.map(|fault| fault.code)), (vec![text("a")], Some(1002)));
}

#[test]
fn nothing_counts_after_a_close_frame() {
    let stream = [masked(TEXT, b"a"), masked(CLOSE, b"\x03\xe8bye"), masked(TEXT, b"b"), vec![0xff; 9]].concat();
    for sizes in [&[][..], &[1], &[5]] {
        let told = decode(Role::Server, 1 << 20, &stream, sizes);
        assert_eq!((told.events, told.fault), (vec![text("a"), close(1000, "bye")], None));
        assert!(told.is_closed);
    }
    // Also in the middle of a message, which then never ends.
    let told = served(&[masked(FIRST_TEXT, b"a"), masked(CLOSE, b""), masked(CONTINUATION, b"b")].concat());
    assert_eq!(told.events, [Event::Close { code: None, reason: String::new() }]);
}

/// How many bytes of a stream a decoder that gets them one by one has taken when it faults.
fn bytes_until_fault(stream: &[u8]) -> usize {
    let mut decoder = Decoder::new(Role::Server, 1 << 20);
    let fails = |byte: &u8| decoder.feed(&[*byte], &mut Vec::new()).is_err();
    1 + stream.iter().position(fails).expect("the stream has a fault")
}

/// What the test suite Autobahn calls 6.4: text is refused at the byte that spoils it, not at the end of a frame.
#[test]
fn bad_text_is_refused_at_once() {
    let header_bytes = masked(TEXT, b"").len();
    let good = "\u{3ba}\u{1f79}\u{3c3}".as_bytes();
    let table: [(&[u8], usize); 5] =
        [(b"\xf4\x90\x80\x80", 2), (b"\xed\xa0\x80", 2), (b"\xe2\x28\xa1", 2), (b"\xff", 1), (b"\xe2\x82a", 3)];
    for (bad, spoiling) in table {
        let payload = [good, bad, b"edited"].concat();
        let expected = header_bytes + good.len() + spoiling;
        assert_eq!(bytes_until_fault(&masked(TEXT, &payload)), expected, "{bad:x?} in a frame");
        assert_eq!(bytes_until_fault(&masked(FIRST_TEXT, &payload)), expected, "{bad:x?} in a fragment");
        let fragments = [masked(FIRST_TEXT, good), masked(MIDDLE, &payload)].concat();
        assert_eq!(bytes_until_fault(&fragments), header_bytes + good.len() + expected, "{bad:x?} in the second");
        let each_its_own: Vec<u8> = std::iter::once(masked(FIRST_TEXT, b""))
            .chain(payload.iter().map(|&byte| masked(MIDDLE, &[byte])))
            .flatten()
            .collect();
        let frames = good.len() + spoiling;
        assert_eq!(bytes_until_fault(&each_its_own), header_bytes + frames * (header_bytes + 1), "{bad:x?} apart");
    }
}

#[test]
fn a_header_is_judged_before_its_payload_comes() {
    assert_eq!(bytes_until_fault(&masked(TEXT | 0x40, b"hello")), 2);
    assert_eq!(bytes_until_fault(&masked(CONTINUATION, b"hello")), 2);
    assert_eq!(bytes_until_fault(&masked(PING, &[0; 126])), 2);
    assert_eq!(bytes_until_fault(&masked(BINARY, &vec![0; (1 << 20) + 1])), 14);
}
