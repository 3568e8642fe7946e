//! WebSocket as bytes: handshakes and frames, for both sides; pure, on the core that owns the connection.
//!
//! The format is RFC 6455 without extensions, so that each of the reserved bits is a fault. What the RFC leaves open is
//! taken strictly: a length that is not written in its shortest form is refused, and text that is not UTF-8 is refused at
//! the byte that spoils it, be it in the middle of a frame, a fragment or a character.
//!
//! SHA-1 and base64 come from libraries. The frames are our own code: the frame header of `tungstenite` cannot be had
//! without its `rand` and `log`, and does not tell whether a length was minimal; its messages take a frame whole before they
//! look at its text or add it to the fragments before. It serves as the other side in the tests instead.

mod decode;
mod encode;
mod handshake;
mod header;
mod mask;

pub use decode::Decoder;
pub use encode::{close_frame, frame, frame_header, text_frame};
pub use handshake::{accept_key, check_upgrade};

/// Payload bytes that a control frame has at most (RFC 6455 section 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

/// Bytes of a close reason at most: the code takes two of the payload's 125.
pub const CLOSE_REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// Which side of a connection decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Requires that frames are masked, and sends them unmasked.
    Server,
    /// Requires that frames are not masked, and masks those that it sends.
    Client,
}

/// What a frame carries (RFC 6455 section 11.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// More of the message that an earlier frame began.
    Continuation,
    /// The beginning of a text message.
    Text,
    /// The beginning of a binary message.
    Binary,
    /// The last frame of its direction.
    Close,
    /// A question whether the other side lives; its payload comes back in a [`Opcode::Pong`].
    Ping,
    /// The answer to a ping, or an unasked sign of life.
    Pong,
}

impl Opcode {
    /// The opcode of a frame's first byte, unless it is one of the reserved.
    pub(crate) fn of(first: u8) -> Option<Self> {
        Some(match first & 0x0f {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    /// Its four bits.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    /// Whether frames of this kind are whole messages of their own and may stand between the fragments of another.
    pub(crate) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// What the other side sent, fragments put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
    /// A ping, to be answered with a pong that has the same payload of at most 125 bytes.
    Ping(Vec<u8>),
    /// A pong. It may come unasked, and then needs no answer.
    Pong(Vec<u8>),
    /// The end of what the other side sends, to be answered with a close frame unless one was sent before.
    Close {
        /// The code, if one was given: one that may stand in a frame, thus never 1005, 1006 or 1015.
        code: Option<u16>,
        /// The reason, at most 123 bytes.
        reason: String,
    },
}

/// How the other side broke the protocol. The connection sends a close frame with these two and ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Close code: 1002 for a broken rule, 1007 for text that is not UTF-8, 1009 for a message beyond the limit.
    pub code: u16,
    /// What is wrong and what is asked instead; at most [`CLOSE_REASON_BYTES_MAX`] bytes.
    pub message: String,
}

impl Fault {
    #[cold]
    pub(crate) fn protocol(message: &str) -> Self {
        Self { code: 1002, message: message.to_owned() }
    }

    #[cold]
    pub(crate) fn not_utf8(message: &str) -> Self {
        Self { code: 1007, message: message.to_owned() }
    }

    #[cold]
    pub(crate) fn too_big(message_bytes_max: usize) -> Self {
        Self {
            code: 1009,
            message: format!("The message is larger than {message_bytes_max} bytes. Send less at once."),
        }
    }
}
