//! A shard's log with what waits for it: admission, answers by log position, poison. On the core that owns the shard.

use std::collections::VecDeque;

use hashbrown::HashMap;
use ringmain_model::limit::{LOG_RETRY_MS, PROGRESS_LOG_MS};
use ringmain_model::{GroupName, HighWaterMark, Incarnation, PartitionRef, Refusal, RefusalKind};
use ringmain_wal::{
    Completion, Effect as FileEffect, Entry, Failure, LogOutput, LogWriter, NotAdmitted, OperationId, SegmentsOutput,
    SegmentsWriter, Sequence, SlotOutput, SlotWriter,
};

use crate::checkpoint::Checkpointing;
use crate::command::{Effect, Now, Origin, Reply, StorageNews};
use crate::group::Group;
use crate::loads::{Loads, Place};
use crate::log::PartitionLog;
use crate::opening::{StorageSettings, StorageState, StorageStats};
use crate::parked::Parked;
use crate::shard::Shard;
use crate::topics::Ended;

/// What waits for a commit batch to be durable.
#[derive(Debug)]
pub(crate) enum Awaiting {
    /// The oldest unsynced batch of a partition.
    Batch(PartitionRef),
    /// The birth of a topic: then it is announced.
    Create { origin: Origin, incarnation: Incarnation },
    /// The end of a topic: then its data goes.
    Delete { origin: Origin, ended: Ended },
    /// The end of this shard's part of a topic: then its data goes, and the shard that asked for that is told.
    Drop { origin: Origin, incarnation: Incarnation },
    /// A change of a topic's settings: then the other shards are told.
    Change { origin: Origin, incarnation: Incarnation },
    /// The beginning of a group: then it gives out messages.
    Begin { partition: PartitionRef, group: GroupName, epoch: u64 },
    /// A member that joined before its group was stored: it hears of the epoch that is then.
    Join { to: Origin, partition: PartitionRef, group: GroupName, high_water: HighWaterMark },
    /// An answer.
    Reply { to: Origin, reply: Reply },
}

/// Which state machine an operation belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Machine {
    Log(OperationId),
    Slots(OperationId),
    Segments(OperationId),
    /// A read of a topic segment.
    Load(Place),
    /// A read for an index that is made again.
    Scan(Place, OperationId),
    /// Whatever comes of it.
    Unlink,
}

/// The log of one shard, its checkpoints, and what waits for them.
#[derive(Debug)]
pub(crate) struct ShardLog {
    pub(crate) settings: StorageSettings,
    pub(crate) writer: LogWriter,
    pub(crate) slots: SlotWriter,
    pub(crate) segments: SegmentsWriter,
    pub(crate) loads: Loads,
    pub(crate) log_outputs: Vec<LogOutput>,
    pub(crate) slot_outputs: Vec<SlotOutput>,
    pub(crate) segment_outputs: Vec<SegmentsOutput>,
    operations: HashMap<OperationId, Machine>,
    next_operation: u64,
    /// In the order of the log.
    awaiting: VecDeque<(Sequence, Awaiting)>,
    /// Everything up to this batch is durable.
    pub(crate) durable: Sequence,
    /// Publishes that wait for room.
    pub(crate) parked: Parked,
    /// Partitions of logged topics with an open batch.
    pub(crate) dirty: Vec<PartitionRef>,
    /// Groups whose progress the log does not have, and when it is to get it.
    pub(crate) unlogged_groups: Vec<(PartitionRef, GroupName)>,
    pub(crate) progress_due_ms: Option<u64>,
    /// Somebody waits for the progress of a group.
    pub(crate) is_progress_urgent: bool,
    /// What the last admission met.
    pub(crate) state: StorageState,
    /// Why the last segment that was needed could not be made.
    full_because: Option<Failure>,
    /// When to try again what failed for want of room.
    pub(crate) retry_ms: Option<u64>,
    pub(crate) checkpointing: Checkpointing,
    pub(crate) stats: StorageStats,
}

impl ShardLog {
    pub(crate) fn new(
        settings: StorageSettings,
        writer: LogWriter,
        slots: SlotWriter,
        checkpointing: Checkpointing,
    ) -> Self {
        // Else each checkpoint would make the log grow by so much that the next one is due.
        assert!(
            settings.tails_bytes_max < settings.checkpoint_bytes,
            "tails leave room in a checkpoint's share of the log"
        );
        let durable = Sequence(writer.durable_position().next.0.saturating_sub(1));
        Self {
            settings,
            writer,
            slots,
            segments: SegmentsWriter::new(settings.log.shard),
            loads: Loads::new(),
            log_outputs: Vec::new(),
            slot_outputs: Vec::new(),
            segment_outputs: Vec::new(),
            operations: HashMap::new(),
            next_operation: 0,
            awaiting: VecDeque::new(),
            durable,
            parked: Parked::default(),
            dirty: Vec::new(),
            unlogged_groups: Vec::new(),
            progress_due_ms: None,
            is_progress_urgent: false,
            state: StorageState::Open,
            full_because: None,
            retry_ms: None,
            checkpointing,
            stats: StorageStats::default(),
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.state == StorageState::Poisoned
    }

    /// Appends an entry and notes what waits for it.
    pub(crate) fn append(&mut self, entry: &Entry, awaiting: Option<Awaiting>) -> Result<Sequence, Refusal> {
        if self.is_poisoned() {
            return Err(storage_failed());
        }
        let admitted = self.writer.append(entry, &mut self.log_outputs);
        let sequence = admitted.map_err(|why| self.not_admitted(why))?;
        self.stats.commit_entries += 1;
        self.awaiting.extend(awaiting.map(|awaiting| (sequence, awaiting)));
        Ok(sequence)
    }

    /// Appends where a partition's log starts, if the log does not know: progress that went along with the start must not be
    /// ahead of it after a crash, or messages would be there that its group never gets.
    pub(crate) fn append_marks(&mut self, partition: &mut PartitionLog, is_to_free: bool) -> Result<(), Refusal> {
        let Some(marks) = partition.marks_to_log() else { return Ok(()) };
        let entry = Entry::LogMarks(marks);
        let appended = if is_to_free { self.append_to_free(&entry) } else { self.append(&entry, None) };
        appended.map(|_| partition.logged_start = marks.log_start)
    }

    /// Appends an entry that a checkpoint waits for.
    pub(crate) fn append_to_free(&mut self, entry: &Entry) -> Result<Sequence, Refusal> {
        let admitted = self.writer.append_to_free(entry, &mut self.log_outputs);
        self.stats.commit_entries += u64::from(admitted.is_ok());
        admitted.map_err(|why| self.not_admitted(why))
    }

    /// Notes what else waits for a batch; it must be the last one that was appended to.
    pub(crate) fn wait_for(&mut self, sequence: Sequence, awaiting: Awaiting) {
        debug_assert!(self.awaiting.back().is_none_or(|(last, _)| *last <= sequence), "waits stand in the log's order");
        self.awaiting.push_back((sequence, awaiting));
    }

    /// Notes that an admission failed, and makes it a refusal.
    pub(crate) fn not_admitted(&mut self, why: NotAdmitted) -> Refusal {
        match why {
            NotAdmitted::Busy | NotAdmitted::BatchFull => {
                self.state = StorageState::Busy;
                // Perhaps too much of the log waits for a checkpoint.
                self.checkpointing.is_wanted = true;
                Refusal::busy("the log's disk does not keep up")
            }
            NotAdmitted::Full => {
                self.state = StorageState::Full;
                self.checkpointing.is_wanted = true;
                log_full(self.full_because)
            }
            // Less at a time still goes in, and what checkpoints release is as small as what is there.
            NotAdmitted::NoRoomForSize => Refusal::new(
                RefusalKind::StorageFull,
                "the disk has no room for so much at once: nothing was stored; make room, or publish less at a time",
            ),
            NotAdmitted::TooLarge => {
                Refusal::new(RefusalKind::PayloadTooLarge, "the message does not fit a segment of the log: split it")
            }
            NotAdmitted::Poisoned => storage_failed(),
        }
    }

    /// Notes that a group's progress is to be logged, soon if somebody waits for it.
    pub(crate) fn note_unlogged(&mut self, now: Now, partition: PartitionRef, group: &mut Group) {
        if self.is_poisoned() {
            return;
        }
        if !std::mem::replace(&mut group.is_unlogged, true) {
            self.unlogged_groups.push((partition, group.name.clone()));
        }
        self.progress_due_ms.get_or_insert(now.monotonic_ms + PROGRESS_LOG_MS);
        self.is_progress_urgent |= group.is_awaited();
    }

    /// Numbers an operation of one of the machines.
    pub(crate) fn operate(&mut self, machine: Machine, effect: FileEffect, effects: &mut Vec<Effect>) {
        let operation = OperationId(self.next_operation);
        self.next_operation += 1;
        if let FileEffect::Write { file: ringmain_wal::FileName::Segment(_), .. } = &effect {
            self.stats.commit_bytes += effect.write_bytes();
        }
        self.operations.insert(operation, machine);
        effects.push(Effect::File { operation, effect });
    }

    /// Whether the next end of a turn has something to write.
    pub(crate) fn is_dirty(&self) -> bool {
        let has_work = !self.dirty.is_empty() || self.is_progress_urgent || self.checkpointing.is_making_image();
        !self.is_poisoned() && !self.writer.is_writing() && has_work
    }

    /// Whether everything admitted is durable, or never will be.
    pub(crate) fn is_settled(&self) -> bool {
        let has_work = !self.parked.is_empty()
            || self.writer.is_dirty()
            || !self.dirty.is_empty()
            || !self.unlogged_groups.is_empty();
        self.is_poisoned() || !has_work
    }

    /// When the shard must look at its log again.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        // While a write is in flight its end comes first.
        let is_idle = !self.is_poisoned() && !self.writer.is_writing();
        let progress = self.progress_due_ms.filter(|_| is_idle);
        let dropped = self.checkpointing.next_due_ms().filter(|_| is_idle && self.slots.is_ready());
        let own = progress.into_iter().chain(dropped).chain(self.retry_ms).chain(self.parked.next_due_ms());
        own.chain(self.checkpointing.retry_ms).min()
    }
}

/// The answer to what found no segment of the log, by why none could be made.
pub(crate) fn log_full(because: Option<Failure>) -> Refusal {
    let text = match because.filter(|because| because.is_want_of_descriptors()) {
        Some(because) => {
            format!("no segment of the log can be made: {because}; nothing was stored, writing goes on by itself then")
        }
        None => "the disk is full: nothing was stored; make room or delete topics, writing goes on by itself then"
            .to_owned(),
    };
    Refusal::new(RefusalKind::StorageFull, text)
}

/// The answer to a logged topic where there is no log.
pub(crate) fn no_log() -> Refusal {
    Refusal::new(
        RefusalKind::InvalidConfig,
        "the broker was started without a data directory: set STORAGE_MODE=wal or WAL_DIR, or make a topic with \"storage\":\"memory\"",
    )
}

/// The answer to a write after a failed one.
pub(crate) fn storage_failed() -> Refusal {
    Refusal::new(
        RefusalKind::StorageFailed,
        "a write to the disk failed, so that this shard takes no more until the broker is started again: nothing was done; look at the log and the disk",
    )
}

/// The answer to what was admitted before a write failed.
pub(crate) fn outcome_unknown() -> Refusal {
    Refusal::new(
        RefusalKind::OutcomeUnknown,
        "the write to the disk failed: whether this is stored is not known; read the topic after the broker was started again",
    )
}

impl Shard {
    /// Takes what came of a file operation.
    pub(crate) fn file_done(
        &mut self,
        now: Now,
        operation: OperationId,
        completion: &Completion,
        effects: &mut Vec<Effect>,
    ) {
        let Some(log) = &mut self.log else { return };
        match log.operations.remove(&operation) {
            Some(Machine::Log(own)) => log.writer.completed(own, completion, &mut log.log_outputs),
            Some(Machine::Slots(own)) => log.slots.completed(own, completion, &mut log.slot_outputs),
            Some(Machine::Segments(own)) => log.segments.completed(own, completion, &mut log.segment_outputs),
            Some(Machine::Load(place)) => self.loaded(now, place, completion, effects),
            Some(Machine::Scan(place, own)) => self.scanned(now, place, own, completion, effects),
            Some(Machine::Unlink) => log.checkpointing.unlinks_running -= 1,
            None => {}
        }
    }

    /// Lets what the log's machines said take its course.
    pub(crate) fn settle_log(&mut self, now: Now, effects: &mut Vec<Effect>) {
        loop {
            let Some(log) = &mut self.log else { return };
            if log.log_outputs.is_empty() && log.slot_outputs.is_empty() && log.segment_outputs.is_empty() {
                return;
            }
            let mut log_outputs = std::mem::take(&mut log.log_outputs);
            let slot_outputs = std::mem::take(&mut log.slot_outputs);
            let segment_outputs = std::mem::take(&mut log.segment_outputs);
            for output in segment_outputs {
                self.take_segments_output(now, output, effects);
            }
            for output in log_outputs.drain(..) {
                self.take_log_output(now, output, effects);
            }
            for output in slot_outputs {
                self.take_slot_output(now, output, effects);
            }
            // The log says something with each batch: its list keeps its memory.
            if let Some(log) = &mut self.log {
                log_outputs.append(&mut log.log_outputs);
                log.log_outputs = log_outputs;
            }
        }
    }

    fn take_log_output(&mut self, now: Now, output: LogOutput, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        match output {
            LogOutput::Do { operation, effect } => log.operate(Machine::Log(operation), effect, effects),
            LogOutput::Durable(sequence) => {
                log.stats.commits += 1;
                log.durable = sequence;
                while let Some(log) = &mut self.log
                    && log.awaiting.front().is_some_and(|(awaited, _)| *awaited <= sequence)
                    && let Some((_, awaiting)) = log.awaiting.pop_front()
                {
                    self.durable(awaiting, effects);
                }
            }
            LogOutput::Poisoned(failure) => self.poison(failure, effects),
            LogOutput::Full(_) if log.is_poisoned() => {}
            LogOutput::Full(failure) => {
                log.full_because = Some(failure);
                log.retry_ms = Some(now.monotonic_ms + LOG_RETRY_MS);
                effects.push(Effect::StorageNews(StorageNews::Full(failure)));
            }
            LogOutput::Room => {
                log.retry_ms = None;
                effects.push(Effect::StorageNews(StorageNews::Room));
                if log.state == StorageState::Full && log.writer.has_room_for_records() {
                    log.state = StorageState::Open;
                }
            }
        }
    }

    fn durable(&mut self, awaiting: Awaiting, effects: &mut Vec<Effect>) {
        match awaiting {
            Awaiting::Batch(partition) => self.batch_durable(partition, effects),
            Awaiting::Create { origin, incarnation } => self.created(origin, incarnation, effects),
            Awaiting::Delete { origin, ended } => self.deleted(origin, ended, effects),
            Awaiting::Drop { origin, incarnation } => {
                self.end_topic(incarnation, effects);
                effects.push(Effect::Reply { to: origin, reply: Reply::Noted });
            }
            Awaiting::Change { origin, incarnation } => self.changed(origin, incarnation, effects),
            Awaiting::Begin { partition, group, epoch } => {
                let topic = self.partitions.get_mut(&partition);
                // One of the same name may have come after it was deleted: its epoch is another.
                if let Some(found) = topic.and_then(|topic| topic.groups.get_mut(&group))
                    && found.epoch() == epoch
                {
                    found.begin();
                    found.list(partition, &mut self.listed_groups);
                }
            }
            Awaiting::Join { to, partition, group, high_water } => {
                let topic = self.partitions.get_mut(&partition).filter(|topic| !topic.is_ending);
                let found = topic.and_then(|topic| topic.groups.get_mut(&group));
                let reply = match found {
                    Some(found) => {
                        found.join_waiting(to);
                        found.list(partition, &mut self.listed_groups);
                        Reply::Joined { epoch: found.epoch(), high_water }
                    }
                    None => Reply::Refused(Refusal::group_not_found(group.as_str())),
                };
                effects.push(Effect::Reply { to, reply });
            }
            Awaiting::Reply { to, reply } => effects.push(Effect::Reply { to, reply }),
        }
    }

    /// Nothing more is written: who waits is told that nobody knows.
    pub(crate) fn poison(&mut self, failure: Failure, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        log.state = StorageState::Poisoned;
        (log.retry_ms, log.progress_due_ms, log.is_progress_urgent) = (None, None, false);
        log.dirty.clear();
        log.unlogged_groups.clear();
        log.checkpointing.stop();
        effects.push(Effect::StorageNews(StorageNews::Poisoned(failure)));
        let unknown = |to| Effect::Reply { to, reply: Reply::Refused(outcome_unknown()) };
        for (_, awaiting) in std::mem::take(&mut log.awaiting) {
            match awaiting {
                // Told below, with those whose batch was not even closed.
                Awaiting::Batch(_) | Awaiting::Begin { .. } => {}
                Awaiting::Create { origin: to, .. }
                | Awaiting::Change { origin: to, .. }
                | Awaiting::Join { to, .. }
                | Awaiting::Delete { origin: to, .. }
                | Awaiting::Drop { origin: to, .. }
                | Awaiting::Reply { to, .. } => effects.push(unknown(to)),
            }
        }
        let order: Vec<_> = self.partitions_in_order().into_iter().map(|(partition, _)| partition).collect();
        for partition in order {
            let Some(topic) = self.partitions.get_mut(&partition).filter(|topic| topic.is_logged()) else { continue };
            self.ids.forget_from(partition, topic.log.high_water().offset());
            effects.extend(topic.log.give_up_unsynced().into_iter().map(|waiting| unknown(waiting.origin)));
            for group in topic.groups.values_mut() {
                effects.extend(group.take_answers().into_iter().map(|(to, _)| unknown(to)));
                effects.extend(group.take_pulls_unbegun().into_iter().map(unknown));
            }
        }
    }

    /// Appends an entry to the log; for one that must stand behind what was admitted before.
    ///
    /// # Errors
    /// The refusal, when it was not admitted; nothing was done.
    pub(crate) fn log_entry(&mut self, entry: &Entry, awaiting: Awaiting) -> Result<Sequence, Refusal> {
        self.close_logged_batches();
        match &mut self.log {
            Some(log) => log.append(entry, Some(awaiting)),
            None => Err(no_log()),
        }
    }

    /// Closes the open batches of logged topics, so that their reservations are used.
    pub(crate) fn close_logged_batches(&mut self) {
        let Some(log) = &mut self.log else { return };
        for partition in std::mem::take(&mut log.dirty) {
            self.close_logged_batch(partition);
        }
    }

    /// Closes one partition's open batch and gives it to the log.
    pub(crate) fn close_logged_batch(&mut self, partition: PartitionRef) {
        let Some(log) = &mut self.log else { return };
        let Some(topic) = self.partitions.get_mut(&partition) else { return };
        let Some((batch, reserved)) = topic.log.close_batch() else { return };
        // A poisoned log has answered all that waited, and has no open batches left.
        if let Ok(sequence) = log.writer.append_reserved(&Entry::Records(batch), reserved) {
            log.stats.commit_entries += 1;
            log.wait_for(sequence, Awaiting::Batch(partition));
        }
    }
}
