//! The first block of a topic segment: whose records it holds, told to a person who has lost the checkpoints. Pure, for any core.

use ringmain_model::{Incarnation, Offset, PartitionRef, ShardId, TopicConfig, TopicName};

use crate::entry::{CONFIG_BYTES, config, put_config};
use crate::fields::{Fields, put_text};
use crate::position::BLOCK_BYTES;

const MAGIC: &[u8; 8] = b"RMTOPSEG";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 4096;
const _: () = assert!(HEADER_BYTES as u64 == BLOCK_BYTES);
const _: () = assert!(48 + CONFIG_BYTES + 16 + 2 * ringmain_model::limit::TOPIC_NAME_BYTES_MAX <= HEADER_BYTES);

/// What a topic segment says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicSegmentHeader {
    /// Whose records.
    pub partition: PartitionRef,
    /// Offset of the first record.
    pub base: Offset,
    /// The shard that wrote it.
    pub shard: ShardId,
    /// When it was made, microseconds since the Unix epoch.
    pub created_us: i64,
    /// Name of the topic.
    pub name: TopicName,
    /// The topic's settings when the file was made.
    pub config: TopicConfig,
}

/// Why a block is no header of a topic segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopicHeaderDamage {
    /// Too short, another magic, a wrong checksum, or content that cannot be.
    #[error("the topic segment's header is damaged")]
    Damaged,
    /// A whole header of a newer version.
    #[error("the topic segment has version {0}, this program reads version {VERSION}")]
    Newer(u32),
}

impl TopicSegmentHeader {
    /// The header as a block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(HEADER_BYTES);
        block.extend_from_slice(MAGIC);
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&VERSION.to_le_bytes());
        block.extend_from_slice(&self.partition.incarnation.0.to_le_bytes());
        block.extend_from_slice(&self.base.0.to_le_bytes());
        block.extend_from_slice(&self.created_us.to_le_bytes());
        block.extend_from_slice(&self.partition.partition.to_le_bytes());
        block.extend_from_slice(&self.shard.0.to_le_bytes());
        block.extend_from_slice(&[0; 2]);
        put_config(&mut block, &self.config);
        put_text(&mut block, self.name.as_str());
        block.resize(HEADER_BYTES, 0);
        let checksum = crc32c::crc32c(&block[12..]);
        block[8..12].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads the first block of a topic segment.
    ///
    /// # Errors
    /// What is wrong with it. A newer version is told only of a header whose checksum is right.
    pub fn decode(block: &[u8]) -> Result<Self, TopicHeaderDamage> {
        let damaged = TopicHeaderDamage::Damaged;
        let block = block.get(..HEADER_BYTES).ok_or(damaged)?;
        let mut fields = Fields::of(block);
        let has_magic = fields.take(8) == Some(MAGIC.as_slice());
        if !has_magic || fields.u32() != Some(crc32c::crc32c(&block[12..])) {
            return Err(damaged);
        }
        let version = fields.u32().ok_or(damaged)?;
        if version != VERSION {
            return Err(TopicHeaderDamage::Newer(version));
        }
        Self::read(&mut fields).ok_or(damaged)
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let incarnation = Incarnation(fields.u64()?);
        let (base, created_us) = (Offset(fields.u64()?), fields.i64()?);
        let partition = PartitionRef { incarnation, partition: fields.u32()? };
        let shard = ShardId(fields.u16()?);
        fields.zeros(2)?;
        let config = config(fields)?;
        let name = TopicName::new(fields.text()?).ok()?;
        fields.zeros(fields.left())?;
        Some(Self { partition, base, shard, created_us, name, config })
    }
}
