//! A chunk's bytes: its header, and the record batches behind it. Pure, for any core.

use bytes::Bytes;
use ringmain_model::{Incarnation, Offset, PartitionRef};

use crate::batch::{Damage, RecordBatch};
use crate::fields::{Fields, push_zeros};
use crate::position::BLOCK_BYTES;
use crate::topic::{CHUNK_HEADER_BYTES, Chunk};

const MAGIC: &[u8; 4] = b"RMCH";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = CHUNK_HEADER_BYTES as usize;

/// Why bytes are not the chunk that an index tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChunkDamage {
    /// There are fewer bytes than it has: the file ends early.
    #[error("the chunk is cut off")]
    Short,
    /// The header's magic or checksum is wrong, or its numbers cannot be.
    #[error("the chunk's header is damaged")]
    Header,
    /// A whole header of a newer version.
    #[error("the chunk has version {0}, this program reads version {VERSION}")]
    Newer(u32),
    /// A whole header of another chunk.
    #[error("another chunk stands where the index says")]
    Other,
    /// The checksum over its batches is wrong.
    #[error("the chunk's content is damaged")]
    Content,
    /// The checksums are right and a record batch cannot be.
    #[error("a record batch in the chunk: {0}")]
    Batch(Damage),
    /// The checksums are right and the batches are not the partition's, or do not go on without a gap.
    #[error("the record batches in the chunk do not belong together")]
    Order,
}

/// What the header of a chunk says; whose chunk it is and where it stands are checked against it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChunkHeader {
    pub(super) partition: PartitionRef,
    pub(super) chunk: Chunk,
    pub(super) content_checksum: u32,
}

impl ChunkHeader {
    fn encode(&self) -> Vec<u8> {
        let Chunk { base, end, position, bytes, first_time_us, last_time_us } = self.chunk;
        // A segment ends far below 2^32 blocks, and a chunk has fewer records than bytes.
        let (block, count) = (position / BLOCK_BYTES, end.since(base));
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.partition.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.partition.partition.to_le_bytes());
        out.extend_from_slice(&u32::try_from(block).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&base.0.to_le_bytes());
        out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&self.content_checksum.to_le_bytes());
        out.extend_from_slice(&first_time_us.to_le_bytes());
        out.extend_from_slice(&last_time_us.to_le_bytes());
        let checksum = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the header at the start of `bytes`; the batches behind it need not be there.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ChunkDamage> {
        let header = bytes.get(..HEADER_BYTES).ok_or(ChunkDamage::Short)?;
        let damaged = ChunkDamage::Header;
        let mut fields = Fields::of(header);
        let checksum = fields.u32().ok_or(damaged)?;
        let length = fields.u32().ok_or(damaged)?;
        let has_magic = fields.take(4) == Some(MAGIC.as_slice());
        if !has_magic || crc32c::crc32c(&header[4..]) != checksum {
            return Err(damaged);
        }
        let version = fields.u32().ok_or(damaged)?;
        if version != VERSION {
            return Err(ChunkDamage::Newer(version));
        }
        Self::read(length, &mut fields).filter(|header| header.chunk.is_plausible()).ok_or(damaged)
    }

    fn read(bytes: u32, fields: &mut Fields<'_>) -> Option<Self> {
        let incarnation = Incarnation(fields.u64()?);
        let partition = PartitionRef { incarnation, partition: fields.u32()? };
        let position = u64::from(fields.u32()?) * BLOCK_BYTES;
        let base = Offset(fields.u64()?);
        let end = Offset(base.0.checked_add(u64::from(fields.u32()?))?);
        let content_checksum = fields.u32()?;
        let (first_time_us, last_time_us) = (fields.i64()?, fields.i64()?);
        let chunk = Chunk { base, end, position, bytes, first_time_us, last_time_us };
        Some(Self { partition, chunk, content_checksum })
    }
}

/// Appends the chunk to a gathered write: header, batches, filling. The batches are not copied.
pub(super) fn put(partition: PartitionRef, chunk: Chunk, batches: &[RecordBatch], parts: &mut Vec<Bytes>) {
    let content_checksum = batches.iter().fold(0, |sum, batch| crc32c::crc32c_append(sum, batch.bytes()));
    parts.push(Bytes::from(ChunkHeader { partition, chunk, content_checksum }.encode()));
    parts.extend(batches.iter().map(|batch| batch.bytes().clone()));
    let filling = chunk.read_bytes() - u64::from(chunk.bytes);
    push_zeros(parts, usize::try_from(filling).unwrap_or(0));
}

/// The record batches of `chunk`, whose [`read_bytes`](Chunk::read_bytes) were read at its position. They share the memory of `bytes`.
///
/// # Errors
/// What is damaged; nothing of the chunk is given then.
pub fn decode_chunk(partition: PartitionRef, chunk: &Chunk, bytes: &Bytes) -> Result<Vec<RecordBatch>, ChunkDamage> {
    let header = ChunkHeader::decode(bytes)?;
    if header.partition != partition || header.chunk != *chunk {
        return Err(ChunkDamage::Other);
    }
    let length = usize::try_from(chunk.bytes).map_err(|_| ChunkDamage::Short)?;
    if bytes.len() < length {
        return Err(ChunkDamage::Short);
    }
    let mut content = bytes.slice(HEADER_BYTES..length);
    if crc32c::crc32c(&content) != header.content_checksum {
        return Err(ChunkDamage::Content);
    }
    let (mut batches, mut next) = (Vec::new(), chunk.base);
    while !content.is_empty() {
        let Some((batch, length)) = RecordBatch::decode(&content).map_err(ChunkDamage::Batch)? else {
            return Err(ChunkDamage::Order);
        };
        if batch.partition() != partition || batch.base() != next {
            return Err(ChunkDamage::Order);
        }
        next = batch.end();
        batches.push(batch);
        content = content.slice(length..);
    }
    if next == chunk.end { Ok(batches) } else { Err(ChunkDamage::Order) }
}
