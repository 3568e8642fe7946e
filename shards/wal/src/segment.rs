//! The first block of a log segment: what the file is, told before anything in it is believed. Pure, for any core.

#[cfg(test)]
mod tests;

use ringmain_model::ShardId;

use crate::fields::Fields;
use crate::position::{BLOCK_BYTES, SegmentNumber};

const MAGIC: &[u8; 8] = b"RMLOGSEG";
pub(crate) const SEGMENT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 4096;
const _: () = assert!(HEADER_BYTES as u64 == BLOCK_BYTES);

/// What a segment says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Its number, the one in its name.
    pub number: SegmentNumber,
    /// Random number of the start that prepared it.
    pub epoch: u64,
    /// Size of the file.
    pub bytes: u64,
    /// The shard that owns the log.
    pub shard: ShardId,
}

/// Why a block is no segment header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentHeaderDamage {
    /// Too short, another magic, a wrong checksum, or numbers that cannot be.
    #[error("the segment's header is damaged")]
    Damaged,
    /// A whole header of a newer version.
    #[error("the segment has version {0}, this program reads version {SEGMENT_VERSION}")]
    Newer(u32),
}

impl SegmentHeader {
    /// The header as a block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(HEADER_BYTES);
        block.extend_from_slice(MAGIC);
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
        block.extend_from_slice(&self.number.0.to_le_bytes());
        block.extend_from_slice(&self.epoch.to_le_bytes());
        block.extend_from_slice(&self.bytes.to_le_bytes());
        block.extend_from_slice(&self.shard.0.to_le_bytes());
        block.resize(HEADER_BYTES, 0);
        let checksum = crc32c::crc32c(&block[12..]);
        block[8..12].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads the first block of a segment.
    ///
    /// # Errors
    /// What is wrong with it. A newer version is told only of a header whose checksum is right.
    pub fn decode(block: &[u8]) -> Result<Self, SegmentHeaderDamage> {
        let damaged = SegmentHeaderDamage::Damaged;
        let block = block.get(..HEADER_BYTES).ok_or(damaged)?;
        let mut fields = Fields::of(block);
        let has_magic = fields.take(8) == Some(MAGIC.as_slice());
        if !has_magic || fields.u32() != Some(crc32c::crc32c(&block[12..])) {
            return Err(damaged);
        }
        let version = fields.u32().ok_or(damaged)?;
        if version != SEGMENT_VERSION {
            return Err(SegmentHeaderDamage::Newer(version));
        }
        Self::read(&mut fields).ok_or(damaged)
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let header = Self {
            number: SegmentNumber(fields.u64()?),
            epoch: fields.u64()?,
            bytes: fields.u64()?,
            shard: ShardId(fields.u16()?),
        };
        fields.zeros(fields.left())?;
        header.bytes.is_multiple_of(BLOCK_BYTES).then_some(header)
    }
}
