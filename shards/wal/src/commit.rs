//! The commit batch: what one log write holds, chained to the one before. Pure, on the core that owns the log.

#[cfg(test)]
mod tests;

use bytes::Bytes;

use crate::entry::{self, ENTRY_FIXED_BYTES, Entry, EntryDamage};
use crate::fields::{Fields, length32, push_zeros};
use crate::position::{BLOCK_BYTES, SegmentNumber, Sequence, whole_blocks};

/// Bytes of a commit batch's header; see `FORMAT.md`.
pub const COMMIT_HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 4] = b"RMCB";
pub(crate) const COMMIT_VERSION: u32 = 1;

/// What a commit batch says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitHeader {
    /// Checksum of all that follows it in the batch.
    pub checksum: u32,
    /// Bytes of the batch, filling excluded.
    pub length: u32,
    /// The format's version.
    pub version: u32,
    /// Its number in the log.
    pub sequence: Sequence,
    /// Random number of the start that wrote it.
    pub epoch: u64,
    /// The segment in which it stands.
    pub segment: SegmentNumber,
    /// Where it stands there, in blocks.
    pub block: u32,
    /// Checksum of the batch before.
    pub previous_checksum: u32,
    /// Entries in it.
    pub count: u32,
}

impl CommitHeader {
    /// Reads a header without believing it: its checksum covers the whole batch. `None` when it is none at all.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes.get(..COMMIT_HEADER_BYTES)?);
        let (checksum, length) = (fields.u32()?, fields.u32()?);
        if fields.take(4)? != MAGIC {
            return None;
        }
        let header = Self {
            checksum,
            length,
            version: fields.u32()?,
            sequence: Sequence(fields.u64()?),
            epoch: fields.u64()?,
            segment: SegmentNumber(fields.u64()?),
            block: fields.u32()?,
            previous_checksum: fields.u32()?,
            count: fields.u32()?,
        };
        (usize::try_from(length).ok()? > COMMIT_HEADER_BYTES).then_some(header)
    }

    /// Whether it says that it stands at `position` of `segment`.
    #[must_use]
    pub fn stands_at(&self, segment: SegmentNumber, position: u64) -> bool {
        self.segment == segment && u64::from(self.block) * BLOCK_BYTES == position
    }

    /// Whether `bytes`, which are all of the batch without filling, are what was written.
    #[must_use]
    pub fn is_whole(&self, bytes: &[u8]) -> bool {
        bytes.get(4..).is_some_and(|rest| crc32c::crc32c(rest) == self.checksum)
    }

    /// Whether bytes that are no whole batch were meant to be the awaited one: two of the four numbers that a stale batch
    /// cannot have are right. Only for telling a person, never for believing anything.
    pub(crate) fn was_meant(bytes: &[u8], place: &CommitPlace) -> bool {
        let number = |at: usize| bytes.get(at..).and_then(|rest| Fields::of(rest).u64());
        let checksum = bytes.get(44..).and_then(|rest| Fields::of(rest).u32());
        let agreeing = [
            number(16) == Some(place.sequence.0),
            number(24) == Some(place.epoch),
            number(32) == Some(place.segment.0),
            checksum == Some(place.previous_checksum),
        ];
        agreeing.iter().filter(|agrees| **agrees).count() >= 2
    }

    /// The sequence of a batch that was begun at `place`, which names the awaited one, if it is a later one: at most as many
    /// batches later as `blocks` stand between. Whole or not: its epoch is secret, so that no payload is taken for one.
    pub(crate) fn begun_later(bytes: &[u8], place: &CommitPlace, blocks: u64) -> Option<Sequence> {
        let number = |at: usize| bytes.get(at..).and_then(|rest| Fields::of(rest).u64());
        let word = |at: usize| bytes.get(at..).and_then(|rest| Fields::of(rest).u32());
        let stands_here = number(24) == Some(place.epoch)
            && number(32) == Some(place.segment.0)
            && word(40).map(|block| u64::from(block) * BLOCK_BYTES) == Some(place.position);
        let sequence =
            number(16).filter(|sequence| sequence.checked_sub(place.sequence.0).is_some_and(|later| later <= blocks));
        // One that chains to the same batch as the awaited one is that one, with damage in its sequence.
        let is_other = word(44) != Some(place.previous_checksum);
        sequence.filter(|sequence| stands_here && is_other && *sequence > place.sequence.0).map(Sequence)
    }

    /// Bytes of the batch, filling included.
    #[must_use]
    pub fn bytes_on_disk(&self) -> u64 {
        whole_blocks(u64::from(self.length))
    }

    /// Whether this program knows what stands in a batch of its version.
    #[must_use]
    pub fn is_of_known_version(&self) -> bool {
        self.version == COMMIT_VERSION
    }

    /// The entries of the whole batch, whose `bytes` are given without filling.
    ///
    /// # Errors
    /// What is wrong with them; nothing of the batch is used then.
    pub fn entries(&self, bytes: &Bytes) -> Result<Vec<Entry>, EntryDamage> {
        entries(bytes, self.count)
    }

    fn encode(&self) -> [u8; COMMIT_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(COMMIT_HEADER_BYTES);
        bytes.extend_from_slice(&self.checksum.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.0.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.segment.0.to_le_bytes());
        bytes.extend_from_slice(&self.block.to_le_bytes());
        bytes.extend_from_slice(&self.previous_checksum.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        let mut header = [0; COMMIT_HEADER_BYTES];
        header[..bytes.len()].copy_from_slice(&bytes);
        header
    }
}

/// The entries of a whole commit batch, given without filling.
///
/// # Errors
/// What is wrong with them; nothing of the batch is used then.
pub(crate) fn entries(bytes: &Bytes, count: u32) -> Result<Vec<Entry>, EntryDamage> {
    let reserved = bytes.get(52..COMMIT_HEADER_BYTES).ok_or(EntryDamage::Malformed)?;
    if reserved.iter().any(|byte| *byte != 0) || count == 0 {
        return Err(EntryDamage::Malformed);
    }
    let mut rest = bytes.slice(COMMIT_HEADER_BYTES..);
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (entry, length) = entry::decode(&rest)?;
        entries.push(entry);
        rest = rest.slice(length..);
    }
    if length32(entries.len()) == count { Ok(entries) } else { Err(EntryDamage::Malformed) }
}

/// Where a batch will stand and what it chains to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommitPlace {
    pub(crate) sequence: Sequence,
    pub(crate) epoch: u64,
    pub(crate) segment: SegmentNumber,
    pub(crate) position: u64,
    pub(crate) previous_checksum: u32,
}

/// A closed batch, ready to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClosedBatch {
    pub(crate) header: CommitHeader,
    /// All its bytes, filling included.
    pub(crate) parts: Vec<Bytes>,
}

/// A batch that takes entries. Record batches in it are shared, not copied.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    parts: Vec<Bytes>,
    /// Small entries since the last part.
    tail: Vec<u8>,
    entry_bytes: usize,
    count: u32,
    /// Entries that are no group progress.
    urgent: u32,
}

impl OpenBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether all its entries are progress of groups, which may wait for company.
    pub(crate) fn holds_only_progress(&self) -> bool {
        self.count > 0 && self.urgent == 0
    }

    /// Bytes of the batch without filling, if `more` bytes of entries came.
    pub(crate) fn bytes_with(&self, more: usize) -> usize {
        COMMIT_HEADER_BYTES + self.entry_bytes + more
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        let start = self.tail.len();
        let shared = entry::encode(entry, &mut self.tail);
        self.entry_bytes += self.tail.len() - start;
        if let Some(shared) = shared {
            self.entry_bytes += shared.len();
            self.parts.push(Bytes::from(std::mem::take(&mut self.tail)));
            self.parts.push(shared);
        }
        self.count += 1;
        self.urgent += u32::from(!matches!(entry, Entry::GroupProgress(_)));
    }

    /// Closes the batch at its place; the caller has made sure that it fits there.
    pub(crate) fn close(mut self, place: CommitPlace) -> ClosedBatch {
        let length = self.bytes_with(0);
        let mut header = CommitHeader {
            checksum: 0,
            length: length32(length),
            version: COMMIT_VERSION,
            sequence: place.sequence,
            epoch: place.epoch,
            segment: place.segment,
            block: u32::try_from(place.position / BLOCK_BYTES).unwrap_or(u32::MAX),
            previous_checksum: place.previous_checksum,
            count: self.count,
        };
        if !self.tail.is_empty() {
            self.parts.push(Bytes::from(self.tail));
        }
        // Summed only now: the header comes first, and to put a sum before another costs more than to add up a usual batch.
        let head = crc32c::crc32c(&header.encode()[4..]);
        header.checksum = self.parts.iter().fold(head, |sum, part| crc32c::crc32c_append(sum, part));
        let mut parts = Vec::with_capacity(self.parts.len() + 2);
        parts.push(Bytes::copy_from_slice(&header.encode()));
        parts.append(&mut self.parts);
        let filling = usize::try_from(header.bytes_on_disk()).unwrap_or(usize::MAX) - length;
        push_zeros(&mut parts, filling);
        ClosedBatch { header, parts }
    }
}

const _: () = assert!(ENTRY_FIXED_BYTES + COMMIT_HEADER_BYTES < 4096);
