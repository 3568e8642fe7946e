//! What the log's writer is told when it is made, with the bounds that hold it. Plain values for any core.

use ringmain_model::ShardId;

use crate::position::BLOCK_BYTES;

/// Settings of a shard's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// The shard that owns the log.
    pub shard: ShardId,
    /// Random number of this start; it must be fresh and secret.
    pub epoch: u64,
    /// Size of the first segments: whole blocks, at least two.
    pub segment_bytes_first: u64,
    /// Size to which segments grow, doubling each time one is full; whole blocks.
    pub segment_bytes_max: u64,
    /// Segments made ahead, at least 3: one is the reserve for what frees and settles, one is for the next start.
    pub segments_ahead: usize,
    /// Segments in all that may be there before a checkpoint releases some; above, records are answered busy.
    pub segments_max: usize,
    /// An open batch closes here; one entry may be larger and has a batch of its own.
    pub batch_bytes_max: usize,
    /// Closed batches that wait for the one in flight; above, entries are answered busy.
    pub waiting_batches_max: usize,
    /// Zeros in one write while a segment is being filled: small, so that the log's own writes do not wait long.
    pub fill_bytes: u64,
}

impl LogSettings {
    /// Settings of a real log.
    #[must_use]
    pub fn new(shard: ShardId, epoch: u64) -> Self {
        Self {
            shard,
            epoch,
            segment_bytes_first: 4 << 20,
            segment_bytes_max: 64 << 20,
            segments_ahead: 3,
            segments_max: 16,
            batch_bytes_max: 1 << 20,
            waiting_batches_max: 4,
            fill_bytes: 1 << 20,
        }
    }

    pub(crate) fn check(&self) {
        let sizes = [self.segment_bytes_first, self.segment_bytes_max, self.fill_bytes];
        assert!(sizes.iter().all(|bytes| bytes.is_multiple_of(BLOCK_BYTES)), "sizes of the log are whole blocks");
        assert!(self.segment_bytes_first >= 2 * BLOCK_BYTES && self.fill_bytes > 0, "a segment has room for a batch");
        assert!(self.segment_bytes_first <= self.segment_bytes_max, "segments grow, they do not shrink");
        assert!(
            self.segments_ahead >= 3 && self.segments_max > self.segments_ahead,
            "of the segments ahead two are reserves"
        );
        assert!(self.waiting_batches_max > 0 && self.batch_bytes_max > 0, "a batch can wait");
    }
}
