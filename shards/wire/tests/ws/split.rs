//! However the network cuts a stream of frames, it decodes to the same events and the same fault; on any core.

use crate::stream::{Told, decode};
use proptest::prelude::*;
use proptest::sample::select;
use ringmain_wire::ws::{Opcode, Role, frame};

/// A payload: text, half a character, a close code, or anything.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let fixed: Vec<&[u8]> = vec![
        b"",
        b"a",
        b"\xe2",
        b"\x82",
        b"\xac",
        b"\xe2\x82\xac",
        b"\xf0\x9f",
        b"\xa6\x80",
        b"\xff",
        b"\x03\xe8",
        b"\x03\xe8bye",
        b"\x03\xed",
        "\u{3ba}\u{1f79}\u{3c3}\u{3bc}\u{3b5}".as_bytes(),
    ];
    prop_oneof![
        6 => select(fixed).prop_map(<[u8]>::to_vec),
        1 => ".{0,60}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
    ]
}

/// A frame, mostly one that a client may send, so that streams go on for a while.
fn one_frame() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        20 => select(vec![0x81_u8, 0x82, 0x89, 0x8a, 0x01, 0x02, 0x00, 0x80]),
        1 => Just(0x88),
        1 => any::<u8>(),
    ];
    let masked = prop_oneof![30 => Just(true), 1 => Just(false)];
    (first, payload(), any::<[u8; 4]>(), masked).prop_map(|(first, payload, mask, masked)| {
        let mut out = Vec::new();
        frame(&mut out, Opcode::Binary, &payload, masked.then_some(mask));
        out[0] = first;
        out
    })
}

fn whole(stream: &[u8], message_bytes_max: usize) -> Told {
    decode(Role::Server, message_bytes_max, stream, &[])
}

proptest! {
    #[test]
    fn frames(
        frames in proptest::collection::vec(one_frame(), 0..8),
        sizes in proptest::collection::vec(1_usize..40, 1..10),
    ) {
        let stream = frames.concat();
        for message_bytes_max in [1 << 20, 9] {
            let whole = whole(&stream, message_bytes_max);
            prop_assert_eq!(&whole, &decode(Role::Server, message_bytes_max, &stream, &[1]));
            prop_assert_eq!(&whole, &decode(Role::Server, message_bytes_max, &stream, &sizes));
        }
    }

    #[test]
    fn arbitrary_bytes(stream in proptest::collection::vec(any::<u8>(), 0..60)) {
        for role in [Role::Server, Role::Client] {
            let whole = decode(role, 20, &stream, &[]);
            prop_assert_eq!(&whole, &decode(role, 20, &stream, &[1]));
        }
    }

    /// One stream of everything, cut in two at every byte.
    #[test]
    fn cut_in_two(frames in proptest::collection::vec(one_frame(), 3)) {
        let stream = frames.concat();
        let expected = whole(&stream, 100);
        for cut in 1..stream.len().max(1) {
            prop_assert_eq!(&expected, &decode(Role::Server, 100, &stream, &[cut, usize::MAX]), "cut at {}", cut);
        }
    }

    /// A mask changes nothing but the bytes on the way, wherever a frame is cut.
    #[test]
    fn masks(payload in proptest::collection::vec(any::<u8>(), 0..300), mask: [u8; 4], size in 1_usize..20) {
        let mut stream = Vec::new();
        frame(&mut stream, Opcode::Binary, &payload, Some(mask));
        let body = &stream[stream.len() - payload.len()..];
        prop_assert!(body.iter().zip(&payload).enumerate().all(|(at, (sent, meant))| sent ^ meant == mask[at % 4]));
        let told = decode(Role::Server, 300, &stream, &[size]);
        prop_assert_eq!(told.events, [ringmain_wire::ws::Event::Binary(payload)]);
    }
}
