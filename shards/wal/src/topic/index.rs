//! The index of a sealed topic segment: where each of its chunks stands. Pure, for any core.

use bytes::Bytes;
use ringmain_model::{Incarnation, Offset, PartitionRef};

use crate::fields::{Fields, length32};
use crate::position::whole_blocks;
use crate::topic::{CHUNK_ENTRY_BYTES, Chunk, TopicSegment};

const MAGIC: &[u8; 8] = b"RMTOPIDX";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 64;

/// Why bytes are not the index of a segment. It can be made again with [`ChunkScan`](crate::ChunkScan).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IndexDamage {
    /// Too short, another magic, a wrong checksum, or content that cannot be.
    #[error("the topic segment's index is damaged")]
    Damaged,
    /// A whole index of a newer version.
    #[error("the topic segment's index has version {0}, this program reads version {VERSION}")]
    Newer(u32),
    /// A whole index that does not fit what the checkpoint says of the segment.
    #[error("the topic segment's index belongs to another segment")]
    Other,
}

/// Bytes of an index of that many chunks, filling excluded.
pub(super) fn bytes_for(chunks: usize) -> u32 {
    length32(FIXED_BYTES + chunks * CHUNK_ENTRY_BYTES)
}

/// Whether an index can have that length.
pub(super) fn is_length(bytes: u32) -> bool {
    let entries = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_sub(FIXED_BYTES));
    entries.is_some_and(|entries| entries > 0 && entries.is_multiple_of(CHUNK_ENTRY_BYTES))
}

/// The index of `segment`, whose chunks these are, filled up to a block.
pub(super) fn encode(partition: PartitionRef, segment: &TopicSegment, chunks: &[Chunk]) -> Vec<u8> {
    let length = bytes_for(chunks.len());
    let padded = usize::try_from(whole_blocks(u64::from(length))).unwrap_or(0);
    let mut out = Vec::with_capacity(padded);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&length32(chunks.len()).to_le_bytes());
    out.extend_from_slice(&partition.incarnation.0.to_le_bytes());
    out.extend_from_slice(&segment.base.0.to_le_bytes());
    out.extend_from_slice(&segment.end.0.to_le_bytes());
    out.extend_from_slice(&segment.record_bytes.to_le_bytes());
    out.extend_from_slice(&partition.partition.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    chunks.iter().for_each(|chunk| chunk.put(&mut out));
    let checksum = crc32c::crc32c(&out[12..]);
    out[8..12].copy_from_slice(&checksum.to_le_bytes());
    out.resize(padded, 0);
    out
}

/// The chunks of a sealed `segment`, whose [`index_read_bytes`](TopicSegment::index_read_bytes) were read at its `file_bytes`.
///
/// # Errors
/// What is wrong with the index. A newer version is told only of one whose checksum is right.
pub fn decode_index(partition: PartitionRef, segment: &TopicSegment, bytes: &Bytes) -> Result<Vec<Chunk>, IndexDamage> {
    let damaged = IndexDamage::Damaged;
    let mut fields = Fields::of(bytes);
    let has_magic = fields.take(8) == Some(MAGIC.as_slice());
    let checksum = fields.u32().filter(|_| has_magic).ok_or(damaged)?;
    let version = fields.u32().ok_or(damaged)?;
    let length = fields.u32().ok_or(damaged)?;
    let end = usize::try_from(length).map_err(|_| damaged)?;
    let index = bytes.get(12..end).filter(|_| end >= FIXED_BYTES).ok_or(damaged)?;
    if crc32c::crc32c(index) != checksum {
        return Err(damaged);
    }
    if version != VERSION {
        return Err(IndexDamage::Newer(version));
    }
    let mut fields = Fields::of(&bytes[20..end]);
    let (owner, found, chunks) = read(&mut fields).ok_or(damaged)?;
    let sums = (segment.base, segment.end, segment.record_bytes);
    if owner != partition || found != sums || length != segment.index_bytes || !segment.holds(&chunks) {
        return Err(IndexDamage::Other);
    }
    Ok(chunks)
}

type Sums = (Offset, Offset, u64);

fn read(fields: &mut Fields<'_>) -> Option<(PartitionRef, Sums, Vec<Chunk>)> {
    let count = usize::try_from(fields.u32()?).ok()?;
    let incarnation = Incarnation(fields.u64()?);
    let sums = (Offset(fields.u64()?), Offset(fields.u64()?), fields.u64()?);
    let partition = PartitionRef { incarnation, partition: fields.u32()? };
    fields.zeros(4)?;
    if count.checked_mul(CHUNK_ENTRY_BYTES) != Some(fields.left()) {
        return None;
    }
    let mut chunks = Vec::with_capacity(count);
    for _ in 0..count {
        chunks.push(Chunk::take(fields)?);
    }
    Some((partition, sums, chunks))
}
