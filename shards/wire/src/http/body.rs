//! Message bodies: framed bytes to content, piece by piece; pure, on the core that owns the connection.
//!
//! Chunked framing is RFC 9112 section 7.1: `size [extensions] CRLF data CRLF` and so on, a size of zero, trailers, an
//! empty line. Extensions and trailers are read over, within a bound, and thrown away.

use super::refusal::excerpt;
use super::{Framing, Refusal};

/// Bytes of chunk extensions and trailers that one body may have, all together: they carry nothing that is used, so
/// this is room for the habits of proxies and not for data.
const OVERHEAD_BYTES_MAX: u16 = 8 << 10;

/// Digits of one chunk size: what 64 bits hold.
const SIZE_DIGITS_MAX: u8 = 16;

/// Takes a body out of its framing. It holds no content itself and is 32 bytes large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyDecoder {
    /// Bytes that are still to come of the whole body, or of the current chunk; in [`State::Size`] the size so far.
    remaining: u64,
    /// Bytes of content taken so far.
    taken: u64,
    body_bytes_max: u64,
    /// Bytes of extensions and trailers that may still be read over.
    overhead: u16,
    /// Digits of the chunk size read so far.
    digits: u8,
    state: State,
}

const _: () = assert!(size_of::<BodyDecoder>() <= 32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Complete,
    Length,
    UntilClose,
    /// In the digits of a chunk's size.
    Size,
    /// White space after a size: an extension must follow.
    SizePadding,
    Extension,
    SizeLineFeed,
    Data,
    DataCarriageReturn,
    DataLineFeed,
    /// Before a trailer or the empty line that ends the body.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
}

impl BodyDecoder {
    /// A decoder for a body with this framing and at most `body_bytes_max` bytes of content.
    ///
    /// # Errors
    ///
    /// 413 at once if the announced length is above the limit.
    pub fn new(framing: Framing, body_bytes_max: u64) -> Result<Self, Refusal> {
        let (state, remaining) = match framing {
            Framing::None | Framing::Length(0) => (State::Complete, 0),
            Framing::Length(length) if length > body_bytes_max => return Err(Refusal::body_too_large(body_bytes_max)),
            Framing::Length(length) => (State::Length, length),
            Framing::Chunked => (State::Size, 0),
            Framing::UntilClose => (State::UntilClose, 0),
        };
        Ok(Self { remaining, taken: 0, body_bytes_max, overhead: OVERHEAD_BYTES_MAX, digits: 0, state })
    }

    /// Appends the content in `input` to `body`; returns how many bytes were used and whether the body is complete.
    /// Bytes after the body's end are not used: they belong to the next message. Unless the body is complete, all of
    /// `input` is used.
    ///
    /// # Errors
    ///
    /// 400 for broken chunked framing or too large extensions and trailers, 413 if the content exceeds the limit. The
    /// connection must be closed after that; what `body` got before is to be thrown away.
    pub fn decode(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<(usize, bool), Refusal> {
        let mut used = 0;
        while self.state != State::Complete && used < input.len() {
            let rest = &input[used..];
            used += match self.state {
                State::Length | State::Data | State::UntilClose => self.content(rest, body)?,
                _ => {
                    self.framing(rest[0])?;
                    1
                }
            };
        }
        Ok((used, self.complete()))
    }

    /// Whether the whole body has been decoded. Never true for [`Framing::UntilClose`]: see [`BodyDecoder::end`].
    #[must_use]
    pub fn complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Bytes of content decoded so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes of content that are certain to come before the body ends: all that is left of a known length. `None` when
    /// chunks, or the end of the connection, will tell. For reserving memory; it never exceeds the limit.
    #[must_use]
    pub fn remaining_hint(&self) -> Option<u64> {
        match self.state {
            State::Length => Some(self.remaining),
            State::Complete => Some(0),
            _ => None,
        }
    }

    /// Tells the decoder that the connection ended.
    ///
    /// # Errors
    ///
    /// 400 `incomplete_body` if that cuts the body short.
    pub fn end(&mut self) -> Result<(), Refusal> {
        match self.state {
            State::Complete | State::UntilClose => {
                self.state = State::Complete;
                Ok(())
            }
            _ => Err(Refusal::new(
                400,
                "incomplete_body",
                "The connection ended before the body did. Send the body whole, with its true length.",
            )),
        }
    }

    /// Takes as much content as there is, without looking at it.
    fn content(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<usize, Refusal> {
        let available = u64::try_from(input.len()).unwrap_or(u64::MAX);
        let wanted = match self.state {
            State::UntilClose if available > self.body_bytes_max - self.taken => {
                return Err(Refusal::body_too_large(self.body_bytes_max));
            }
            State::UntilClose => available,
            _ => available.min(self.remaining),
        };
        // It is at most `input.len()`, so it converts back.
        let length = usize::try_from(wanted).unwrap_or(input.len());
        body.extend_from_slice(&input[..length]);
        self.taken += wanted;
        if self.state != State::UntilClose {
            self.remaining -= wanted;
            if self.remaining == 0 {
                self.state = if self.state == State::Length { State::Complete } else { State::DataCarriageReturn };
            }
        }
        Ok(length)
    }

    /// Takes one byte of chunked framing.
    fn framing(&mut self, byte: u8) -> Result<(), Refusal> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => self.size_digit(byte)?,
            (State::Size, b';') if self.digits > 0 => State::Extension,
            (State::Size, b'\r') if self.digits > 0 => State::SizeLineFeed,
            (State::Size, b' ' | b'\t') if self.digits > 0 => self.read_over(State::SizePadding)?,
            (State::SizePadding, b' ' | b'\t') => self.read_over(State::SizePadding)?,
            (State::SizePadding, b';') => State::Extension,
            (State::Size | State::SizePadding, _) => return Err(size_malformed(byte)),
            (State::Extension, b'\r') => State::SizeLineFeed,
            (State::SizeLineFeed, b'\n') => self.chunk_start()?,
            (State::DataCarriageReturn, b'\r') => State::DataLineFeed,
            (State::DataLineFeed, b'\n') => {
                self.digits = 0;
                State::Size
            }
            (State::TrailerStart, b'\r') => State::LastLineFeed,
            (State::TrailerStart | State::TrailerName, _) if name_byte(byte) => self.read_over(State::TrailerName)?,
            (State::TrailerName, b':') => self.read_over(State::TrailerValue)?,
            (State::TrailerValue, b'\r') => State::TrailerLineFeed,
            (State::TrailerLineFeed, b'\n') => State::TrailerStart,
            (State::LastLineFeed, b'\n') => State::Complete,
            (State::Extension | State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => self.read_over(self.state)?,
            (State::DataCarriageReturn | State::DataLineFeed, _) => {
                return Err(Refusal::framing(
                    "A chunk of the body is longer than its size says: CRLF must follow its data. Correct the size.",
                ));
            }
            _ => {
                return Err(Refusal::framing(
                    "A chunk extension or trailer of the body is malformed, or a line does not end with CRLF. Send none, \
                     or well-formed ones.",
                ));
            }
        };
        Ok(())
    }

    fn size_digit(&mut self, byte: u8) -> Result<State, Refusal> {
        if self.digits == SIZE_DIGITS_MAX {
            return Err(Refusal::framing(
                "A chunk size of the body has more than 16 digits. Send sizes as hexadecimal numbers without padding.",
            ));
        }
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20) - b'a' + 10,
        };
        // Sixteen digits of four bits fit exactly, so the shift loses nothing.
        self.remaining = (self.remaining << 4) | u64::from(digit);
        self.digits += 1;
        Ok(State::Size)
    }

    /// The line with a chunk's size has ended.
    fn chunk_start(&mut self) -> Result<State, Refusal> {
        if self.remaining > self.body_bytes_max - self.taken {
            return Err(Refusal::body_too_large(self.body_bytes_max));
        }
        Ok(if self.remaining == 0 { State::TrailerStart } else { State::Data })
    }

    /// Counts one byte that carries nothing.
    fn read_over(&mut self, next: State) -> Result<State, Refusal> {
        match self.overhead.checked_sub(1) {
            Some(left) => {
                self.overhead = left;
                Ok(next)
            }
            None => Err(Refusal::framing(format!(
                "The chunk extensions and trailers of the body exceed {OVERHEAD_BYTES_MAX} bytes. Send none: they are \
                 ignored."
            ))),
        }
    }
}

/// Bytes of a field name (RFC 9110 section 5.6.2).
fn name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cold]
fn size_malformed(byte: u8) -> Refusal {
    Refusal::framing(format!(
        "A chunk of the body does not start with its size: {:?} is not expected there. Send the size in hexadecimal, \
         then CRLF.",
        excerpt(&[byte])
    ))
}
