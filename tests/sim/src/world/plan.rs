//! What a run may do, and counts of what happened in it.

use crate::sabotage::Sabotage;

/// What a run may do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Topics may be stored.
    pub has_wal: bool,
    /// Processes end in crashes; otherwise there is one process.
    pub has_crashes: bool,
    /// Operations fail, the disk fills up.
    pub has_failures: bool,
    /// One of two valid checkpoint slots is damaged now and then.
    pub damages_slots: bool,
    /// A run ends with damage to files of any kind and several starts after it, under a weaker promise.
    pub damages_files: bool,
    /// A fault put in on purpose.
    pub sabotage: Option<Sabotage>,
}

impl Plan {
    /// Everything that a correct shard must bear.
    pub const ALL: Self = Self {
        has_wal: true,
        has_crashes: true,
        has_failures: true,
        damages_slots: true,
        damages_files: false,
        sabotage: None,
    };
    /// The same, and then a disk that lies.
    pub const DAMAGED: Self = Self { damages_files: true, ..Self::ALL };
}

/// What happened in runs.
#[derive(Clone, Default, Debug)]
pub struct Sums {
    /// Runs.
    pub runs: u64,
    /// Things that happened, one after another.
    pub steps: u64,
    /// Processes that ended in a crash.
    pub crashes: u64,
    /// Of them those with a power loss.
    pub power_losses: u64,
    /// Starts that a crash ended.
    pub crashes_while_opening: u64,
    /// Slots damaged on purpose.
    pub damaged_slots: u64,
    /// Starts that cut a torn tail.
    pub cuts: u64,
    /// Publishes answered as durable in stored topics.
    pub durable: u64,
    /// Publishes refused, by chance of the disk.
    pub refused: u64,
    /// Answers that said that the outcome is unknown.
    pub unknown: u64,
    /// Acknowledgements answered.
    pub acknowledged: u64,
    /// Messages given out to members and pulls.
    pub given: u64,
    /// Records in pages.
    pub read: u64,
    /// Processes that were poisoned.
    pub poisons: u64,
    /// Events after which the shard said that its disk was full.
    pub fulls: u64,
    /// Operations that failed on purpose.
    pub failures: u64,
    /// Topics' segments that could not be written to, so that their topics went on in new ones.
    pub given_up: u64,
    /// Commits of all processes.
    pub commits: u64,
    /// Checkpoints of all processes.
    pub checkpoints: u64,
    /// Bytes written to topics' segments.
    pub segment_bytes: u64,
    /// Bytes read from topics' segments.
    pub segment_read_bytes: u64,
    /// Topics' segments unlinked.
    pub unlinks: u64,
    /// Dead letters that left their topic.
    pub letters: u64,
    /// Publishes repeated with their id and answered.
    pub repeats: u64,
    /// Batches answered.
    pub batches: u64,
    /// Changes of settings answered.
    pub changes: u64,
    /// Orders of one shard to another that reached it.
    pub orders: u64,
    /// Topics of which a start found parts that were never made or had ended.
    pub orphans: u64,
    /// Files changed or lost on purpose, slots before the end of a run excepted.
    pub damages: u64,
    /// Starts after damage that refused.
    pub damage_refused: u64,
    /// Starts after damage that were in doubt.
    pub damage_told: u64,
    /// Files that starts kept because of damage.
    pub damage_kept: u64,
    /// Gaps that readers saw after damage.
    pub damage_gaps: u64,
}

impl Sums {
    /// Adds what happened in other runs.
    pub fn add(&mut self, other: &Sums) {
        let mut ours = self.numbers();
        for (ours, theirs) in ours.iter_mut().zip(other.clone().numbers()) {
            **ours += *theirs;
        }
    }

    fn numbers(&mut self) -> [&mut u64; 33] {
        [
            &mut self.runs,
            &mut self.steps,
            &mut self.crashes,
            &mut self.power_losses,
            &mut self.crashes_while_opening,
            &mut self.damaged_slots,
            &mut self.cuts,
            &mut self.durable,
            &mut self.refused,
            &mut self.unknown,
            &mut self.acknowledged,
            &mut self.given,
            &mut self.read,
            &mut self.poisons,
            &mut self.fulls,
            &mut self.failures,
            &mut self.given_up,
            &mut self.commits,
            &mut self.checkpoints,
            &mut self.segment_bytes,
            &mut self.segment_read_bytes,
            &mut self.unlinks,
            &mut self.letters,
            &mut self.repeats,
            &mut self.batches,
            &mut self.changes,
            &mut self.orders,
            &mut self.orphans,
            &mut self.damages,
            &mut self.damage_refused,
            &mut self.damage_told,
            &mut self.damage_kept,
            &mut self.damage_gaps,
        ]
    }
}
