//! Frames are written byte for byte as RFC 6455 shows them, and read back; on any core.

use crate::stream::{MASK, decode, text};
use ringmain_wire::ws::{Event, Opcode, Role, close_frame, frame, frame_header, text_frame};

fn bytes(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn only_event(role: Role, stream: &[u8]) -> Event {
    let told = decode(role, 1 << 20, stream, &[]);
    assert_eq!((told.fault, told.events.len()), (None, 1));
    told.events.into_iter().next().unwrap()
}

/// The examples of section 5.7, in its order.
#[test]
fn the_examples_of_the_rfc() {
    let hello = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    assert_eq!(bytes(|out| text_frame(out, b"Hello")), hello);
    assert_eq!(only_event(Role::Client, &hello), text("Hello"));

    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(bytes(|out| frame(out, Opcode::Text, b"Hello", Some(MASK))), masked);
    assert_eq!(only_event(Role::Server, &masked), text("Hello"));

    let fragments = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
    assert_eq!(only_event(Role::Client, &fragments), text("Hello"));

    let ping = [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    assert_eq!(bytes(|out| frame(out, Opcode::Ping, b"Hello", None)), ping);
    assert_eq!(only_event(Role::Client, &ping), Event::Ping(b"Hello".to_vec()));
    let pong = [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(bytes(|out| frame(out, Opcode::Pong, b"Hello", Some(MASK))), pong);
    assert_eq!(only_event(Role::Server, &pong), Event::Pong(b"Hello".to_vec()));

    let medium = bytes(|out| frame(out, Opcode::Binary, &[7; 256], None));
    assert_eq!(medium[..4], [0x82, 0x7e, 0x01, 0x00]);
    assert_eq!(only_event(Role::Client, &medium), Event::Binary(vec![7; 256]));

    let long = bytes(|out| frame(out, Opcode::Binary, &[7; 65536], None));
    assert_eq!(long[..10], [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(only_event(Role::Client, &long), Event::Binary(vec![7; 65536]));
}

#[test]
fn lengths_are_written_in_their_shortest_form() {
    let table = [(0, 2), (1, 2), (125, 2), (126, 4), (127, 4), (255, 4), (65_535, 4), (65_536, 10), (1 << 20, 10)];
    for (length, header_bytes) in table {
        let payload = vec![b'x'; length];
        let plain = bytes(|out| frame(out, Opcode::Binary, &payload, None));
        assert_eq!(plain.len(), header_bytes + length);
        assert_eq!(bytes(|out| frame_header(out, Opcode::Binary, length)), plain[..header_bytes]);
        let masked = bytes(|out| frame(out, Opcode::Binary, &payload, Some(MASK)));
        assert_eq!(masked.len(), header_bytes + 4 + length);
        for (role, stream) in [(Role::Client, &plain), (Role::Server, &masked)] {
            assert_eq!(only_event(role, stream), Event::Binary(payload.clone()), "{length} bytes to a {role:?}");
        }
    }
}

#[test]
fn every_opcode_has_its_number() {
    let table = [
        (Opcode::Continuation, 0x80),
        (Opcode::Text, 0x81),
        (Opcode::Binary, 0x82),
        (Opcode::Close, 0x88),
        (Opcode::Ping, 0x89),
        (Opcode::Pong, 0x8a),
    ];
    for (opcode, first) in table {
        assert_eq!(bytes(|out| frame_header(out, opcode, 0)), [first, 0]);
    }
}

#[test]
fn a_frame_is_appended() {
    let mut out = b"before".to_vec();
    text_frame(&mut out, b"a");
    frame(&mut out, Opcode::Text, b"a", Some([1, 2, 3, 4]));
    assert_eq!(out, b"before\x81\x01a\x81\x81\x01\x02\x03\x04\x60");
}

#[test]
fn a_close_frame_has_its_code_and_reason() {
    assert_eq!(bytes(|out| close_frame(out, 1000, "")), [0x88, 2, 0x03, 0xe8]);
    assert_eq!(bytes(|out| close_frame(out, 4404, "gone")), b"\x88\x06\x11\x34gone");
}

#[test]
fn a_close_reason_is_cut_between_characters() {
    let table = [
        ("x".repeat(123), 123),
        ("x".repeat(124), 123),
        ("x".repeat(5000), 123),
        // The character of three bytes would end at 124, 125, or exactly at 123.
        (format!("{}\u{20ac}", "x".repeat(121)), 121),
        (format!("{}\u{20ac}", "x".repeat(122)), 122),
        (format!("{}\u{20ac}", "x".repeat(120)), 123),
        ("\u{1f980}".repeat(40), 120),
    ];
    for (reason, length) in table {
        let told = only_event(Role::Client, &bytes(|out| close_frame(out, 1001, &reason)));
        let expected = Event::Close { code: Some(1001), reason: reason[..length].to_owned() };
        assert_eq!(told, expected);
    }
}
