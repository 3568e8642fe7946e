//! How large things are in one run.

use ringmain_engine::{ShardSettings, StorageSettings};
use ringmain_model::ShardId;
use ringmain_wal::{BLOCK_BYTES, LogSettings};

use super::CORES;
use crate::chance::Chance;

/// Sizes of one run: small, so that everything wraps, fills and rolls often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) segment_first: u64,
    pub(super) segment_max: u64,
    pub(super) segments_max: usize,
    pub(super) batch_bytes_max: usize,
    pub(super) waiting_batches_max: usize,
    pub(super) topic_segment: u64,
    pub(super) topic_segment_min: u64,
    pub(super) topic_segments_max: u64,
    pub(super) tail_to_store: u64,
    pub(super) tails_max: u64,
    pub(super) checkpoint: u64,
    pub(super) payload_max: u64,
    pub(super) memory_max: u64,
    pub(super) shards: u16,
    pub(super) image_weight: usize,
}

impl Sizes {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let is_large = chance.one_in(3);
        let blocks = if is_large { chance.pick(&[16, 32]) } else { chance.pick(&[4, 8, 12]) };
        let segment_first = blocks * BLOCK_BYTES;
        let segments_max = 16 + chance.index(16);
        let checkpoint = segment_first * chance.pick(&[1, 2]);
        Self {
            segment_first,
            segment_max: segment_first * chance.pick(&[1, 2, 4]),
            segments_max,
            batch_bytes_max: chance.pick(&[6_000, 20_000, 1 << 20]),
            waiting_batches_max: 1 + chance.index(4),
            topic_segment: chance.pick(&[32 << 10, 128 << 10, 1 << 20]),
            topic_segment_min: chance.pick(&[8 << 10, 32 << 10]),
            tail_to_store: chance.pick(&[1, 6_000, 24_000, 60_000]),
            // Tails written again must not be what makes the next checkpoint due.
            tails_max: checkpoint / 4,
            topic_segments_max: 2 + chance.below(8),
            checkpoint,
            payload_max: if is_large { 24_000 } else { 5_000 },
            memory_max: chance.pick(&[30_000, 1 << 30, 1 << 30]),
            shards: chance.pick(&[1, 1, 2, 3]),
            image_weight: chance.pick(&[1, 30, 1000]),
        }
    }

    pub(super) fn storage(&self, shard: ShardId, epoch: u64) -> StorageSettings {
        let log = LogSettings {
            segment_bytes_first: self.segment_first,
            segment_bytes_max: self.segment_max,
            segments_max: self.segments_max,
            batch_bytes_max: self.batch_bytes_max,
            waiting_batches_max: self.waiting_batches_max,
            fill_bytes: 4 * BLOCK_BYTES,
            ..LogSettings::new(shard, epoch)
        };
        StorageSettings {
            log,
            topic_segment_bytes: self.topic_segment,
            topic_segments_max: self.topic_segments_max,
            topic_segment_bytes_min: self.topic_segment_min,
            tail_bytes_to_store: self.tail_to_store,
            tails_bytes_max: self.tails_max,
            checkpoint_bytes: self.checkpoint,
            image_weight_per_turn: self.image_weight,
            store_batches_max: self.image_weight.div_ceil(10),
            forgets_damage: false,
        }
    }

    pub(super) fn shard(&self) -> ShardSettings {
        ShardSettings { cores: CORES, shards: self.shards, memory_bytes_max: self.memory_max }
    }
}
