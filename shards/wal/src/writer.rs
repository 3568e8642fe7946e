//! The log's writer: entries in, commit batches out, one write in flight. A state machine on the core that owns the shard.
//!
//! It never touches a file. It says what to do ([`LogOutput::Do`]) and is told what came of it ([`LogWriter::completed`]).
//! `prepare.rs` beside it makes segments ahead of need and takes back those that a checkpoint released.

mod prepare;
mod settings;

use std::collections::{BTreeSet, VecDeque};

use crate::batch::RecordBatch;
use crate::commit::{ClosedBatch, CommitPlace, OpenBatch};
use crate::effect::{Completion, Effect, Failure, FileName, OperationId, succeeded};
use crate::entry::{Entry, EntryClass};
use crate::position::{BLOCK_BYTES, LogPosition, SegmentNumber, Sequence, whole_blocks};
use crate::recovery::Opened;
use prepare::Preparer;
pub use settings::LogSettings;

/// What the writer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogOutput {
    /// Do this and bring the result.
    Do {
        /// Comes back with the result.
        operation: OperationId,
        /// What to do.
        effect: Effect,
    },
    /// All batches up to this one are durable.
    Durable(Sequence),
    /// A write or sync of the log failed, so that what is on the disk is not known: nothing more is written, and the outcome
    /// of every entry that is not durable is unknown.
    Poisoned(Failure),
    /// A segment could not be made. What is allocated is still used; [`LogWriter::try_again`] tries again.
    Full(Failure),
    /// A segment could be made after all.
    Room,
}

/// Why an entry was not admitted; nothing of it was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAdmitted {
    /// Closed batches wait, a segment is being made, or too much of the log waits for a checkpoint.
    #[error("the log is busy")]
    Busy,
    /// There is no room for another segment, and what is left is for entries that free something.
    #[error("the log's disk is full")]
    Full,
    /// There is no room for a segment that would hold it; smaller entries may well be admitted.
    #[error("the log's disk has no room for a segment that holds the entry")]
    NoRoomForSize,
    /// The open batch has no room beside what is reserved in it: append that, then ask again.
    #[error("the open batch is full of reservations")]
    BatchFull,
    /// It would not fit the largest segment.
    #[error("the entry is larger than a log segment")]
    TooLarge,
    /// The log is poisoned.
    #[error("an earlier write of the log failed")]
    Poisoned,
}

/// A segment with its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its number.
    pub number: SegmentNumber,
    /// Its size in bytes.
    pub bytes: u64,
}

#[derive(Debug)]
struct Flight {
    batch: ClosedBatch,
    operation: OperationId,
    is_syncing: bool,
}

/// Writes the commit log of one shard.
#[derive(Debug)]
pub struct LogWriter {
    settings: LogSettings,
    open: OpenBatch,
    /// Bytes of entries that will come into the open batch.
    reserved: usize,
    waiting: VecDeque<ClosedBatch>,
    flight: Option<Flight>,
    /// The segment in which the open batch will stand, and where in it.
    active: Option<(Segment, u64)>,
    /// Sequence of the open batch, and the checksum that it chains to.
    sequence: Sequence,
    previous_checksum: u32,
    durable: LogPosition,
    preparer: Preparer,
    poison: Option<Failure>,
    next_operation: u64,
}

impl LogWriter {
    /// Goes on from what the opener found, in segments of its own.
    ///
    /// # Panics
    /// When the settings contradict each other.
    #[must_use]
    pub fn new(settings: LogSettings, opened: Opened, out: &mut Vec<LogOutput>) -> Self {
        settings.check();
        let mut writer = Self {
            open: OpenBatch::default(),
            reserved: 0,
            waiting: VecDeque::new(),
            flight: None,
            active: None,
            sequence: opened.position.next,
            previous_checksum: opened.position.previous_checksum,
            durable: opened.position,
            preparer: Preparer::new(settings, opened),
            settings,
            poison: None,
            next_operation: 0,
        };
        writer.prepare(out);
        writer
    }

    /// Admits an entry into the open batch and says in which batch it will be durable.
    ///
    /// # Errors
    /// Why it was not admitted. Nothing of it was kept, and no room was taken.
    pub fn append(&mut self, entry: &Entry, out: &mut Vec<LogOutput>) -> Result<Sequence, NotAdmitted> {
        self.make_room(entry.class(), entry.encoded_bytes(), out)?;
        self.open.push(entry);
        Ok(self.sequence)
    }

    /// Admits records that are in the log already, so that its older part can be released: the reserve takes them, because
    /// they help to free it.
    ///
    /// # Errors
    /// As for [`LogWriter::append`].
    pub fn append_again(&mut self, batch: RecordBatch, out: &mut Vec<LogOutput>) -> Result<Sequence, NotAdmitted> {
        self.append_to_free(&Entry::Records(batch), out)
    }

    /// Admits an entry without which no checkpoint can be written, and so nothing be released: all of the reserve is for it.
    ///
    /// # Errors
    /// As for [`LogWriter::append`].
    pub fn append_to_free(&mut self, entry: &Entry, out: &mut Vec<LogOutput>) -> Result<Sequence, NotAdmitted> {
        self.make_room(EntryClass::Upkeep, entry.encoded_bytes(), out)?;
        self.open.push(entry);
        Ok(self.sequence)
    }

    /// Reserves room for records that are still being gathered, so that their offsets can be given out now: an entry of at most
    /// `bytes` ([`Entry::bytes_to_reserve`]) that is appended later in this turn cannot be refused for want of room.
    ///
    /// # Errors
    /// Why there is no room; [`NotAdmitted::BatchFull`] when what was reserved must be appended first.
    pub fn reserve(&mut self, bytes: usize, out: &mut Vec<LogOutput>) -> Result<(), NotAdmitted> {
        self.make_room(EntryClass::Records, bytes, out)?;
        self.reserved += bytes;
        Ok(())
    }

    /// Appends an entry for which `reserved` bytes, in one or several parts, were reserved in this turn.
    ///
    /// # Errors
    /// [`NotAdmitted::Poisoned`] alone.
    ///
    /// # Panics
    /// When the entry is larger than its reservation, or more is given back than was reserved: that is our own fault.
    pub fn append_reserved(&mut self, entry: &Entry, reserved: usize) -> Result<Sequence, NotAdmitted> {
        if self.poison.is_some() {
            return Err(NotAdmitted::Poisoned);
        }
        assert!(entry.encoded_bytes() <= reserved && reserved <= self.reserved, "an entry outgrew its reservation");
        self.reserved -= reserved;
        self.open.push(entry);
        Ok(self.sequence)
    }

    /// Makes sure that the open batch can take an entry of `bytes` more, in a segment that is allocated.
    fn make_room(&mut self, class: EntryClass, bytes: usize, out: &mut Vec<LogOutput>) -> Result<(), NotAdmitted> {
        if self.poison.is_some() {
            return Err(NotAdmitted::Poisoned);
        }
        let alone = whole_blocks(OpenBatch::default().bytes_with(bytes) as u64);
        // The length of a batch has 32 bits.
        if alone > self.settings.segment_bytes_max - BLOCK_BYTES || u32::try_from(alone).is_err() {
            return Err(NotAdmitted::TooLarge);
        }
        let together = self.open.bytes_with(self.reserved + bytes);
        let joins = self.is_open_unused()
            || (together <= self.settings.batch_bytes_max && self.fits_active(whole_blocks(together as u64)));
        if !joins {
            if self.reserved > 0 {
                return Err(NotAdmitted::BatchFull);
            }
            if self.waiting.len() >= self.settings.waiting_batches_max {
                return Err(NotAdmitted::Busy);
            }
            self.close();
            self.write_next(out);
        }
        self.find_segment(class, alone, out)
    }

    /// Whether the open batch holds nothing and nothing is reserved in it, so that it may still move to another segment.
    fn is_open_unused(&self) -> bool {
        self.open.is_empty() && self.reserved == 0
    }

    fn fits_active(&self, bytes: u64) -> bool {
        self.active.is_some_and(|(segment, position)| position + bytes <= segment.bytes)
    }

    /// Makes sure that the segment at hand has room for `alone` bytes and that entries of `class` may use it.
    fn find_segment(&mut self, class: EntryClass, alone: u64, out: &mut Vec<LogOutput>) -> Result<(), NotAdmitted> {
        // The last segment made ahead is for the next start, should it find the disk full; a start that finds no other may
        // use it. The one before is for what frees and settles.
        let reserve = match class {
            EntryClass::Records => 2,
            EntryClass::Progress | EntryClass::Upkeep => usize::from(self.active.is_some()),
        };
        if self.is_open_unused() && !self.fits_active(alone) {
            let front = self.preparer.ready.front().copied();
            let is_small = front.is_some_and(|front| BLOCK_BYTES + alone > front.bytes);
            if is_small {
                // Segments made while everything was small: larger ones come, and for each of them one makes way.
                let why = self.preparer.want(BLOCK_BYTES + alone);
                self.prepare(out);
                return Err(why);
            }
            if self.preparer.ready.len() <= reserve {
                return Err(self.preparer.why_no_room());
            }
            self.roll(out);
        } else if class == EntryClass::Records && self.preparer.ready.len() < 2 {
            // The segment at hand is the reserve.
            return Err(self.preparer.why_no_room());
        } else if class == EntryClass::Progress && self.preparer.ready.len() < 2 && self.is_half_full() {
            return Err(self.preparer.why_no_room());
        }
        Ok(())
    }

    fn is_half_full(&self) -> bool {
        self.active.is_some_and(|(segment, position)| position + self.open.bytes_with(0) as u64 > segment.bytes / 2)
    }

    /// Goes on in the next segment that was made ahead.
    fn roll(&mut self, out: &mut Vec<LogOutput>) {
        let Some(next) = self.preparer.ready.pop_front() else { return };
        if let Some((full, _)) = self.active.replace((next, BLOCK_BYTES)) {
            self.preparer.used.push_back(full);
        }
        self.preparer.rolled();
        self.prepare(out);
    }

    /// Ends a turn: if no write is in flight, what was admitted is written now. While one is, it goes on gathering. Nothing is
    /// written while something is reserved and not appended.
    pub fn turn_ended(&mut self, out: &mut Vec<LogOutput>) {
        if self.flight.is_none() && self.poison.is_none() {
            if self.waiting.is_empty() {
                self.close();
            }
            self.write_next(out);
        }
    }

    /// Closes the open batch, if there is anything in it.
    fn close(&mut self) {
        if self.open.is_empty() || self.reserved > 0 {
            return;
        }
        let Some((segment, position)) = &mut self.active else { return };
        let place = CommitPlace {
            sequence: self.sequence,
            epoch: self.settings.epoch,
            segment: segment.number,
            position: *position,
            previous_checksum: self.previous_checksum,
        };
        let batch = std::mem::take(&mut self.open).close(place);
        *position += batch.header.bytes_on_disk();
        self.sequence = self.sequence.next();
        self.previous_checksum = batch.header.checksum;
        self.waiting.push_back(batch);
    }

    fn write_next(&mut self, out: &mut Vec<LogOutput>) {
        if self.flight.is_some() {
            return;
        }
        let Some(batch) = self.waiting.pop_front() else { return };
        let file = FileName::Segment(batch.header.segment);
        let position = u64::from(batch.header.block) * BLOCK_BYTES;
        let operation = self.operate(Effect::Write { file, position, parts: batch.parts.clone() }, out);
        self.flight = Some(Flight { batch, operation, is_syncing: false });
    }

    fn operate(&mut self, effect: Effect, out: &mut Vec<LogOutput>) -> OperationId {
        let operation = OperationId(self.next_operation);
        self.next_operation += 1;
        out.push(LogOutput::Do { operation, effect });
        operation
    }

    /// Takes the result of an operation; one that it does not wait for is ignored.
    pub fn completed(&mut self, operation: OperationId, completion: &Completion, out: &mut Vec<LogOutput>) {
        if self.poison.is_some() {
            return;
        }
        if let Some(flight) = self.flight.take_if(|flight| flight.operation == operation) {
            self.flight_completed(flight, completion, out);
        } else if self.preparer.waits_for(operation) {
            match self.preparer.completed(completion, out) {
                Ok(()) => self.prepare(out),
                Err(failure) => self.poison(failure, out),
            }
        }
    }

    fn flight_completed(&mut self, mut flight: Flight, completion: &Completion, out: &mut Vec<LogOutput>) {
        let header = flight.batch.header;
        let expected = if flight.is_syncing { 0 } else { header.bytes_on_disk() };
        if let Err(failure) = succeeded(completion, expected) {
            self.poison(failure, out);
            return;
        }
        if !flight.is_syncing {
            flight.is_syncing = true;
            flight.operation = self.operate(Effect::Sync { file: FileName::Segment(header.segment) }, out);
            self.flight = Some(flight);
            return;
        }
        self.durable = LogPosition {
            segment: header.segment,
            position: u64::from(header.block) * BLOCK_BYTES + header.bytes_on_disk(),
            next: header.sequence.next(),
            previous_checksum: header.checksum,
        };
        out.push(LogOutput::Durable(header.sequence));
        self.write_next(out);
    }

    fn poison(&mut self, failure: Failure, out: &mut Vec<LogOutput>) {
        self.poison = Some(failure);
        self.open = OpenBatch::default();
        self.reserved = 0;
        self.waiting.clear();
        self.flight = None;
        out.push(LogOutput::Poisoned(failure));
    }

    fn prepare(&mut self, out: &mut Vec<LogOutput>) {
        if self.poison.is_some() {
            return;
        }
        let in_use = usize::from(self.active.is_some());
        if let Some(effect) = self.preparer.next_effect(in_use) {
            let operation = self.operate(effect, out);
            self.preparer.started(operation);
        }
    }

    /// Tries again to make a segment after [`LogOutput::Full`]; call it now and then.
    pub fn try_again(&mut self, out: &mut Vec<LogOutput>) {
        self.preparer.try_again();
        self.prepare(out);
    }

    /// Gives up the log below `position`, which is that of the *older* valid checkpoint slot: its segments are recycled, and
    /// those that are held because of damage are set aside.
    pub fn release(&mut self, position: &LogPosition, out: &mut Vec<LogOutput>) {
        self.preparer.release(position.segment);
        self.prepare(out);
    }

    /// After the last durable batch: what a checkpoint of the durable state names as its position.
    #[must_use]
    pub fn durable_position(&self) -> LogPosition {
        self.durable
    }

    /// Segments that damage touched and that are still in their place, for the next checkpoint.
    #[must_use]
    pub fn held(&self) -> &BTreeSet<SegmentNumber> {
        &self.preparer.held
    }

    /// Whether the open batch holds nothing but progress of groups: then the end of the turn may be put off for a moment.
    #[must_use]
    pub fn holds_only_progress(&self) -> bool {
        self.open.holds_only_progress()
    }

    /// Whether a small message would find a segment now.
    #[must_use]
    pub fn has_room_for_records(&self) -> bool {
        let reserve = if self.fits_active(BLOCK_BYTES) { 2 } else { 3 };
        self.poison.is_none() && self.preparer.ready.len() >= reserve
    }

    /// Bytes that the allocated segments still take, the reserve included.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        let active = self.active.map_or(0, |(segment, position)| segment.bytes - position);
        active + self.preparer.ready.iter().map(|segment| segment.bytes - BLOCK_BYTES).sum::<u64>()
    }

    /// The commit batch of the last entry that was admitted.
    #[must_use]
    pub fn last_admitted(&self) -> Sequence {
        if self.open.is_empty() { Sequence(self.sequence.0.saturating_sub(1)) } else { self.sequence }
    }

    /// Whether a batch is being written or waits for that: what comes now gathers in the open one.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.flight.is_some() || !self.waiting.is_empty()
    }

    /// Whether something admitted is not durable yet.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.flight.is_some() || !self.waiting.is_empty() || !self.open.is_empty()
    }
}
