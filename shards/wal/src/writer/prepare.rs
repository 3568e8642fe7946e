//! Segments ahead of need: made, recycled, set aside, one step at a time. Decisions of the log's writer, on its core.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use crate::effect::{Completion, Effect, Failure, FileName, OperationId, succeeded};
use crate::fields::push_zeros;
use crate::position::{BLOCK_BYTES, SegmentNumber, whole_blocks};
use crate::recovery::Opened;
use crate::segment::SegmentHeader;
use crate::writer::{LogOutput, LogSettings, NotAdmitted, Segment};

/// What the system answers when there is no file of that name.
const NOT_THERE: Failure = Failure::System(2);

/// The steps of making a segment; an old one begins at `TakeName`, a new one at `Allocate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Allocate,
    Fill {
        from: u64,
    },
    TakeName {
        old: Segment,
    },
    SyncTaken,
    Header,
    Sync,
    GiveName,
    SyncGiven,
    /// Something went wrong: away with it.
    Discard,
    /// An old segment is too small to be of use.
    Drop {
        old: Segment,
    },
    /// An old segment that damage touched.
    SetAside {
        old: Segment,
    },
    SyncSetAside,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    /// What is being made.
    segment: Segment,
    step: Step,
    operation: Option<OperationId>,
    /// It is made beside enough others, which are too small for an entry that was to be admitted.
    is_beside: bool,
}

/// Makes segments and takes them back.
#[derive(Debug)]
pub(super) struct Preparer {
    settings: LogSettings,
    /// Made and not used yet, in order.
    pub(super) ready: VecDeque<Segment>,
    /// Full, and needed until a checkpoint releases them, in order.
    pub(super) used: VecDeque<Segment>,
    /// Released: to be recycled, dropped or set aside.
    free: VecDeque<Segment>,
    pub(super) held: BTreeSet<SegmentNumber>,
    job: Option<Job>,
    next_number: SegmentNumber,
    /// Size of the next new segment.
    bytes: u64,
    /// Bytes of a segment that an entry needed and that not enough of those ahead have; 0 for none.
    wanted: u64,
    /// There was no room for a segment of so many bytes, and nobody was told yet.
    too_large: Option<u64>,
    /// The last try failed and the next one has not succeeded yet.
    is_full: bool,
    /// Nothing is tried until somebody says so.
    is_paused: bool,
}

impl Preparer {
    pub(super) fn new(settings: LogSettings, opened: Opened) -> Self {
        Self {
            settings,
            ready: VecDeque::new(),
            used: opened.used.into(),
            free: opened.spare.into(),
            held: opened.held,
            job: None,
            next_number: opened.next_number,
            // Small again, so that a start has room soon; what is larger and spare is used all the same.
            bytes: settings.segment_bytes_first,
            wanted: 0,
            too_large: None,
            is_full: false,
            is_paused: false,
        }
    }

    pub(super) fn waits_for(&self, operation: OperationId) -> bool {
        self.job.is_some_and(|job| job.operation == Some(operation))
    }

    pub(super) fn started(&mut self, operation: OperationId) {
        if let Some(job) = &mut self.job {
            job.operation = Some(operation);
        }
    }

    /// A segment was taken into use: the next new one is larger.
    pub(super) fn rolled(&mut self) {
        self.bytes = (self.bytes * 2).min(self.settings.segment_bytes_max);
    }

    /// An entry needs a segment of `bytes`, which the next one that is ready has not: larger ones are made beside those that are
    /// there, and small ones make way only when they are. So a disk that has no room for them keeps what smaller entries and the
    /// reserve need. Says what the entry is answered meanwhile.
    pub(super) fn want(&mut self, bytes: u64) -> NotAdmitted {
        if self.is_full && self.ready.len() < self.settings.segments_ahead {
            return NotAdmitted::Full;
        }
        if let Some(least) = self.too_large
            && bytes >= least
        {
            // The next such entry has it tried again.
            self.too_large = None;
            return NotAdmitted::NoRoomForSize;
        }
        self.wanted = self.wanted.max(bytes);
        if self.ready.len() > self.settings.segments_ahead
            && let Some(small) = self.ready.pop_front()
        {
            self.free.push_back(small);
        }
        NotAdmitted::Busy
    }

    /// The size of a segment that is to be made beside those ahead, if they are enough but too small.
    fn larger(&mut self) -> Option<u64> {
        let large = self.ready.iter().filter(|segment| segment.bytes >= self.wanted).count();
        if large >= self.settings.segments_ahead {
            self.wanted = 0;
        }
        let mut bytes = self.bytes;
        while bytes < self.wanted {
            bytes = (bytes * 2).min(self.settings.segment_bytes_max);
        }
        (self.wanted > 0 && self.ready.len() <= self.settings.segments_ahead).then_some(bytes)
    }

    pub(super) fn why_no_room(&self) -> NotAdmitted {
        if self.is_full { NotAdmitted::Full } else { NotAdmitted::Busy }
    }

    pub(super) fn try_again(&mut self) {
        self.is_paused = false;
    }

    pub(super) fn release(&mut self, below: SegmentNumber) {
        let count = self.used.iter().take_while(|segment| segment.number < below).count();
        if count > 0 {
            self.free.extend(self.used.drain(..count));
            // A recycled segment needs no new room, so this is worth a try.
            (self.is_paused, self.too_large) = (false, None);
        }
    }

    /// What to do next, if nothing is being done and something is worth doing.
    pub(super) fn next_effect(&mut self, segments_active: usize) -> Option<Effect> {
        if self.job.is_some_and(|job| job.operation.is_some()) {
            return None;
        }
        if self.job.is_none() {
            self.job = self.next_job(segments_active);
        }
        self.job.as_ref().map(|job| self.effect_of(job))
    }

    fn next_job(&mut self, segments_active: usize) -> Option<Job> {
        if self.is_paused {
            return None;
        }
        let of = |segment, step| Some(Job { segment, step, operation: None, is_beside: false });
        if let Some(at) = self.free.iter().position(|segment| self.held.contains(&segment.number)) {
            let old = self.free.remove(at)?;
            return of(old, Step::SetAside { old });
        }
        if let Some(at) = self.free.iter().position(|segment| segment.bytes < self.bytes) {
            let old = self.free.remove(at)?;
            return of(old, Step::Drop { old });
        }
        let in_all = self.ready.len() + self.used.len() + segments_active;
        // Without the reserves a checkpoint could not write what it has to, and nothing would ever be released.
        let is_enough = in_all >= self.settings.segments_max && self.ready.len() >= 2;
        if is_enough {
            return None;
        }
        let is_beside = self.ready.len() >= self.settings.segments_ahead;
        let bytes = if is_beside { self.larger()? } else { self.bytes };
        let number = self.next_number;
        self.next_number = number.next();
        let large = self.free.iter().position(|segment| segment.bytes >= bytes);
        let (segment, step) = match large.and_then(|at| self.free.remove(at)) {
            Some(old) => (Segment { number, bytes: old.bytes }, Step::TakeName { old }),
            None => (Segment { number, bytes }, Step::Allocate),
        };
        Some(Job { segment, step, operation: None, is_beside })
    }

    fn effect_of(&self, job: &Job) -> Effect {
        let Segment { number, bytes } = job.segment;
        let file = FileName::Preparing(number);
        match job.step {
            Step::Allocate => Effect::Allocate { file, bytes },
            Step::Fill { from } => {
                let mut parts = Vec::new();
                push_zeros(&mut parts, usize::try_from(self.fill_end(bytes, from) - from).unwrap_or(0));
                Effect::Write { file, position: from, parts }
            }
            Step::TakeName { old } => Effect::Rename { from: FileName::Segment(old.number), to: file },
            Step::SyncTaken | Step::SyncGiven | Step::SyncSetAside => Effect::SyncDirectory,
            Step::Header => {
                let (epoch, shard) = (self.settings.epoch, self.settings.shard);
                let header = SegmentHeader { number, epoch, bytes, shard };
                Effect::Write { file, position: 0, parts: vec![Bytes::from(header.encode())] }
            }
            Step::Sync => Effect::Sync { file },
            Step::GiveName => Effect::Rename { from: file, to: FileName::Segment(number) },
            Step::Discard => Effect::Unlink { file },
            Step::Drop { old } => Effect::Unlink { file: FileName::Segment(old.number) },
            Step::SetAside { old } => {
                let (from, to) = (FileName::Segment(old.number), FileName::Quarantined(old.number));
                Effect::Rename { from, to }
            }
        }
    }

    fn fill_end(&self, bytes: u64, from: u64) -> u64 {
        bytes.min(from + self.settings.fill_bytes)
    }

    /// Takes the result of what is being done.
    ///
    /// # Errors
    /// The failure, when names in the directory are not known any more: that poisons the log.
    pub(super) fn completed(&mut self, completion: &Completion, out: &mut Vec<LogOutput>) -> Result<(), Failure> {
        let Some(mut job) = self.job.take() else { return Ok(()) };
        let expected = match job.step {
            Step::Fill { from } => self.fill_end(job.segment.bytes, from) - from,
            Step::Header => BLOCK_BYTES,
            _ => 0,
        };
        if let Err(failure) = succeeded(completion, expected) {
            return self.failed(job, failure, out);
        }
        job.operation = None;
        job.step = match job.step {
            Step::Allocate => Step::Fill { from: 0 },
            Step::Fill { from } if from + expected < job.segment.bytes => Step::Fill { from: from + expected },
            Step::TakeName { .. } => Step::SyncTaken,
            Step::Fill { .. } | Step::SyncTaken => Step::Header,
            Step::Header => Step::Sync,
            Step::Sync => Step::GiveName,
            Step::GiveName => Step::SyncGiven,
            Step::SyncGiven => {
                self.ready.push_back(job.segment);
                self.too_large = None;
                self.bytes = if job.is_beside { self.bytes.max(job.segment.bytes) } else { self.bytes };
                if std::mem::take(&mut self.is_full) {
                    out.push(LogOutput::Room);
                }
                return Ok(());
            }
            Step::SetAside { old } => {
                self.held.remove(&old.number);
                Step::SyncSetAside
            }
            Step::Discard | Step::Drop { .. } | Step::SyncSetAside => return Ok(()),
        };
        self.job = Some(job);
        Ok(())
    }

    fn failed(&mut self, mut job: Job, failure: Failure, out: &mut Vec<LogOutput>) -> Result<(), Failure> {
        match job.step {
            Step::SyncTaken | Step::SyncGiven | Step::SyncSetAside => return Err(failure),
            // A name that is not there was taken after all, when an earlier try was said to have failed.
            Step::TakeName { .. } | Step::Drop { .. } | Step::SetAside { .. } if failure == NOT_THERE => return Ok(()),
            // The file is where it was and nothing depends on it.
            Step::TakeName { old } | Step::Drop { old } | Step::SetAside { old } => self.free.push_back(old),
            Step::Allocate | Step::Fill { .. } | Step::Header | Step::Sync | Step::GiveName | Step::Discard => {
                job.operation = None;
                let is_second_try = job.step == Step::Discard;
                job.step = Step::Discard;
                // A file that cannot be removed is left for the next start, which throws it away. One that was never
                // made is not there to be removed.
                self.job = (!is_second_try).then_some(job);
            }
        }
        if job.is_beside {
            // Nothing that is there depends on it. Whether what is left of it can be removed says nothing more.
            let wanted = std::mem::take(&mut self.wanted);
            self.too_large = (wanted > 0).then_some(wanted).or(self.too_large);
            return Ok(());
        }
        self.is_paused = true;
        // A smaller segment may still fit, and one that needs no room is better than none.
        self.bytes = whole_blocks(self.bytes / 2).max(self.settings.segment_bytes_first);
        if !std::mem::replace(&mut self.is_full, true) {
            out.push(LogOutput::Full(failure));
        }
        Ok(())
    }
}
