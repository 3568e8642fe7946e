//! When and how a shard writes a checkpoint: tails first, then a slot, then the log is released. On the core that owns it.
//!
//! A checkpoint names a log position P, the durable end when it began. What the log has below P and a start needs must be
//! somewhere else by the time the slot is written: topics, groups and marks in the slot itself; small tails of records again at the
//! log's head; large ones in topic segments. The slot shows the shard as it stands when its image is made: replaying from P
//! repeats what is in it already, and ends at the same state.

use std::collections::VecDeque;

use ringmain_model::limit::{CHECKPOINT_RETRY_MS, DROPPED_MS_MAX, TAILS_BYTES_PER_TURN};
use ringmain_model::{Incarnation, Offset, PartitionRef};
use ringmain_wal::{
    Effect as FileEffect, Failure, FileName, LogPosition, NotAdmitted, Sequence, SlotOutput, TopicFile,
};

use crate::command::{Effect, Now, StorageNews};
use crate::image::Image;
use crate::opening::StorageState;
use crate::shard::Shard;
use crate::shard_log::{Machine, ShardLog};

/// A checkpoint under way.
#[derive(Debug)]
struct Run {
    position: LogPosition,
    /// Large tails that are to move to topic segments, up to which offset.
    stores: VecDeque<(PartitionRef, Offset)>,
    /// Tails that are to be written again: from which offset up to which.
    rewrites: VecDeque<(PartitionRef, Offset, Offset)>,
    /// The last commit batch with such a tail.
    last: Option<Sequence>,
    /// Some of the large ones are on their way to topic segments.
    is_storing: bool,
    /// The image that the slot gets.
    image: Option<Image>,
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
    /// Bytes of the log that the start found, until the first one.
    bytes_found: u64,
    /// Valid slots: before both are, nothing can be released.
    slots_valid: usize,
    is_stopped: bool,
    /// When the last one began, monotonic milliseconds.
    begun_ms: u64,
    /// Images begun so far; one at a time.
    images: u64,
    /// Which images the two slots have, the older one first; 0 for those that the start found.
    images_in_slots: [u64; 2],
    /// Files that a slot may still name: none of the images after the given one does.
    dropped: Vec<(u64, TopicFile)>,
    /// Files to be removed as soon as nothing is being written to topic segments.
    pub(crate) unlinks: Vec<TopicFile>,
    pub(crate) unlinks_running: usize,
}

impl Checkpointing {
    pub(crate) fn new(slots_valid: usize, bytes_found: u64) -> Self {
        Self {
            is_wanted: false,
            retry_ms: None,
            run: None,
            bytes_before: 0,
            bytes_found,
            slots_valid,
            is_stopped: false,
            begun_ms: 0,
            images: 0,
            images_in_slots: [0; 2],
            dropped: Vec::new(),
            unlinks: Vec::new(),
            unlinks_running: 0,
        }
    }

    /// No more checkpoints.
    pub(crate) fn stop(&mut self) {
        (self.run, self.retry_ms, self.is_stopped) = (None, None, true);
    }

    /// Files that were found and that no slot names: they go when two checkpoints have been written.
    pub(crate) fn drop_found(&mut self, files: impl Iterator<Item = TopicFile>) {
        self.dropped.extend(files.map(|file| (self.images, file)));
    }

    /// A topic's end is durable: what its slots name is of no account any more.
    pub(crate) fn unlink_dropped_of(&mut self, incarnation: Incarnation) {
        let is_of = |(_, file): &(u64, TopicFile)| file.partition.incarnation == incarnation;
        let (gone, dropped) = std::mem::take(&mut self.dropped).into_iter().partition(is_of);
        self.dropped = dropped;
        let gone: Vec<(u64, TopicFile)> = gone;
        self.unlinks.extend(gone.into_iter().map(|(_, file)| file));
    }

    /// When a checkpoint is due for nothing but dropped files.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let waits = !self.dropped.is_empty() && self.run.is_none() && self.unlinks_running == 0 && !self.is_stopped;
        let dropped = waits.then_some(self.begun_ms + DROPPED_MS_MAX);
        dropped.map(|due_ms| self.retry_ms.map_or(due_ms, |retry_ms| retry_ms.max(due_ms)))
    }

    /// From where the log is to be replayed, when everything that an image leaves out is durable and it is not whole yet.
    pub(crate) fn position_for_image(&self, durable: Sequence) -> Option<LogPosition> {
        let run = self.run.as_ref()?;
        let relies_on_more =
            self.is_storing() || !run.rewrites.is_empty() || run.last.is_some_and(|last| last > durable);
        let is_whole = run.image.as_ref().is_some_and(|image| image.covered.is_some());
        (!relies_on_more && !is_whole).then_some(run.position)
    }

    pub(crate) fn take_image(&mut self) -> Option<Image> {
        self.run.as_mut()?.image.take()
    }

    pub(crate) fn put_image(&mut self, image: Image) {
        if let Some(run) = &mut self.run {
            run.image = Some(image);
        }
    }

    /// A topic has ended.
    pub(crate) fn note_gone(&mut self, incarnation: Incarnation) {
        if let Some(image) = self.run.as_mut().and_then(|run| run.image.as_mut()) {
            image.note_gone(incarnation);
        }
    }

    /// Another image begins.
    pub(crate) fn count_image(&mut self) {
        self.images += 1;
    }

    /// Whether the next turn adds to an image.
    pub(crate) fn is_making_image(&self) -> bool {
        self.run.as_ref().and_then(|run| run.image.as_ref()).is_some_and(Image::goes_on)
    }

    /// Whether large tails move, or are still to.
    fn is_storing(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_storing || !run.stores.is_empty())
    }

    /// The large tails that are still to move, while none of them is on its way.
    pub(crate) fn stores_left(&mut self) -> Option<&mut VecDeque<(PartitionRef, Offset)>> {
        self.run.as_mut().filter(|run| !run.is_storing).map(|run| &mut run.stores)
    }

    /// Some of them are on their way from now on, or not any more.
    pub(crate) fn set_storing(&mut self, is_storing: bool) {
        if let Some(run) = &mut self.run {
            run.is_storing = is_storing;
        }
    }

    /// A tail is to move once more.
    pub(crate) fn store_again(&mut self, partition: PartitionRef, end: Offset) {
        if let Some(run) = &mut self.run {
            match run.stores.iter_mut().find(|(left, _)| *left == partition) {
                Some((_, until)) => *until = end.max(*until),
                None => run.stores.push_back((partition, end)),
            }
        }
    }

    /// A file that has been made has the name of one that was given up.
    pub(crate) fn keep(&mut self, file: TopicFile) {
        self.dropped.retain(|(_, dropped)| *dropped != file);
        self.unlinks.retain(|dropped| *dropped != file);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.run.is_some()
    }

    /// It did not work out: once more, later.
    fn put_off(&mut self, now: Now) {
        self.run = None;
        if self.is_stopped {
            return;
        }
        self.is_wanted = true;
        self.retry_ms = Some(now.monotonic_ms + CHECKPOINT_RETRY_MS);
    }
}

impl Shard {
    /// Takes the next step of a checkpoint, or begins one when it is time. At the end of a turn in which the log can be written.
    pub(crate) fn go_on_with_checkpoint(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.log.as_ref().is_some_and(|log| !log.checkpointing.is_running()) {
            self.begin_checkpoint(now);
        }
        self.store_tails(now);
        self.rewrite_tails(now);
        self.take_image(now, effects);
        self.write_slot();
    }

    fn begin_checkpoint(&mut self, now: Now) {
        let Some(log) = &mut self.log else { return };
        let checkpointing = &mut log.checkpointing;
        if checkpointing.retry_ms.is_some_and(|retry_ms| now.monotonic_ms < retry_ms) {
            return;
        }
        // What else it may wait for comes with an event of its own.
        checkpointing.retry_ms = None;
        // A file that is being removed may have the name of one that is to be made.
        if checkpointing.is_stopped || !log.slots.is_ready() || checkpointing.unlinks_running > 0 {
            return;
        }
        let grown = checkpointing.bytes_found + log.stats.commit_bytes - checkpointing.bytes_before;
        let has_room = log.state != StorageState::Full && log.writer.has_room_for_records();
        let is_pressed = checkpointing.is_wanted && (!has_room || grown >= log.settings.checkpoint_bytes / 8);
        let has_dropped = checkpointing.next_due_ms().is_some_and(|due_ms| due_ms <= now.monotonic_ms);
        if !is_pressed && !has_dropped && checkpointing.slots_valid >= 2 && grown < log.settings.checkpoint_bytes {
            return;
        }
        checkpointing.is_wanted = false;
        checkpointing.begun_ms = now.monotonic_ms;
        (checkpointing.bytes_found, checkpointing.bytes_before) = (0, log.stats.commit_bytes);
        let position = log.writer.durable_position();
        let (stores, rewrites) = self.divide_tails();
        let Some(log) = &mut self.log else { return };
        let run = Run { position, stores, rewrites, last: None, is_storing: false, image: None, is_in_slot: false };
        log.checkpointing.run = Some(run);
    }

    /// Writes tails again at the log's head, a part of them in each turn.
    fn rewrite_tails(&mut self, now: Now) {
        let Some(log) = &mut self.log else { return };
        if log.checkpointing.is_storing() {
            // On a full disk that fails, and what is copied before would only use up the log's reserve.
            return;
        }
        let mut bytes = 0;
        while let Some(run) = &mut log.checkpointing.run
            && let Some((partition, from, end)) = run.rewrites.front_mut()
            && bytes < TAILS_BYTES_PER_TURN
        {
            let topic = self.partitions.get(partition);
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
                Err(NotAdmitted::Full | NotAdmitted::NoRoomForSize | NotAdmitted::TooLarge | NotAdmitted::Poisoned) => {
                    log.stats.checkpoint_failures += 1;
                    return log.checkpointing.put_off(now);
                }
            }
        }
    }

    /// Writes the slot, when the log has what the image has.
    fn write_slot(&mut self) {
        let Some(log) = &mut self.log else { return };
        let durable = log.durable;
        let Some(run) = log.checkpointing.run.as_mut().filter(|run| !run.is_in_slot) else { return };
        let is_durable = |image: &&Image| image.covered.is_some_and(|covered| covered <= durable);
        if let Some(image) = run.image.as_ref().filter(is_durable) {
            run.is_in_slot = log.slots.write(&image.checkpoint, &mut log.slot_outputs);
        }
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
                let image = log.checkpointing.images;
                log.checkpointing.images_in_slots = [log.checkpointing.images_in_slots[1], image];
                log.checkpointing.slots_valid += 1;
                if let Some(position) = release {
                    log.writer.release(&position, &mut log.log_outputs);
                }
                let is_short = log.state == StorageState::Full || !log.writer.has_room_for_records();
                if is_short && !log.checkpointing.is_stopped {
                    // The next one releases more.
                    log.checkpointing.is_wanted = true;
                    log.checkpointing.retry_ms = Some(now.monotonic_ms + CHECKPOINT_RETRY_MS);
                }
                self.unlink_files(effects);
            }
            SlotOutput::Failed(failure) => self.checkpoint_failed(now, failure, effects),
            SlotOutput::Poisoned(failure) => self.poison(failure, effects),
        }
    }

    pub(crate) fn checkpoint_failed(&mut self, now: Now, failure: Failure, effects: &mut Vec<Effect>) {
        if let Some(log) = &mut self.log {
            log.stats.checkpoint_failures += 1;
            log.checkpointing.put_off(now);
            effects.push(Effect::StorageNews(StorageNews::CheckpointFailed(failure)));
        }
        self.unlink_files(effects);
    }

    /// Removes the files that no slot names any more.
    pub(crate) fn unlink_files(&mut self, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        // A name that is free might be made again by what is being written.
        if log.checkpointing.is_storing() {
            return;
        }
        let oldest = log.checkpointing.images_in_slots[0];
        let (gone, dropped) =
            std::mem::take(&mut log.checkpointing.dropped).into_iter().partition(|(image, _)| *image < oldest);
        log.checkpointing.dropped = dropped;
        let gone: Vec<(u64, TopicFile)> = gone;
        let unlinks = std::mem::take(&mut log.checkpointing.unlinks);
        for file in gone.into_iter().map(|(_, file)| file).chain(unlinks) {
            let topic = self.partitions.get(&file.partition);
            if topic.is_some_and(|topic| topic.log.has_segment(file.base)) {
                continue;
            }
            log.loads.forget(file);
            log.checkpointing.unlinks_running += 1;
            log.operate(Machine::Unlink, FileEffect::Unlink { file: FileName::Topic(file) }, effects);
        }
    }
}

impl ShardLog {
    /// Notes files that no later image names.
    pub(crate) fn drop_files(&mut self, files: Vec<TopicFile>) {
        self.checkpointing.drop_found(files.into_iter());
    }
}
