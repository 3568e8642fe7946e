//! Frames to messages, however the bytes are split; pure, on the core that owns the connection.

use super::encode::is_close_code;
use super::header::{self, HEADER_BYTES_MAX};
use super::{Event, Fault, Opcode, Role, mask};

/// Puts frames and messages together from the bytes of one connection.
///
/// It holds heap memory only while a message is in pieces: at most twice the bytes of the message that have come, and never
/// more than the largest message and a control frame.
#[derive(Clone, Debug)]
pub struct Decoder {
    message_bytes_max: usize,
    /// Unmasked payload of the message that is in pieces; behind it that of the control frame that is in pieces.
    held: Vec<u8>,
    stage: Stage,
    /// Bytes at the end of the held text that begin a character: at most three.
    character_bytes: u8,
    open: Open,
    role: Role,
}

/// The message that awaits more fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    None,
    Text,
    Binary,
}

/// Where in a frame the connection is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// In a header, of which so many bytes have come.
    Header { bytes: [u8; HEADER_BYTES_MAX], count: u8 },
    /// In a payload.
    Payload(Payload),
    /// Behind a close frame or a fault: nothing counts any more.
    Ended,
}

/// The rest of a frame whose header was read.
#[derive(Clone, Copy, Debug)]
struct Payload {
    length: usize,
    remaining: usize,
    /// The mask as it applies to the next byte.
    mask: Option<[u8; 4]>,
    opcode: Opcode,
    is_final: bool,
}

// A server has one for each connection, and most of them wait.
const _: () = assert!(size_of::<Decoder>() <= 64);

impl Stage {
    const START: Self = Self::Header { bytes: [0; HEADER_BYTES_MAX], count: 0 };
}

impl Decoder {
    /// A decoder at the start of a connection, for messages of at most `message_bytes_max` bytes, fragments added up.
    #[must_use]
    pub fn new(role: Role, message_bytes_max: usize) -> Self {
        Self { message_bytes_max, held: Vec::new(), stage: Stage::START, character_bytes: 0, open: Open::None, role }
    }

    /// Takes the next bytes of the connection, all of them, and appends the events that they complete. After a close frame
    /// or a fault everything that comes is dropped.
    ///
    /// # Errors
    ///
    /// A [`Fault`], once; `events` has what came before it.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Fault> {
        let result = self.advance(bytes, events);
        if result.is_err() {
            self.end();
        }
        result
    }

    /// Whether a close frame or a fault came, after which nothing is read.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// Bytes of heap memory that are held for a message in pieces; 0 between messages.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    fn advance(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Fault> {
        let mut rest = bytes;
        loop {
            match self.stage {
                Stage::Header { .. } => match self.read_header(&mut rest)? {
                    Some(payload) => self.stage = Stage::Payload(payload),
                    None => return Ok(()),
                },
                Stage::Payload(mut payload) => {
                    let (piece, after) = rest.split_at(payload.remaining.min(rest.len()));
                    rest = after;
                    self.hold(piece, &mut payload);
                    if payload.remaining > 0 {
                        self.stage = Stage::Payload(payload);
                        return self.check_piece(piece.len(), payload.opcode);
                    }
                    self.stage = Stage::START;
                    self.end_of_frame(piece.len(), &payload, events)?;
                }
                Stage::Ended => return Ok(()),
            }
        }
    }

    /// Collects and judges a header; `None` while some of it has not come.
    fn read_header(&mut self, rest: &mut &[u8]) -> Result<Option<Payload>, Fault> {
        let Stage::Header { bytes, count } = &mut self.stage else { return Ok(None) };
        if !fill(bytes, count, rest, 2) {
            return Ok(None);
        }
        let (opcode, header_bytes) = header::begin(bytes[0], bytes[1], self.role, self.open != Open::None)?;
        if !fill(bytes, count, rest, header_bytes) {
            return Ok(None);
        }
        let header = header::finish(opcode, &bytes[..header_bytes])?;
        let fits = |length: &usize| opcode.is_control() || *length <= self.message_bytes_max - self.held.len();
        let Some(length) = usize::try_from(header.length).ok().filter(fits) else {
            return Err(Fault::too_big(self.message_bytes_max));
        };
        Ok(Some(Payload { length, remaining: length, mask: header.mask, opcode, is_final: header.is_final }))
    }

    /// Keeps a piece of payload, without its mask.
    fn hold(&mut self, piece: &[u8], payload: &mut Payload) {
        let start = self.held.len();
        if self.held.capacity() - start < piece.len() {
            // Memory doubles, so that a message in a thousand fragments is not moved a thousand times; it grows with what
            // came, not with what a header announces; and it does not go beyond what may still come.
            let ends_here = payload.is_final && !payload.opcode.is_control();
            let room = if ends_here { payload.remaining } else { self.message_bytes_max.saturating_sub(start) };
            self.held.reserve_exact(piece.len().max(start.min(room)));
        }
        self.held.extend_from_slice(piece);
        payload.remaining -= piece.len();
        if let Some(key) = &mut payload.mask {
            mask::apply(&mut self.held[start..], *key);
            *key = mask::advanced(*key, piece.len());
        }
    }

    /// A frame is whole; its last `piece_bytes` have not been checked.
    fn end_of_frame(&mut self, piece_bytes: usize, payload: &Payload, events: &mut Vec<Event>) -> Result<(), Fault> {
        match payload.opcode {
            Opcode::Ping => events.push(Event::Ping(self.take_control(payload.length))),
            Opcode::Pong => events.push(Event::Pong(self.take_control(payload.length))),
            Opcode::Close => {
                let close = read_close(&self.take_control(payload.length))?;
                self.end();
                events.push(close);
            }
            Opcode::Text => self.open = Open::Text,
            Opcode::Binary => self.open = Open::Binary,
            Opcode::Continuation => {}
        }
        if payload.opcode.is_control() {
            return Ok(());
        }
        if !payload.is_final {
            return self.check_piece(piece_bytes, payload.opcode);
        }
        self.character_bytes = 0;
        let message = std::mem::take(&mut self.held);
        events.push(match std::mem::replace(&mut self.open, Open::None) {
            Open::Text => Event::Text(String::from_utf8(message).map_err(|_| text_not_utf8())?),
            Open::None | Open::Binary => Event::Binary(message),
        });
        Ok(())
    }

    /// Checks the piece of text that was held last, so that a fault shows before the rest of the message comes.
    fn check_piece(&mut self, piece_bytes: usize, opcode: Opcode) -> Result<(), Fault> {
        let is_text = opcode == Opcode::Text || (opcode == Opcode::Continuation && self.open == Open::Text);
        if !is_text {
            return Ok(());
        }
        let start = self.held.len() - piece_bytes - usize::from(self.character_bytes);
        let unchecked = &self.held[start..];
        let whole = match str::from_utf8(unchecked) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err(text_not_utf8()),
        };
        // The first byte of a character foretells at most three more, so that less than four begin one.
        self.character_bytes = u8::try_from(unchecked.len() - whole).unwrap_or(0);
        Ok(())
    }

    /// The payload of the control frame that is held behind the message in pieces.
    fn take_control(&mut self, length: usize) -> Vec<u8> {
        match self.held.len() - length {
            0 => std::mem::take(&mut self.held),
            start => self.held.split_off(start),
        }
    }

    fn end(&mut self) {
        self.stage = Stage::Ended;
        self.held = Vec::new();
    }
}

/// Moves bytes of a header from `rest` until there are `wanted`; whether there are.
fn fill(bytes: &mut [u8; HEADER_BYTES_MAX], count: &mut u8, rest: &mut &[u8], wanted: usize) -> bool {
    let have = usize::from(*count);
    let (piece, after) = rest.split_at(wanted.saturating_sub(have).min(rest.len()));
    bytes[have..have + piece.len()].copy_from_slice(piece);
    *rest = after;
    // A header has at most 14 bytes.
    *count += u8::try_from(piece.len()).unwrap_or(0);
    have + piece.len() >= wanted
}

/// The payload of a close frame: nothing, or a code and a reason.
fn read_close(payload: &[u8]) -> Result<Event, Fault> {
    let (code, reason) = match payload {
        [] => return Ok(Event::Close { code: None, reason: String::new() }),
        [_] => return Err(Fault::protocol("A close frame has one byte of payload. Send none, or a code of two.")),
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
    };
    if !is_close_code(code) {
        return Err(Fault::protocol("A close frame's code is one that may not be sent."));
    }
    match str::from_utf8(reason) {
        Ok(reason) => Ok(Event::Close { code: Some(code), reason: reason.to_owned() }),
        Err(_) => Err(Fault::not_utf8("The reason of a close frame is not UTF-8.")),
    }
}

#[cold]
fn text_not_utf8() -> Fault {
    Fault::not_utf8("A text message is not UTF-8. Send it as a binary message, or encode it.")
}
