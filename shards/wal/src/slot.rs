//! Writes checkpoints into slot A or B in turn, slice by slice. A state machine on the core that owns the shard.

use bytes::Bytes;
use ringmain_model::ShardId;

use crate::checkpoint::{Checkpoint, Slots, encode_slot};
use crate::effect::{Completion, Effect, Failure, FileName, OperationId, SlotName, succeeded};
use crate::position::{LogPosition, whole_blocks};

/// Bytes of one slice, so that a checkpoint never holds up the log for long.
pub const SLOT_SLICE_BYTES: usize = 256 << 10;

/// A new slot has room for twice its content, and at least this: later checkpoints must not need room on a full disk, where
/// only they can release the log.
const SLOT_BYTES_FIRST: u64 = 64 << 10;

/// What the slot writer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SlotOutput {
    /// Do this and bring the result.
    Do {
        /// Comes back with the result.
        operation: OperationId,
        /// What to do.
        effect: Effect,
    },
    /// What the start read is durable, and checkpoints may be written.
    Confirmed {
        /// The log is needed from here on; `None` as long as only one slot is valid.
        release: Option<LogPosition>,
    },
    /// The checkpoint is durable.
    Written {
        /// Its number.
        sequence: u64,
        /// The log is needed from here on; `None` as long as only one slot was ever written.
        release: Option<LogPosition>,
    },
    /// The checkpoint was not written; the other slot stands, and a later one may try again.
    Failed(Failure),
    /// What is on the disk is not known any more: no checkpoint is written until the next start.
    Poisoned(Failure),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Allocate,
    Write { from: usize },
    Sync,
    SyncDirectory,
}

/// A start must not trust what it read before it is synced: a slot that survived a killed process may turn back into the one
/// before at the next power loss, whose log would be gone by then.
#[derive(Debug)]
struct Confirmation {
    left: Vec<SlotName>,
    release: Option<LogPosition>,
    operation: OperationId,
}

#[derive(Debug)]
struct Job {
    slot: SlotName,
    position: LogPosition,
    bytes: Bytes,
    step: Step,
    operation: OperationId,
}

/// Writes one checkpoint at a time.
#[derive(Debug)]
pub struct SlotWriter {
    shard: ShardId,
    /// The slot to write next: never the one that a start would use now.
    next: SlotName,
    sequence: u64,
    newer: Option<LogPosition>,
    present: [bool; 2],
    confirmation: Option<Confirmation>,
    job: Option<Job>,
    next_operation: u64,
    is_poisoned: bool,
}

impl SlotWriter {
    /// Goes on from what a start found, after making sure that it stays.
    #[must_use]
    pub fn new(shard: ShardId, slots: &Slots, out: &mut Vec<SlotOutput>) -> Self {
        let newer = slots.newer.as_ref();
        let left = [SlotName::A, SlotName::B].into_iter().filter(|slot| slots.present[*slot as usize]).collect();
        let mut writer = Self {
            shard,
            next: newer.map_or(SlotName::A, |(name, _)| name.other()),
            sequence: newer.map_or(0, |(_, content)| content.sequence),
            newer: newer.map(|(_, content)| content.checkpoint.position),
            present: slots.present,
            confirmation: None,
            job: None,
            next_operation: 0,
            is_poisoned: false,
        };
        writer.confirm(Confirmation { left, release: slots.older, operation: OperationId(0) }, out);
        writer
    }

    fn confirm(&mut self, mut confirmation: Confirmation, out: &mut Vec<SlotOutput>) {
        let effect = match confirmation.left.last() {
            Some(slot) => Effect::Sync { file: FileName::Slot(*slot) },
            None => Effect::SyncDirectory,
        };
        confirmation.operation = self.operate(effect, out);
        self.confirmation = Some(confirmation);
    }

    fn operate(&mut self, effect: Effect, out: &mut Vec<SlotOutput>) -> OperationId {
        let operation = OperationId(self.next_operation);
        self.next_operation += 1;
        out.push(SlotOutput::Do { operation, effect });
        operation
    }

    /// Whether a checkpoint can begin.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.job.is_none() && self.confirmation.is_none() && !self.is_poisoned
    }

    /// Begins to write `checkpoint`; says whether it did, which it does not before [`SlotOutput::Confirmed`], while another is
    /// being written, or after poison.
    ///
    /// Everything that the checkpoint's position says is replayed must be durable, and so must what lies below it.
    pub fn write(&mut self, checkpoint: &Checkpoint, out: &mut Vec<SlotOutput>) -> bool {
        if !self.is_ready() {
            return false;
        }
        let bytes = Bytes::from(encode_slot(self.shard, self.sequence + 1, checkpoint));
        let is_new_file = !self.present[self.next as usize];
        let step = if is_new_file { Step::Allocate } else { Step::Write { from: 0 } };
        let (slot, position) = (self.next, checkpoint.position);
        self.start(Job { slot, position, bytes, step, operation: OperationId(0) }, out);
        true
    }

    fn start(&mut self, mut job: Job, out: &mut Vec<SlotOutput>) {
        let file = FileName::Slot(job.slot);
        let effect = match job.step {
            Step::Allocate => {
                let bytes = whole_blocks(2 * job.bytes.len() as u64).max(SLOT_BYTES_FIRST);
                Effect::Allocate { file, bytes }
            }
            Step::Write { from } => {
                let end = job.bytes.len().min(from + SLOT_SLICE_BYTES);
                Effect::Write { file, position: from as u64, parts: vec![job.bytes.slice(from..end)] }
            }
            Step::Sync => Effect::Sync { file },
            Step::SyncDirectory => Effect::SyncDirectory,
        };
        job.operation = self.operate(effect, out);
        self.job = Some(job);
    }

    /// Takes the result of an operation; one that it does not wait for is ignored.
    pub fn completed(&mut self, operation: OperationId, completion: &Completion, out: &mut Vec<SlotOutput>) {
        if let Some(confirmation) = self.confirmation.take_if(|one| one.operation == operation) {
            self.confirmed(confirmation, completion, out);
            return;
        }
        let Some(mut job) = self.job.take_if(|job| job.operation == operation) else { return };
        let written = match job.step {
            Step::Write { from } => job.bytes.len().min(from + SLOT_SLICE_BYTES) - from,
            _ => 0,
        };
        if let Err(failure) = succeeded(completion, written as u64) {
            self.failed(&job, failure, out);
            return;
        }
        job.step = match job.step {
            Step::Allocate => {
                self.present[job.slot as usize] = true;
                Step::Write { from: 0 }
            }
            Step::Write { from } if from + written < job.bytes.len() => Step::Write { from: from + written },
            Step::Write { .. } => Step::Sync,
            // Always: an earlier checkpoint may have made the file and failed before the directory was synced.
            Step::Sync => Step::SyncDirectory,
            Step::SyncDirectory => {
                self.finished(&job, out);
                return;
            }
        };
        self.start(job, out);
    }

    fn confirmed(&mut self, mut confirmation: Confirmation, completion: &Completion, out: &mut Vec<SlotOutput>) {
        if let Err(failure) = succeeded(completion, 0) {
            self.is_poisoned = true;
            out.push(SlotOutput::Poisoned(failure));
        } else if confirmation.left.pop().is_some() {
            self.confirm(confirmation, out);
        } else {
            out.push(SlotOutput::Confirmed { release: confirmation.release });
        }
    }

    fn finished(&mut self, job: &Job, out: &mut Vec<SlotOutput>) {
        self.sequence += 1;
        self.next = job.slot.other();
        let release = self.newer.replace(job.position);
        out.push(SlotOutput::Written { sequence: self.sequence, release });
    }

    fn failed(&mut self, job: &Job, failure: Failure, out: &mut Vec<SlotOutput>) {
        if matches!(job.step, Step::Sync | Step::SyncDirectory) {
            self.is_poisoned = true;
            out.push(SlotOutput::Poisoned(failure));
        } else {
            out.push(SlotOutput::Failed(failure));
        }
    }
}
