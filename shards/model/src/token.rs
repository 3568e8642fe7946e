//! Resume tokens: where a reader stood in each partition, as short printable text; pure, for any core.
//!
//! Version 1 is `1~` and then, per position, `<incarnation, 16 hex digits>.<partition>.<next offset>`, joined by `~`.
//! To clients the text is opaque. The incarnation names the topic's life, so the topic's name need not be in it.

use std::fmt::Write as _;

use crate::limit::TOKEN_POSITIONS_MAX;
use crate::{Incarnation, Offset, PartitionRef};

/// The next offset to read in one partition of one life of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The partition.
    pub partition: PartitionRef,
    /// The next offset to read.
    pub next: Offset,
}

/// Where a reader stood: one position per partition and topic, at most 64; or a bare number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResumeToken {
    /// A plain number: the offset of the last message seen, in a topic that the request names.
    LastSeen(Offset),
    /// A token that the broker gave.
    Positions(Vec<Position>),
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

    /// Reads what a client sent.
    ///
    /// # Errors
    /// When the text is neither a number nor a token of a known version.
    pub fn decode(text: &str) -> Result<Self, TokenError> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(|offset| Self::LastSeen(Offset(offset))).map_err(|_| TokenError::Damaged);
        }
        let positions = text.strip_prefix("1~").ok_or(TokenError::Unknown)?;
        let mut decoded = Vec::new();
        for part in positions.split('~') {
            if decoded.len() == TOKEN_POSITIONS_MAX {
                return Err(TokenError::TooLong);
            }
            decoded.push(decode_position(part).ok_or(TokenError::Damaged)?);
        }
        Ok(Self::Positions(decoded))
    }
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
