//! When and how a shard writes a checkpoint: tails first, then a slot, then the log is released. On the core that owns it.
//!
//! A checkpoint names a log position P, the durable end when it began. What the log has below P and a start needs must be
//! somewhere else by the time the slot is written: topics, groups and marks in the slot itself; small tails of records again at the
//! log's head; large ones in topic segments. The slot shows the shard as it stands when it is written: replaying from P
//! repeats what is in it already, and ends at the same state.

use std::collections::VecDeque;

use ringmain_model::limit::{CHECKPOINT_RETRY_MS, TAILS_BYTES_PER_TURN};
use ringmain_model::{Offset, PartitionRef};
use ringmain_wal::{Checkpoint, LogMarks, LogPosition, NotAdmitted, Sequence, SlotOutput, TopicCreated};

use crate::command::{Effect, Now};
use crate::opening::StorageState;
use crate::shard::Shard;
use crate::shard_log::Machine;

/// A checkpoint under way.
#[derive(Debug)]
struct Run {
    position: LogPosition,
    /// Tails that are to be written again: from which offset up to which.
    rewrites: VecDeque<(PartitionRef, Offset, Offset)>,
    /// The last commit batch with such a tail.
    last: Option<Sequence>,
    is_in_slot: bool,
}

/// What a shard remembers of its checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpointing {
    /// Something needs one soon.
    pub(crate) is_wanted: bool,
    /// Not before that time.
    pub(crate) retry_ms: Option<u64>,
    run: Option<Run>,
    /// Bytes written to the log when the last one began.
    bytes_before: u64,
    /// Valid slots: before both are, nothing can be released.
    slots_valid: usize,
    is_stopped: bool,
}

impl Checkpointing {
    pub(crate) fn new(slots_valid: usize) -> Self {
        Self { is_wanted: false, retry_ms: None, run: None, bytes_before: 0, slots_valid, is_stopped: false }
    }

    /// No more checkpoints.
    pub(crate) fn stop(&mut self) {
        (self.run, self.retry_ms, self.is_stopped) = (None, None, true);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.run.is_some()
    }

    /// It did not work out: once more, later.
    fn put_off(&mut self, now: Now) {
        self.run = None;
        self.is_wanted = true;
        self.retry_ms = Some(now.monotonic_ms + CHECKPOINT_RETRY_MS);
    }
}

impl Shard {
    /// Takes the next step of a checkpoint, or begins one when it is time. At the end of a turn in which the log can be written.
    pub(crate) fn go_on_with_checkpoint(&mut self, now: Now) {
        if self.log.as_ref().is_some_and(|log| !log.checkpointing.is_running()) {
            self.begin_checkpoint(now);
        }
        self.rewrite_tails(now);
        self.write_slot();
    }

    fn begin_checkpoint(&mut self, now: Now) {
        let Some(log) = &mut self.log else { return };
        let checkpointing = &mut log.checkpointing;
        let waits = checkpointing.retry_ms.is_some_and(|retry_ms| now.monotonic_ms < retry_ms);
        if checkpointing.is_stopped || waits || !log.slots.is_ready() {
            return;
        }
        let grown = log.stats.commit_bytes - checkpointing.bytes_before;
        let is_pressed =
            checkpointing.is_wanted && (log.state == StorageState::Full || grown >= log.settings.checkpoint_bytes / 8);
        if !is_pressed && checkpointing.slots_valid >= 2 && grown < log.settings.checkpoint_bytes {
            return;
        }
        (checkpointing.is_wanted, checkpointing.retry_ms) = (false, None);
        checkpointing.bytes_before = log.stats.commit_bytes;
        let position = log.writer.durable_position();
        let logged = self.topics.values().filter(|topic| topic.is_logged() && !topic.is_ending);
        let rewrites = logged.filter_map(|topic| topic.log.tail()).collect();
        let run = Run { position, rewrites, last: None, is_in_slot: false };
        log.checkpointing.run = Some(run);
    }

    /// Writes tails again at the log's head, a part of them in each turn.
    fn rewrite_tails(&mut self, now: Now) {
        let Some(log) = &mut self.log else { return };
        let mut bytes = 0;
        while let Some(run) = &mut log.checkpointing.run
            && let Some((partition, from, end)) = run.rewrites.front_mut()
            && bytes < TAILS_BYTES_PER_TURN
        {
            let topic = self.topics.get(&partition.incarnation).filter(|topic| !topic.is_ending);
            let batch = topic.and_then(|topic| topic.log.first_batch_from(*from)).filter(|batch| batch.base() < *end);
            let Some(batch) = batch.cloned() else {
                run.rewrites.pop_front();
                continue;
            };
            bytes += batch.bytes().len() as u64;
            let batch_end = batch.end();
            match log.writer.append_again(batch, &mut log.log_outputs) {
                Ok(sequence) => {
                    run.last = Some(sequence);
                    *from = batch_end;
                }
                // The next turn comes when what is in the way has been written.
                Err(NotAdmitted::Busy | NotAdmitted::BatchFull) => return,
                Err(NotAdmitted::Full | NotAdmitted::TooLarge | NotAdmitted::Poisoned) => {
                    log.stats.checkpoint_failures += 1;
                    return log.checkpointing.put_off(now);
                }
            }
        }
    }

    /// Writes the slot, when everything that it relies on is durable.
    fn write_slot(&mut self) {
        let Some(log) = &self.log else { return };
        let Some(run) = &log.checkpointing.run else { return };
        let relies_on_more = !run.rewrites.is_empty() || run.last.is_some_and(|last| !log.is_durable(last));
        if run.is_in_slot || relies_on_more {
            return;
        }
        let checkpoint = self.image(run.position);
        let Some(log) = &mut self.log else { return };
        let has_begun = log.slots.write(&checkpoint, &mut log.slot_outputs);
        if let Some(run) = &mut log.checkpointing.run {
            run.is_in_slot = has_begun;
        }
    }

    /// How the shard stands, for a start that replays the log from `position`.
    fn image(&self, position: LogPosition) -> Checkpoint {
        let held = self.log.iter().flat_map(|log| log.writer.held().iter().copied()).collect();
        let mut checkpoint = Checkpoint { position, held, topics: Vec::new(), marks: Vec::new(), groups: Vec::new() };
        for (incarnation, topic) in self.topics.iter().filter(|(_, topic)| topic.is_logged()) {
            let partition = PartitionRef { incarnation: *incarnation, partition: 0 };
            checkpoint.topics.push(TopicCreated {
                incarnation: *incarnation,
                name: topic.name.clone(),
                created_us: topic.created_us,
                partitions: 1,
                config: topic.config,
            });
            // What is not durable may get its offsets again.
            let (log_start, log_end) = (topic.log.log_start().offset(), topic.log.high_water().offset());
            checkpoint.marks.push(LogMarks { partition, log_start, log_end });
            let begun = topic.groups.values().filter(|group| group.is_begun());
            checkpoint.groups.extend(begun.map(|group| group.image(partition)));
        }
        checkpoint
    }

    pub(crate) fn take_slot_output(&mut self, now: Now, output: SlotOutput, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        match output {
            SlotOutput::Do { operation, effect } => log.operate(Machine::Slots(operation), effect, effects),
            SlotOutput::Confirmed { release } => {
                if let Some(position) = release {
                    log.writer.release(&position, &mut log.log_outputs);
                }
            }
            SlotOutput::Written { release, .. } => {
                log.stats.checkpoints += 1;
                log.checkpointing.run = None;
                log.checkpointing.slots_valid += 1;
                if let Some(position) = release {
                    log.writer.release(&position, &mut log.log_outputs);
                }
                if log.state == StorageState::Full {
                    // The next one releases more.
                    log.checkpointing.is_wanted = true;
                    log.checkpointing.retry_ms = Some(now.monotonic_ms + CHECKPOINT_RETRY_MS);
                }
            }
            SlotOutput::Failed(_) => {
                log.stats.checkpoint_failures += 1;
                log.checkpointing.put_off(now);
            }
            SlotOutput::Poisoned(failure) => self.poison(failure, effects),
        }
    }
}
