//! Resume tokens: where a reader stood in each partition, as short printable text; pure, for any core.
//!
//! Version 1 is `1~` and then, per position, `<incarnation, 16 hex digits>.<partition>.<next offset>`, joined by `~`.
//! To clients the text is opaque. The incarnation names the topic's life, so the topic's name need not be in it. In the token
//! of a stream of several topics each position has a fourth part, `.<mark, 4 hex digits>`, made of the topic's name: by it
//! a topic that was made again is told from one that the stream did not have.

use std::fmt::Write as _;

use crate::limit::TOKEN_POSITIONS_MAX;
use crate::{Incarnation, Offset, PartitionRef, TopicName};

/// The next offset to read in one partition of one life of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The partition.
    pub partition: PartitionRef,
    /// The next offset to read.
    pub next: Offset,
}

/// Sixteen bits of a topic's name. Two names may share them: enough to tell a few topics of one stream apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicMark(pub u16);

impl TopicMark {
    /// The mark of a name: its FNV-1a of 32 bits, folded. Tokens hold it, so it stays the same for ever.
    #[must_use]
    pub fn of(name: &TopicName) -> Self {
        let bytes = name.as_str().bytes();
        let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let [first, second, third, fourth] = hash.to_be_bytes();
        Self(u16::from_be_bytes([first ^ third, second ^ fourth]))
    }
}

/// A position in a stream of several topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkedPosition {
    /// Where.
    pub position: Position,
    /// In which topic, whatever its life.
    pub mark: TopicMark,
}

/// Where a reader stood: one position per partition and topic, at most 64; or a bare number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResumeToken {
    /// A plain number: the offset of the last message seen, in a topic that the request names.
    LastSeen(Offset),
    /// A token that the broker gave.
    Positions(Vec<Position>),
    /// A token that the broker gave on a stream of several topics.
    Several(Vec<MarkedPosition>),
}

/// A text that is neither a number nor a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// Of a version that this broker does not know, or not a token at all.
    #[error("this resume token is not one of this broker: leave it out, or give the offset of the last message seen")]
    Unknown,
    /// Begins like a token, and is damaged.
    #[error("this resume token is damaged: leave it out, or give the offset of the last message seen")]
    Damaged,
    /// More positions than a token may have.
    #[error("this resume token has more than {TOKEN_POSITIONS_MAX} positions")]
    TooLong,
}

impl ResumeToken {
    /// Appends the token of one position to `out`.
    pub fn write_one(out: &mut String, position: Position) {
        let PartitionRef { incarnation, partition } = position.partition;
        // Writing to a String cannot fail.
        let _ = write!(out, "1~{incarnation}.{partition}.{}", position.next);
    }

    /// The text of a token for `positions`.
    #[must_use]
    pub fn encode(positions: &[Position]) -> String {
        let mut out = String::from("1");
        for Position { partition, next } in positions {
            let _ = write!(out, "~{}.{}.{next}", partition.incarnation, partition.partition);
        }
        out
    }

    /// How a token begins; its positions follow.
    pub const START: &str = "1";

    /// Appends one position of a token of one topic to `out`, which begins with [`ResumeToken::START`].
    pub fn write_position(out: &mut String, position: Position) {
        let PartitionRef { incarnation, partition } = position.partition;
        let _ = write!(out, "~{incarnation}.{partition}.{}", position.next);
    }

    /// Appends one position of a token of several topics to `out`, which begins with [`ResumeToken::START`].
    pub fn write_marked(out: &mut String, marked: MarkedPosition) {
        let PartitionRef { incarnation, partition } = marked.position.partition;
        let _ = write!(out, "~{incarnation}.{partition}.{}.{:04x}", marked.position.next, marked.mark.0);
    }

    /// Reads what a client sent.
    ///
    /// # Errors
    /// When the text is neither a number nor a token of a known version.
    pub fn decode(text: &str) -> Result<Self, TokenError> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(|offset| Self::LastSeen(Offset(offset))).map_err(|_| TokenError::Damaged);
        }
        let positions = text.strip_prefix("1~").ok_or(TokenError::Unknown)?;
        if positions.split('~').nth(TOKEN_POSITIONS_MAX).is_some() {
            return Err(TokenError::TooLong);
        }
        // A token has marks at all its positions or at none.
        let plain: Option<Vec<_>> = positions.split('~').map(decode_position).collect();
        if let Some(plain) = plain {
            return Ok(Self::Positions(plain));
        }
        let marked: Option<Vec<_>> = positions.split('~').map(decode_marked).collect();
        marked.map(Self::Several).ok_or(TokenError::Damaged)
    }
}

fn decode_marked(text: &str) -> Option<MarkedPosition> {
    let (position, mark) = text.rsplit_once('.')?;
    if mark.len() != 4 || !mark.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mark = TopicMark(u16::from_str_radix(mark, 16).ok()?);
    Some(MarkedPosition { position: decode_position(position)?, mark })
}

fn decode_position(text: &str) -> Option<Position> {
    let (incarnation, rest) = text.split_once('.')?;
    let (partition, next) = rest.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if incarnation.len() != 16 || !incarnation.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    if !digits(partition) || !digits(next) {
        return None;
    }
    Some(Position {
        partition: PartitionRef {
            incarnation: Incarnation(u64::from_str_radix(incarnation, 16).ok()?),
            partition: partition.parse().ok()?,
        },
        next: Offset(next.parse().ok()?),
    })
}
