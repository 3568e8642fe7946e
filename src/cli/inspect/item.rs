//! What stands in a log segment, piece after piece, as people and programs read it; on the main thread.

use std::fmt;

use serde::Serialize;

use super::entry::EntryView;

/// A stretch of a log segment.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Item {
    /// A whole batch of the segment's present life.
    Batch {
        position: u64,
        /// Bytes of the batch, filling excluded.
        bytes: u64,
        sequence: u64,
        entry_count: u32,
        checksum: u32,
        checksum_ok: bool,
        previous_checksum: u32,
        /// Whether sequence and checksum go on from the batch before; `None` for the first one of the segment.
        chain_ok: Option<bool>,
        /// Whether the entries could be read.
        entries_ok: bool,
        /// The entries, when they were asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        entries: Option<Vec<EntryView>>,
    },
    /// A batch of the present life was meant to stand here, and does not.
    NotWhole { position: u64, end: u64, sequence: u64, bytes: u64, reason: &'static str },
    /// A whole batch of a later format.
    Newer { position: u64, end: u64, sequence: u64, version: u32 },
    /// Batches of an earlier life of a recycled segment, and what is left of such.
    Stale { position: u64, end: u64, batches: u64, sequence_first: Option<u64>, sequence_last: Option<u64> },
    /// Nothing was ever written here.
    Zeros { position: u64, end: u64 },
    /// Bytes that are no batch: the rest of a damaged one, or left over from an earlier life.
    Other { position: u64, end: u64 },
}

impl Item {
    /// Makes `next`, which follows directly, a part of this stretch; says whether the two are of one kind.
    pub(super) fn absorb(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Zeros { end, .. }, Self::Zeros { end: later, .. })
            | (Self::Other { end, .. }, Self::Other { end: later, .. }) => {
                *end = *later;
                true
            }
            (
                Self::Stale { end, batches, sequence_first, sequence_last, .. },
                Self::Stale { end: later, batches: more, sequence_first: first, sequence_last: last, .. },
            ) => {
                *end = *later;
                *batches += more;
                *sequence_first = sequence_first.or(*first);
                *sequence_last = last.or(*sequence_last);
                true
            }
            _ => false,
        }
    }
}

/// The head of the table that items are lines of.
pub(super) const TABLE_HEAD: &str = "      position       bytes    sequence   entries  checksum  chain";

impl fmt::Display for Item {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch { position, bytes, sequence, entry_count, chain_ok, entries_ok, entries, .. } => {
                let chain = match chain_ok {
                    None => "first here",
                    Some(true) => "ok",
                    Some(false) => "BROKEN",
                };
                write!(to, "  {position:>12}{bytes:>12}{sequence:>12}{entry_count:>10}  ok        {chain}")?;
                if !entries_ok {
                    write!(to, ", ENTRIES MALFORMED")?;
                }
                let entries = entries.iter().flatten();
                entries.into_iter().try_for_each(|entry| write!(to, "\n      {entry}"))
            }
            Self::NotWhole { position, sequence, bytes, reason, .. } => {
                write!(to, "  {position:>12}{bytes:>12}{sequence:>12}            NOT WHOLE: {reason}")
            }
            Self::Newer { position, end, sequence, version } => {
                let bytes = end - position;
                write!(
                    to,
                    "  {position:>12}{bytes:>12}{sequence:>12}            of version {version}, a newer program's"
                )
            }
            Self::Stale { position, end, batches, sequence_first, sequence_last } => {
                write!(to, "  {position:>12}{:>12}  stale: ", end - position)?;
                match (sequence_first, sequence_last) {
                    (Some(first), Some(last)) => {
                        write!(to, "{batches} batches of an earlier life, sequences {first} to {last}")
                    }
                    _ => write!(to, "what is left of an earlier life"),
                }
            }
            Self::Zeros { position, end } => write!(to, "  {position:>12}{:>12}  zeros", end - position),
            Self::Other { position, end } => {
                write!(to, "  {position:>12}{:>12}  bytes that are no batch", end - position)
            }
        }
    }
}
