//! Identities of cores, shards and lives of topics; plain values for any core.

use std::fmt;

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
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        // FNV leaves names that differ in their last bytes close together; one multiply between two shifts spreads them.
        let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let folded = (mixed >> 32) % u64::from(shards);
        ShardId(u16::try_from(folded).unwrap_or(0))
    }
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

impl fmt::Display for PartitionRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.incarnation, self.partition)
    }
}
