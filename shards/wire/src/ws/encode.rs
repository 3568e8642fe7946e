//! Frames as bytes, for both sides; pure, on the core that owns the connection.

use super::header::{FINAL, HEADER_BYTES_MAX, LENGTH_IN_EIGHT_BYTES, LENGTH_IN_TWO_BYTES, MASKED};
use super::{CLOSE_REASON_BYTES_MAX, CONTROL_BYTES_MAX, Opcode, mask};

/// Appends a text message of the server's side: one final frame without mask. The payload must be UTF-8, as all JSON of
/// [`crate::json`] is.
pub fn text_frame(out: &mut Vec<u8>, payload: &[u8]) {
    debug_assert!(str::from_utf8(payload).is_ok(), "text is UTF-8");
    frame(out, Opcode::Text, payload, None);
}

/// Appends the header of a final frame without mask. Exactly `length` bytes of payload must follow; a control frame has at
/// most 125.
pub fn frame_header(out: &mut Vec<u8>, opcode: Opcode, length: usize) {
    header(out, opcode, length, 0);
}

/// Appends a whole final frame: without mask from a server, and from a client with one that nobody can foretell (RFC 6455
/// section 10.3), which is the caller's to choose anew each time. A control frame has at most 125 bytes of payload.
pub fn frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>) {
    out.reserve(HEADER_BYTES_MAX + payload.len());
    let Some(key) = mask else {
        header(out, opcode, payload.len(), 0);
        out.extend_from_slice(payload);
        return;
    };
    header(out, opcode, payload.len(), MASKED);
    out.extend_from_slice(&key);
    let start = out.len();
    out.extend_from_slice(payload);
    mask::apply(&mut out[start..], key);
}

/// Appends the server's close frame. The reason is cut to 123 bytes, never inside a character. The code must be one that
/// may stand in a frame: 1000 to 1003, 1007 to 1014, or 3000 to 4999.
pub fn close_frame(out: &mut Vec<u8>, code: u16, reason: &str) {
    debug_assert!(is_close_code(code), "{code} may not stand in a close frame");
    let fits = |end: &usize| reason.is_char_boundary(*end);
    let end = (0..=reason.len().min(CLOSE_REASON_BYTES_MAX)).rev().find(fits).unwrap_or(0);
    frame_header(out, Opcode::Close, 2 + end);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&reason.as_bytes()[..end]);
}

/// Whether a close frame may carry this code (RFC 6455 section 7.4 and its registry). 1004 has no meaning; 1005, 1006 and
/// 1015 stand for frames that never came.
pub(super) fn is_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

fn header(out: &mut Vec<u8>, opcode: Opcode, length: usize, masked: u8) {
    debug_assert!(!opcode.is_control() || length <= CONTROL_BYTES_MAX, "a control frame is short");
    let first = FINAL | opcode.bits();
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < LENGTH_IN_TWO_BYTES => out.extend_from_slice(&[first, masked | short]),
        (_, Ok(medium)) => {
            out.extend_from_slice(&[first, masked | LENGTH_IN_TWO_BYTES]);
            out.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            out.extend_from_slice(&[first, masked | LENGTH_IN_EIGHT_BYTES]);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}
