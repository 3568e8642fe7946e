//! Identities of cores, shards and lives of topics; plain values for any core.

use std::fmt;

use crate::message::Message;

/// One core's loop, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CoreId(pub u16);

impl CoreId {
    /// The core as an index into per-core tables.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A share of the topics, counted from 0. The number of shards is fixed for one data directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The core that runs this shard when `cores` loops share the shards evenly.
    ///
    /// # Panics
    /// When `cores` is 0.
    #[must_use]
    pub fn core(self, cores: u16) -> CoreId {
        CoreId(self.0 % cores)
    }

    /// The shard that a topic's name gives it first: FNV-1a of the name, mixed, folded onto the shards. The same on
    /// every machine and in every version, because data directories depend on it.
    ///
    /// # Panics
    /// When `shards` is 0.
    #[must_use]
    pub fn initial(name: &str, shards: u16) -> ShardId {
        let folded = (hash(name.as_bytes()) >> 32) % u64::from(shards);
        ShardId(u16::try_from(folded).unwrap_or(0))
    }

    /// The shard of a topic's partition, when this is the shard of its partition 0: partitions go round the shards. The same in
    /// every version, because data directories depend on it.
    ///
    /// # Panics
    /// When `shards` is 0.
    #[must_use]
    pub fn of_partition(self, partition: u32, shards: u16) -> ShardId {
        let folded = (u32::from(self.0) + partition % u32::from(shards)) % u32::from(shards);
        ShardId(u16::try_from(folded).unwrap_or(0))
    }
}

/// 64 bits of a name or key: FNV-1a, mixed. The same on every machine and in every version, because data directories depend on it.
fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    // FNV leaves names that differ in their last bytes close together; one multiply between two shifts spreads them.
    (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// 64 random bits that name one life of a topic: a re-created topic gets others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// One partition of one life of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PartitionRef {
    /// The topic's life.
    pub incarnation: Incarnation,
    /// The partition's number, from 0.
    pub partition: u32,
}

impl PartitionRef {
    /// The number of the partition that takes the messages of a key, in a topic of `partitions`. The same in every version: a key
    /// stays in its partition.
    ///
    /// # Panics
    /// When `partitions` is 0.
    #[must_use]
    pub fn number_of_key(key: &[u8], partitions: u32) -> u32 {
        let folded = (hash(key) >> 32) % u64::from(partitions);
        u32::try_from(folded).unwrap_or(0)
    }

    /// The number of the partition that takes a message: by its key, without one by its id, so that a repeat finds the first. `None`
    /// when it has neither: any will do.
    ///
    /// # Panics
    /// When `partitions` is 0.
    #[must_use]
    pub fn number_of(message: &Message, partitions: u32) -> Option<u32> {
        let id = || message.id.as_ref().map(|id| Self::number_of_key(&id.name, partitions));
        message.key.as_ref().map(|key| Self::number_of_key(key, partitions)).or_else(id)
    }
}

impl fmt::Display for PartitionRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.incarnation, self.partition)
    }
}
