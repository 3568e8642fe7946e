//! Topic segments: where a partition's records stand once a checkpoint has moved them out of the log. Plain values for any core.

mod chunk;
mod header;
mod index;
mod plan;
mod scan;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

use ringmain_model::{Offset, PartitionRef};

use crate::batch::HEADER_BYTES as BATCH_HEADER_BYTES;
use crate::effect::{FileName, TopicFile};
use crate::fields::{Fields, length32};
use crate::position::{BLOCK_BYTES, whole_blocks};
use crate::record::RECORD_FIXED_BYTES;

pub use chunk::{ChunkDamage, decode_chunk};
pub use header::{TopicHeaderDamage, TopicSegmentHeader};
pub use index::{IndexDamage, decode_index};
pub use plan::StoreJob;
pub use scan::{ChunkScan, ChunkScanOutput};
pub use writer::{SegmentsOutput, SegmentsWriter};

/// Bytes of a chunk's header; see `FORMAT.md`.
pub const CHUNK_HEADER_BYTES: u32 = 64;
/// Bytes of record batches that are worth a chunk: a partition whose tail is smaller is better copied to the log's head.
pub const CHUNK_BYTES_MIN: u32 = 256 << 10;
/// Bytes of record batches in one chunk, unless a single batch is larger.
pub const CHUNK_BYTES_MAX: u32 = 1 << 20;
/// Largest size at which a segment may be sealed, so that its index and its checkpoint entry keep lengths of 32 bits.
pub const TOPIC_SEGMENT_BYTES_MAX: u64 = 64 << 30;
/// Bytes of one write: a segment's header and a full chunk.
pub const TOPIC_WRITE_BYTES_MAX: u64 = CHUNK_BYTES_MAX as u64 + 2 * BLOCK_BYTES;

/// Bytes of a chunk in an index or in a checkpoint.
const CHUNK_ENTRY_BYTES: usize = 48;
/// Bytes of a segment in a checkpoint, without its chunks.
pub(crate) const SEGMENT_FIXED_BYTES: usize = 56;

/// Some record batches that stand in a segment together and are read together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Offset of the first record.
    pub base: Offset,
    /// Offset after the last record.
    pub end: Offset,
    /// Bytes from the start of the file, a multiple of [`BLOCK_BYTES`].
    pub position: u64,
    /// Bytes of its header and its batches, filling excluded.
    pub bytes: u32,
    /// The smallest base time of its batches, microseconds since the Unix epoch.
    pub first_time_us: i64,
    /// The largest base time of its batches.
    pub last_time_us: i64,
}

impl Chunk {
    /// Bytes to read at its position: whole blocks.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        whole_blocks(u64::from(self.bytes))
    }

    /// Whether some batches can have made these numbers.
    fn is_plausible(&self) -> bool {
        let count = self.end.since(self.base);
        // Also what keeps a forged count from being believed.
        let least = count
            .checked_mul(RECORD_FIXED_BYTES as u64)
            .and_then(|records| records.checked_add(u64::from(CHUNK_HEADER_BYTES) + BATCH_HEADER_BYTES as u64));
        let is_placed = self.position >= BLOCK_BYTES && self.position.is_multiple_of(BLOCK_BYTES);
        let has_room = self.position.checked_add(self.read_bytes()).is_some();
        let times_rise = self.first_time_us <= self.last_time_us;
        count > 0 && least.is_some_and(|least| least <= u64::from(self.bytes)) && is_placed && has_room && times_rise
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.base.0.to_le_bytes());
        out.extend_from_slice(&self.end.0.to_le_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.first_time_us.to_le_bytes());
        out.extend_from_slice(&self.last_time_us.to_le_bytes());
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let (base, end, position) = (Offset(fields.u64()?), Offset(fields.u64()?), fields.u64()?);
        let bytes = fields.u32()?;
        fields.zeros(4)?;
        let chunk = Self { base, end, position, bytes, first_time_us: fields.i64()?, last_time_us: fields.i64()? };
        chunk.is_plausible().then_some(chunk)
    }
}

/// One file of a partition, as far as it counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicSegment {
    /// Offset of the first record; in the file's name.
    pub base: Offset,
    /// Offset after the last record.
    pub end: Offset,
    /// Bytes of its record batches alone.
    pub record_bytes: u64,
    /// The smallest base time of its batches, microseconds since the Unix epoch.
    pub first_time_us: i64,
    /// The largest base time of its batches.
    pub last_time_us: i64,
    /// Where the next chunk goes or, if it is sealed, where the index stands; a multiple of [`BLOCK_BYTES`].
    pub file_bytes: u64,
    /// Bytes of the index, filling excluded; 0 when it is not sealed.
    pub index_bytes: u32,
    /// Its chunks in order as long as it is not sealed; then they are in the index, and this is empty.
    pub chunks: Vec<Chunk>,
}

impl TopicSegment {
    /// The file of this segment of `partition`.
    #[must_use]
    pub fn file(&self, partition: PartitionRef) -> FileName {
        FileName::Topic(TopicFile { partition, base: self.base })
    }

    /// Whether it is full and has its index.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.index_bytes > 0
    }

    /// Bytes to read at `file_bytes` for the index: whole blocks; 0 when it is not sealed.
    #[must_use]
    pub fn index_read_bytes(&self) -> u64 {
        whole_blocks(u64::from(self.index_bytes))
    }

    /// Adds nothing more to it, though it has no index: it counts as sealed, and who reads it makes the index again from its chunks.
    pub fn give_up(&mut self) {
        if !self.is_sealed() {
            self.index_bytes = index::bytes_for(self.chunks.len());
            self.chunks = Vec::new();
        }
    }

    /// Bytes that it takes on the disk: with its header, its chunks and its index.
    #[must_use]
    pub fn bytes_on_disk(&self) -> u64 {
        self.file_bytes.saturating_add(self.index_read_bytes())
    }

    /// Whether a writer can have left it so.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let is_placed = self.file_bytes.is_multiple_of(BLOCK_BYTES) && self.file_bytes > BLOCK_BYTES;
        let is_whole = self.base < self.end
            && self.first_time_us <= self.last_time_us
            && self.record_bytes > 0
            && self.record_bytes < self.file_bytes;
        let content = if self.is_sealed() {
            self.chunks.is_empty() && index::is_length(self.index_bytes)
        } else {
            self.holds(&self.chunks)
        };
        is_placed && is_whole && content
    }

    /// Whether these are all its chunks: without a gap in offsets or blocks, from the first to the last, with its sums.
    fn holds(&self, chunks: &[Chunk]) -> bool {
        let (mut base, mut position, mut record_bytes) = (self.base, BLOCK_BYTES, 0_u64);
        for chunk in chunks {
            if !chunk.is_plausible() || chunk.base != base || chunk.position != position {
                return false;
            }
            base = chunk.end;
            position = position.saturating_add(chunk.read_bytes());
            record_bytes = record_bytes.saturating_add(u64::from(chunk.bytes - CHUNK_HEADER_BYTES));
        }
        let first_time = chunks.iter().map(|chunk| chunk.first_time_us).min();
        let last_time = chunks.iter().map(|chunk| chunk.last_time_us).max();
        (base, position, record_bytes) == (self.end, self.file_bytes, self.record_bytes)
            && (first_time, last_time) == (Some(self.first_time_us), Some(self.last_time_us))
    }

    pub(crate) fn encoded_bytes(&self) -> usize {
        SEGMENT_FIXED_BYTES + self.chunks.len() * CHUNK_ENTRY_BYTES
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.base.0.to_le_bytes());
        out.extend_from_slice(&self.end.0.to_le_bytes());
        out.extend_from_slice(&self.record_bytes.to_le_bytes());
        out.extend_from_slice(&self.first_time_us.to_le_bytes());
        out.extend_from_slice(&self.last_time_us.to_le_bytes());
        out.extend_from_slice(&self.file_bytes.to_le_bytes());
        out.extend_from_slice(&self.index_bytes.to_le_bytes());
        out.extend_from_slice(&length32(self.chunks.len()).to_le_bytes());
        self.chunks.iter().for_each(|chunk| chunk.put(out));
    }

    pub(crate) fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let mut segment = Self {
            base: Offset(fields.u64()?),
            end: Offset(fields.u64()?),
            record_bytes: fields.u64()?,
            first_time_us: fields.i64()?,
            last_time_us: fields.i64()?,
            file_bytes: fields.u64()?,
            index_bytes: fields.u32()?,
            chunks: Vec::new(),
        };
        segment.chunks = take_chunks(fields)?;
        segment.is_well_formed().then_some(segment)
    }
}

fn take_chunks(fields: &mut Fields<'_>) -> Option<Vec<Chunk>> {
    let count = usize::try_from(fields.u32()?).ok()?;
    // A count that cannot fit must not make us set memory aside.
    if count > fields.left() / CHUNK_ENTRY_BYTES {
        return None;
    }
    let mut chunks = Vec::with_capacity(count);
    for _ in 0..count {
        chunks.push(Chunk::take(fields)?);
    }
    Some(chunks)
}

/// All files of a partition in order; each begins where the one before ends, or later if what lies between is lost, and all but the
/// last are sealed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionSegments {
    /// Whose records.
    pub partition: PartitionRef,
    /// The files.
    pub segments: Vec<TopicSegment>,
}

impl PartitionSegments {
    /// The first offset that stands in a file; `None` when there is no file.
    #[must_use]
    pub fn base(&self) -> Option<Offset> {
        self.segments.first().map(|segment| segment.base)
    }

    /// The offset after the last one that stands in a file; `None` when there is no file.
    #[must_use]
    pub fn end(&self) -> Option<Offset> {
        self.segments.last().map(|segment| segment.end)
    }

    /// Whether there is a file, each is well-formed, and they keep their order.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let goes_on = |pair: &[TopicSegment]| pair[0].is_sealed() && pair[0].end <= pair[1].base;
        let is_whole = self.segments.iter().all(TopicSegment::is_well_formed);
        !self.segments.is_empty() && is_whole && self.segments.windows(2).all(goes_on)
    }

    /// Whether offsets are missing between the files.
    #[must_use]
    pub fn has_gap(&self) -> bool {
        self.segments.windows(2).any(|pair| pair[0].end != pair[1].base)
    }

    /// Takes in what [`SegmentsOutput::Stored`] says of the partition: a changed last segment takes the place of the one that is
    /// here, new ones follow.
    pub fn update(&mut self, changed: Vec<TopicSegment>) {
        if let Some(first) = changed.first() {
            self.segments.retain(|segment| segment.base < first.base);
        }
        self.segments.extend(changed);
    }
}
