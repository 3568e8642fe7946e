//! One shard of the process and the folder that it has on the disk.

use ringmain_engine::Shard;
use ringmain_model::ShardId;

use super::files::InFlight;
use crate::disk::Disk;

/// A shard's place: its folder stays, the shard comes and goes with the process.
pub(super) struct Node {
    pub(super) id: ShardId,
    pub(super) disk: Disk,
    pub(super) shard: Option<Shard>,
    pub(super) in_flight: Vec<InFlight>,
    /// Placement changes that some core has not applied yet.
    pub(super) placings: Vec<u64>,
    pub(super) was_poisoned: bool,
}

impl Node {
    pub(super) fn new(id: ShardId, capacity: u64) -> Self {
        Self {
            id,
            disk: Disk::new(capacity),
            shard: None,
            in_flight: Vec::new(),
            placings: Vec::new(),
            was_poisoned: false,
        }
    }

    /// Whether nothing waits for the disk or for the cores.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.placings.is_empty()
    }
}
