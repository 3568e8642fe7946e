//! Frames of any kind, also forbidden ones, and what a decoder makes of them; on any core.

use ringmain_wire::ws::{Decoder, Event, Fault, Opcode, Role, frame};

/// First bytes of frames: with the final bit, and without it.
pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CONTINUATION: u8 = 0x80;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;
pub(crate) const FIRST_TEXT: u8 = 0x01;
pub(crate) const FIRST_BINARY: u8 = 0x02;
pub(crate) const MIDDLE: u8 = 0x00;

pub(crate) const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A masked frame with this first byte, whatever it means.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    built(first, payload, Some(MASK))
}

/// A frame with this first byte and without mask.
pub(crate) fn plain(first: u8, payload: &[u8]) -> Vec<u8> {
    built(first, payload, None)
}

fn built(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, Opcode::Binary, payload, mask);
    out[0] = first;
    out
}

/// What a decoder told of a stream.
#[derive(Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) events: Vec<Event>,
    pub(crate) fault: Option<Fault>,
    pub(crate) is_closed: bool,
}

/// Decodes a stream in pieces of these sizes, again and again; an empty list means in one piece.
pub(crate) fn decode(role: Role, message_bytes_max: usize, stream: &[u8], sizes: &[usize]) -> Told {
    let mut decoder = Decoder::new(role, message_bytes_max);
    let (mut events, mut fault) = (Vec::new(), None);
    let mut rest = stream;
    for &size in sizes.iter().chain(&[usize::MAX][..usize::from(sizes.is_empty())]).cycle() {
        let (piece, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        if let Err(found) = decoder.feed(piece, &mut events) {
            assert_eq!(fault, None, "a fault is told once");
            assert!(decoder.is_closed());
            fault = Some(found);
        }
        if rest.is_empty() {
            break;
        }
    }
    Told { events, fault, is_closed: decoder.is_closed() }
}

/// Decodes what a client sent, in one piece.
pub(crate) fn served(stream: &[u8]) -> Told {
    decode(Role::Server, 1 << 20, stream, &[])
}

/// The events of a stream that has no fault, or has them before it.
pub(crate) fn events(stream: &[u8]) -> Vec<Event> {
    served(stream).events
}

pub(crate) fn text(text: &str) -> Event {
    Event::Text(text.to_owned())
}

pub(crate) fn close(code: u16, reason: &str) -> Event {
    Event::Close { code: Some(code), reason: reason.to_owned() }
}
