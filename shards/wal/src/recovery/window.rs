//! What the opener has read and what stands in it: one stretch of one segment at a time. Pure, on the opening core.

use bytes::Bytes;

use crate::commit::{COMMIT_HEADER_BYTES, COMMIT_VERSION, CommitHeader};
use crate::position::{BLOCK_BYTES, whole_blocks};
use crate::recovery::LogOpener;

/// Bytes of one read, unless one batch needs more: large enough that a disk is busy, small enough for many shards at once.
pub(super) const READ_BYTES: u64 = 1 << 20;

/// A stretch of a segment.
#[derive(Debug, Default)]
pub(super) struct Window {
    index: usize,
    start: u64,
    bytes: Bytes,
    asked: u64,
}

impl Window {
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Makes the next read one of at least `bytes` at `position`; says what to read.
    pub(super) fn ask(&mut self, index: usize, position: u64, bytes: u64, segment_bytes: u64) -> (u64, u64) {
        let end = segment_bytes.min(position.saturating_add(whole_blocks(bytes.max(READ_BYTES))));
        (self.index, self.start, self.bytes, self.asked) =
            (index, position, Bytes::new(), end.saturating_sub(position));
        (position, self.asked)
    }

    /// Takes what was read; says where the file ends when that is earlier than asked.
    pub(super) fn fill(&mut self, bytes: &Bytes) -> Option<u64> {
        // A copy of its own, because replayed record batches share it and the reader's buffer has to go back.
        self.bytes = Bytes::copy_from_slice(bytes);
        let end = self.start + bytes.len() as u64;
        ((bytes.len() as u64) < self.asked).then_some(end)
    }

    pub(super) fn get(&self, index: usize, position: u64, bytes: u64) -> Option<Bytes> {
        let from = usize::try_from(position.checked_sub(self.start)?).ok()?;
        let end = from.checked_add(usize::try_from(bytes).ok()?)?;
        (index == self.index && end <= self.bytes.len()).then(|| self.bytes.slice(from..end))
    }
}

/// What stands at a position.
#[derive(Debug)]
pub(super) enum Probe {
    /// That many bytes have to be read first.
    Need(u64),
    /// A whole batch, without filling.
    Batch(CommitHeader, Bytes),
    /// A whole batch of a newer version.
    Newer,
    /// A header that is right about its place, and not the batch that it tells of.
    NotWhole(CommitHeader),
    /// Something else, or the end of the segment.
    Nothing,
}

impl LogOpener {
    pub(super) fn probe(&self, index: usize, position: u64) -> Probe {
        let segment = &self.segments[index];
        let left = segment.bytes.saturating_sub(position);
        if left < COMMIT_HEADER_BYTES as u64 {
            return Probe::Nothing;
        }
        let Some(head) = self.window.get(index, position, COMMIT_HEADER_BYTES as u64) else {
            return Probe::Need(BLOCK_BYTES.min(left));
        };
        let Some(header) = CommitHeader::read(&head) else { return Probe::Nothing };
        let is_ours = segment.epoch.is_none_or(|epoch| epoch == header.epoch);
        if !header.stands_at(segment.number, position) || !is_ours {
            return Probe::Nothing;
        }
        let length = u64::from(header.length);
        if length > left {
            return Probe::NotWhole(header);
        }
        match self.window.get(index, position, length) {
            None => Probe::Need(length),
            Some(bytes) if !header.is_whole(&bytes) => Probe::NotWhole(header),
            Some(_) if header.version != COMMIT_VERSION => Probe::Newer,
            Some(bytes) => Probe::Batch(header, bytes),
        }
    }
}
