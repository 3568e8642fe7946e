//! Places in the commit log: sequences, segment numbers, positions. Plain values for any core.

use std::fmt;

/// Bytes of a block: what direct I/O writes and where every commit batch starts.
pub const BLOCK_BYTES: u64 = 4096;

/// Number of a commit batch, from 1, over all starts of the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The one after.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Number of a log segment, from 1; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SegmentNumber(pub u64);

impl SegmentNumber {
    /// The one after.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for SegmentNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Where a batch is awaited, with all that it must chain to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPosition {
    /// The segment of the batch before; the awaited one stands there or at the start of a later one.
    pub segment: SegmentNumber,
    /// Bytes from the start of that segment, a multiple of [`BLOCK_BYTES`].
    pub position: u64,
    /// The sequence that is awaited.
    pub next: Sequence,
    /// Checksum of the batch before.
    pub previous_checksum: u32,
}

impl LogPosition {
    /// The start of a log in which nothing was ever written.
    pub const START: Self =
        Self { segment: SegmentNumber(1), position: BLOCK_BYTES, next: Sequence(1), previous_checksum: 0 };
}

/// `bytes` rounded up to whole blocks.
pub(crate) fn whole_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}
