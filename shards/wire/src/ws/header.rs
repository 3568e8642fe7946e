//! Frame headers: bytes to what a frame says of itself, with every rule that needs no payload; pure, on the core that owns
//! the connection.

use super::{CONTROL_BYTES_MAX, Fault, Opcode, Role};

/// First and second byte, eight bytes of length, four of mask.
pub(super) const HEADER_BYTES_MAX: usize = 14;

/// Values of the second byte's seven bits that announce a length of two and of eight bytes.
pub(super) const LENGTH_IN_TWO_BYTES: u8 = 126;
pub(super) const LENGTH_IN_EIGHT_BYTES: u8 = 127;

/// Bit of the first byte: the frame ends its message.
pub(super) const FINAL: u8 = 0x80;
/// Bits of the first byte that only extensions use.
const RESERVED: u8 = 0x70;
/// Bit of the second byte: a mask follows the length.
pub(super) const MASKED: u8 = 0x80;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) is_final: bool,
    pub(super) opcode: Opcode,
    pub(super) length: u64,
    pub(super) mask: Option<[u8; 4]>,
}

/// Judges the first two bytes of a frame: the kind of frame, and how many bytes its header has in all.
pub(super) fn begin(first: u8, second: u8, role: Role, message_open: bool) -> Result<(Opcode, usize), Fault> {
    if first & RESERVED != 0 {
        return Err(Fault::protocol("A reserved bit is set, but no extension was agreed on."));
    }
    let Some(opcode) = Opcode::of(first) else {
        return Err(Fault::protocol("The frame's opcode is a reserved one."));
    };
    let masked = second & MASKED != 0;
    match role {
        Role::Server if !masked => return Err(Fault::protocol("The frame is not masked. Clients mask each frame.")),
        Role::Client if masked => return Err(Fault::protocol("The frame is masked. Servers do not mask frames.")),
        Role::Server | Role::Client => {}
    }
    let short_length = second & !MASKED;
    if opcode.is_control() {
        if first & FINAL == 0 {
            return Err(Fault::protocol("A control frame is fragmented. Send it in one frame."));
        }
        if usize::from(short_length) > CONTROL_BYTES_MAX {
            return Err(Fault::protocol("A control frame has more than 125 bytes of payload."));
        }
    } else if opcode == Opcode::Continuation && !message_open {
        return Err(Fault::protocol("A continuation frame came, but there is no message to continue."));
    } else if opcode != Opcode::Continuation && message_open {
        return Err(Fault::protocol("A new message began before the last fragment of the one before."));
    }
    let length_bytes = match short_length {
        LENGTH_IN_TWO_BYTES => 2,
        LENGTH_IN_EIGHT_BYTES => 8,
        _ => 0,
    };
    Ok((opcode, 2 + length_bytes + if masked { 4 } else { 0 }))
}

/// Reads a header that [`begin`] found to have these bytes.
pub(super) fn finish(opcode: Opcode, bytes: &[u8]) -> Result<Header, Fault> {
    let (is_final, masked, short_length, rest) = match bytes {
        [first, second, rest @ ..] => (first & FINAL != 0, second & MASKED != 0, second & !MASKED, rest),
        _ => (false, false, 0, bytes),
    };
    let (length_field, mask_field) = rest.split_at(rest.len() - if masked { 4 } else { 0 });
    let length = length_field.iter().fold(0, |value, &byte| (value << 8) | u64::from(byte));
    let length = match short_length {
        LENGTH_IN_EIGHT_BYTES if length >> 63 != 0 => {
            return Err(Fault::protocol("The top bit of a frame's length is set."));
        }
        LENGTH_IN_EIGHT_BYTES if length <= u64::from(u16::MAX) => return Err(length_not_minimal()),
        LENGTH_IN_TWO_BYTES if length < u64::from(LENGTH_IN_TWO_BYTES) => return Err(length_not_minimal()),
        LENGTH_IN_EIGHT_BYTES | LENGTH_IN_TWO_BYTES => length,
        _ => u64::from(short_length),
    };
    Ok(Header { is_final, opcode, length, mask: mask_field.try_into().ok() })
}

#[cold]
fn length_not_minimal() -> Fault {
    Fault::protocol("A frame's length is not written in its shortest form.")
}
