//! The first block of a topic segment: whose records it holds, told to a person who has lost the checkpoints. Pure, for any core.

use ringmain_model::{Incarnation, Offset, PartitionRef, ShardId, TopicConfig, TopicName};

use crate::entry::{CONFIG_BYTES, config, put_config};
use crate::fields::put_text;
use crate::header::{FILE_HEADER_BYTES, HeaderDamage, PREFIX_BYTES, decode_header, encode_header};

const MAGIC: [u8; 8] = *b"RMTOPSEG";
const _: () = assert!(
    PREFIX_BYTES + 32 + CONFIG_BYTES + 16 + 2 * ringmain_model::limit::TOPIC_NAME_BYTES_MAX <= FILE_HEADER_BYTES
);

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

impl TopicSegmentHeader {
    /// The header as a block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode_header(MAGIC, |block| {
            block.extend_from_slice(&self.partition.incarnation.0.to_le_bytes());
            block.extend_from_slice(&self.base.0.to_le_bytes());
            block.extend_from_slice(&self.created_us.to_le_bytes());
            block.extend_from_slice(&self.partition.partition.to_le_bytes());
            block.extend_from_slice(&self.shard.0.to_le_bytes());
            block.extend_from_slice(&[0; 2]);
            put_config(block, &self.config);
            put_text(block, self.name.as_str());
        })
    }

    /// Reads the first block of a topic segment.
    ///
    /// # Errors
    /// What is wrong with it. A newer version is told only of a header whose checksum is right.
    pub fn decode(block: &[u8]) -> Result<Self, HeaderDamage> {
        decode_header(MAGIC, block, |fields| {
            let incarnation = Incarnation(fields.u64()?);
            let (base, created_us) = (Offset(fields.u64()?), fields.i64()?);
            let partition = PartitionRef { incarnation, partition: fields.u32()? };
            let shard = ShardId(fields.u16()?);
            fields.zeros(2)?;
            let config = config(fields)?;
            let name = TopicName::new(fields.text()?).ok()?;
            Some(Self { partition, base, shard, created_us, name, config })
        })
    }
}
