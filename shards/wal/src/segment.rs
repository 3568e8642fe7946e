//! The first block of a log segment: what the file is, told before anything in it is believed. Pure, for any core.

#[cfg(test)]
mod tests;

use ringmain_model::ShardId;

use crate::header::{HeaderDamage, decode_header, encode_header};
use crate::position::{BLOCK_BYTES, SegmentNumber};

const MAGIC: [u8; 8] = *b"RMLOGSEG";

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

impl SegmentHeader {
    /// The header as a block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode_header(MAGIC, |block| {
            block.extend_from_slice(&self.number.0.to_le_bytes());
            block.extend_from_slice(&self.epoch.to_le_bytes());
            block.extend_from_slice(&self.bytes.to_le_bytes());
            block.extend_from_slice(&self.shard.0.to_le_bytes());
        })
    }

    /// Reads the first block of a segment.
    ///
    /// # Errors
    /// What is wrong with it. A newer version is told only of a header whose checksum is right.
    pub fn decode(block: &[u8]) -> Result<Self, HeaderDamage> {
        decode_header(MAGIC, block, |fields| {
            let header = Self {
                number: SegmentNumber(fields.u64()?),
                epoch: fields.u64()?,
                bytes: fields.u64()?,
                shard: ShardId(fields.u16()?),
            };
            header.bytes.is_multiple_of(BLOCK_BYTES).then_some(header)
        })
    }
}
