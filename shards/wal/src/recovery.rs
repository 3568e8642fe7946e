//! Opens a log: reads what a crash or a lying disk left, decides what counts. A state machine on the core that owns the shard.
//!
//! *Awaited* is the batch with the next sequence. *Whole* means that the checksum is right and the batch stands where it says, with
//! its segment's epoch. *Chaining* is drawn in `FORMAT.md`. Each case has one test in
//! `tests/log/cases.rs`.
//!
//! | case | what is found | what is done |
//! |---|---|---|
//! | A | zeros or stale bytes of a recycled segment, nothing chaining behind | the log ends here |
//! | B | the awaited batch, not whole, no sign of a later one behind: a torn tail | cut: the log ends before it, reported |
//! | C | no whole awaited batch, a chaining batch behind it in the segment | corruption: a hole, reported, the rest is replayed |
//! | D | no whole awaited batch, a chaining batch in a later segment, none missing between | as C |
//! | E | a segment is missing | reported; a hole if its sequences are missing too, the rest is replayed |
//! | F | a segment's header is damaged | reported; its batches count as far as they chain, the segment is held |
//! | G | a newer format of a segment, batch or entry | refused, nothing is changed |
//! | H | a segment of another shard | refused, nothing is changed |
//! | I | a batch whose sequence a later segment claims too, chaining to the same batch | the later one: a start had cut the earlier |
//! | J | a whole awaited batch with malformed entries | a hole of that batch, reported, the rest is replayed |
//! | K | a partition whose offsets do not go on, or behind a hole a topic that nobody made | quarantined: its entries are withheld, all its bytes are kept |
//! | L | a segment shorter than its header says | reported; then as B, C, D or A |
//! | M | the system cannot read | refused, nothing is changed |
//! | N | no checkpoint, and what is there is not a whole log: its first batch and segment are gone, or it has no batch beside other files | refused, nothing is changed |
//! | O | no whole awaited batch, and behind it a later one was begun that is not whole: the awaited one had been durable, as a write begins when the one before is synced | a hole up to the later one, which is cut |
//!
//! Nothing of a segment with a hole or with withheld entries is ever recycled: the writer sets it aside (`held`). What was read is
//! synced before the log is said to be open, because a batch that survived a killed process may not survive the next power loss.

mod replay;
mod tracker;
mod window;

use std::collections::BTreeSet;

use bytes::Bytes;
use ringmain_model::{Offset, PartitionRef, ShardId};

use crate::checkpoint::Checkpoint;
use crate::commit::CommitHeader;
use crate::effect::{Completion, Effect, Failure, FileName, OperationId};
use crate::entry::Entry;
use crate::header::HeaderDamage;
use crate::position::{BLOCK_BYTES, LogPosition, SegmentNumber, Sequence};
use crate::segment::SegmentHeader;
use crate::writer::Segment;
use tracker::Tracker;
use window::{Probe, Window};

/// What the opener says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenOutput {
    /// Do this and bring the result.
    Do {
        /// Comes back with the result.
        operation: OperationId,
        /// What to do.
        effect: Effect,
    },
    /// The next entry of the log, in order.
    Entry {
        /// Its batch.
        sequence: Sequence,
        /// The entry.
        entry: Entry,
    },
    /// Something that a person should know. Replay goes on.
    Finding(Finding),
    /// All was replayed; the writer goes on from here.
    Opened(Opened),
    /// The log cannot be opened, and nothing was changed. What was replayed does not count.
    Refused(OpenRefused),
}

/// Something wrong with the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The last batch is not whole and was cut: a torn tail, as a crash leaves it. Nothing tells it from damage to a last batch that
    /// was durable.
    Cut {
        /// The batch that was not whole.
        sequence: Sequence,
        /// Where it began.
        segment: SegmentNumber,
        /// Bytes from the start of the segment.
        position: u64,
    },
    /// Batches in the middle of the log are lost. Partitions that this touched and that are written to later are found to be
    /// quarantined; one without a later entry may have lost its end.
    Hole {
        /// The first batch that is lost.
        from: Sequence,
        /// The batch with which the log goes on, or would, were it whole: then a [`Finding::Cut`] of it follows.
        to: Sequence,
        /// Where the hole begins.
        segment: SegmentNumber,
        /// Bytes from the start of that segment.
        position: u64,
    },
    /// A segment is not there.
    SegmentMissing(SegmentNumber),
    /// A segment's header is damaged.
    SegmentHeaderDamaged(SegmentNumber),
    /// A segment is shorter than its header says.
    SegmentShort {
        /// Which.
        segment: SegmentNumber,
        /// Its size.
        bytes: u64,
    },
    /// A partition's records do not go on where they ended.
    Quarantined {
        /// Which.
        partition: PartitionRef,
        /// Where they ended; `None` for a topic that nobody made.
        awaited: Option<Offset>,
        /// Where they go on.
        found: Offset,
    },
}

/// Why a log cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenRefused {
    /// A newer program wrote it.
    #[error("log segment {0} was written by a newer program: start that one, nothing was changed")]
    Newer(SegmentNumber),
    /// It is another shard's.
    #[error("log segment {segment} belongs to shard {}: nothing was changed", .owner.0)]
    Foreign {
        /// The segment.
        segment: SegmentNumber,
        /// Its owner.
        owner: ShardId,
    },
    /// No checkpoint counts, and the log does not begin with its first batch: what lies before was in a checkpoint.
    #[error(
        "there is no checkpoint, neither slot A nor B, and the log does not begin with its first batch: put one back from a copy, or \
         what the log lacks; look at it with `ringmain inspect`; nothing was changed"
    )]
    NoCheckpoint,
    /// It could not be read, or what was read could not be synced.
    #[error("log segment {segment}: {failure}")]
    Failed {
        /// The segment.
        segment: SegmentNumber,
        /// Why.
        failure: Failure,
    },
}

/// What the writer needs to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// After the last batch that counts.
    pub position: LogPosition,
    /// Number of the next segment to be made.
    pub next_number: SegmentNumber,
    /// Segments that a checkpoint has to release, in order.
    pub used: Vec<Segment>,
    /// Segments in which nothing counts, to be recycled.
    pub spare: Vec<Segment>,
    /// Segments that damage touched.
    pub held: BTreeSet<SegmentNumber>,
}

/// A segment that was found.
#[derive(Debug)]
struct Found {
    number: SegmentNumber,
    /// Size of the file.
    bytes: u64,
    /// `None` when the header is damaged.
    epoch: Option<u64>,
    /// The batch at its start, if that is whole.
    first: Option<CommitHeader>,
    /// A batch began here that was not whole.
    has_torn: bool,
}

/// Where a batch was begun.
#[derive(Clone, Copy, Debug)]
struct Later {
    sequence: Sequence,
    index: usize,
    position: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    SurveyHeader(usize),
    SurveyFirst(usize),
    /// The awaited batch stands here, or the log does not go on here.
    Follow {
        index: usize,
        position: u64,
    },
    /// It does not: is there a batch behind that chains?
    Search {
        index: usize,
        position: u64,
        origin: (usize, u64),
    },
    Remove(usize),
    Sync,
    SyncDirectory,
    Over,
}

/// Reads a log from a checkpoint on.
#[derive(Debug)]
pub struct LogOpener {
    shard: ShardId,
    start: LogPosition,
    has_checkpoint: bool,
    /// There are files that come of records in the log, or of a checkpoint.
    has_remains: bool,
    segments: Vec<Found>,
    /// Files that a crash left half made.
    leftovers: Vec<SegmentNumber>,
    next_number: SegmentNumber,
    held: BTreeSet<SegmentNumber>,
    state: State,
    window: Window,
    /// What the awaited batch must be.
    awaited: Sequence,
    previous_checksum: u32,
    /// A later batch than the awaited one, not whole, that was met in the search for the latter.
    later: Option<Later>,
    /// Where the last batch that counts ended.
    end: Option<(usize, u64)>,
    tracker: Tracker,
    operation: Option<OperationId>,
    next_operation: u64,
}

impl LogOpener {
    /// An opener of the log made of `files` with their sizes, from `checkpoint` on, or from the start without one.
    #[must_use]
    pub fn new(shard: ShardId, checkpoint: Option<&Checkpoint>, files: &[(FileName, u64)]) -> Self {
        let start = checkpoint.map_or(LogPosition::START, |checkpoint| checkpoint.position);
        let (mut segments, mut leftovers, mut number_max) = (Vec::new(), Vec::new(), start.segment.0.saturating_sub(1));
        for (file, bytes) in files {
            let number = match file {
                FileName::Segment(number) => {
                    segments.push(Found { number: *number, bytes: *bytes, epoch: None, first: None, has_torn: false });
                    *number
                }
                FileName::Preparing(number) => {
                    leftovers.push(*number);
                    *number
                }
                FileName::Quarantined(number) => *number,
                FileName::Slot(_) | FileName::Topic(_) => continue,
            };
            number_max = number_max.max(number.0);
        }
        segments.sort_by_key(|segment| segment.number);
        Self {
            shard,
            start,
            segments,
            leftovers,
            next_number: SegmentNumber(number_max).next(),
            has_checkpoint: checkpoint.is_some(),
            has_remains: files.iter().any(|(file, _)| matches!(file, FileName::Quarantined(_) | FileName::Topic(_))),
            held: checkpoint.map(|checkpoint| checkpoint.held.iter().copied().collect()).unwrap_or_default(),
            state: State::SurveyHeader(0),
            window: Window::default(),
            awaited: start.next,
            previous_checksum: start.previous_checksum,
            later: None,
            end: None,
            tracker: Tracker::new(checkpoint),
            operation: None,
            next_operation: 0,
        }
    }

    /// Begins.
    pub fn start(&mut self, out: &mut Vec<OpenOutput>) {
        self.step(out);
    }

    /// Takes the result of an operation; one that it does not wait for is ignored.
    pub fn completed(&mut self, operation: OperationId, completion: &Completion, out: &mut Vec<OpenOutput>) {
        if self.operation != Some(operation) {
            return;
        }
        self.operation = None;
        match (self.state, completion) {
            (State::Remove(index), _) => {
                // One that cannot be removed is in nobody's way: its number is never used again.
                self.state = State::Remove(index + 1);
            }
            (State::Sync, Completion::Done) => self.state = State::SyncDirectory,
            (State::SyncDirectory, Completion::Done) => {
                self.state = State::Over;
                out.push(OpenOutput::Opened(self.opened()));
                return;
            }
            (_, Completion::Read(bytes)) => {
                if let Some(short_at) = self.window.fill(bytes) {
                    // The file ends earlier than it was said to.
                    let segment = &mut self.segments[self.window.index()];
                    segment.bytes = segment.bytes.min(short_at);
                }
            }
            (_, completion) => {
                let failure = match completion {
                    Completion::Failed(failure) => *failure,
                    _ => Failure::Short { written: 0 },
                };
                let segment = self.segment_at_hand();
                self.refuse(OpenRefused::Failed { segment, failure }, out);
                return;
            }
        }
        self.step(out);
    }

    /// Goes on until something has to be done with files.
    fn step(&mut self, out: &mut Vec<OpenOutput>) {
        while self.operation.is_none() && self.state != State::Over {
            match self.state {
                State::SurveyHeader(index) if index == self.segments.len() => self.begin_replay(out),
                State::SurveyHeader(index) => self.survey_header(index, out),
                State::SurveyFirst(index) => self.survey_first(index, out),
                State::Follow { index, position } => self.follow(index, position, out),
                State::Search { index, position, origin } => self.search(index, position, origin, out),
                State::Remove(index) => match self.leftovers.get(index) {
                    Some(number) => {
                        let file = FileName::Preparing(*number);
                        self.operate(Effect::Unlink { file }, out);
                    }
                    None => self.state = State::Sync,
                },
                State::Sync => match self.end {
                    Some((index, _)) => {
                        let file = FileName::Segment(self.segments[index].number);
                        self.operate(Effect::Sync { file }, out);
                    }
                    None => self.state = State::SyncDirectory,
                },
                State::SyncDirectory => self.operate(Effect::SyncDirectory, out),
                State::Over => {}
            }
        }
    }

    fn operate(&mut self, effect: Effect, out: &mut Vec<OpenOutput>) {
        let operation = OperationId(self.next_operation);
        self.next_operation += 1;
        self.operation = Some(operation);
        out.push(OpenOutput::Do { operation, effect });
    }

    /// Reads at least `bytes` at `position`, and more if there is more.
    fn read(&mut self, index: usize, position: u64, bytes: u64, out: &mut Vec<OpenOutput>) {
        let segment = &self.segments[index];
        let (position, bytes) = self.window.ask(index, position, bytes, segment.bytes);
        let file = FileName::Segment(segment.number);
        self.operate(Effect::Read { file, position, bytes }, out);
    }

    fn refuse(&mut self, refusal: OpenRefused, out: &mut Vec<OpenOutput>) {
        self.state = State::Over;
        out.push(OpenOutput::Refused(refusal));
    }

    fn segment_at_hand(&self) -> SegmentNumber {
        self.segments.get(self.window.index()).map_or(self.start.segment, |segment| segment.number)
    }

    /// The headers of all segments come first, so that a newer format is refused before anything else is said.
    fn survey_header(&mut self, index: usize, out: &mut Vec<OpenOutput>) {
        let Found { number, bytes, .. } = self.segments[index];
        let block: Bytes = if bytes < BLOCK_BYTES {
            Bytes::new()
        } else if let Some(block) = self.window.get(index, 0, BLOCK_BYTES) {
            block
        } else {
            self.read(index, 0, BLOCK_BYTES, out);
            return;
        };
        // What a released segment holds is of no account, but its version is.
        let counts = number >= self.start.segment;
        match SegmentHeader::decode(&block) {
            Err(HeaderDamage::Newer(_)) => return self.refuse(OpenRefused::Newer(number), out),
            Ok(header) if header.shard != self.shard => {
                return self.refuse(OpenRefused::Foreign { segment: number, owner: header.shard }, out);
            }
            Ok(header) if header.number == number => {
                let segment = &mut self.segments[index];
                segment.epoch = Some(header.epoch);
                if bytes < header.bytes && counts {
                    out.push(OpenOutput::Finding(Finding::SegmentShort { segment: number, bytes }));
                }
                segment.bytes = bytes.min(header.bytes);
            }
            _ => {
                self.held.insert(number);
                if counts {
                    out.push(OpenOutput::Finding(Finding::SegmentHeaderDamaged(number)));
                }
            }
        }
        self.state = if counts { State::SurveyFirst(index) } else { State::SurveyHeader(index + 1) };
    }

    fn survey_first(&mut self, index: usize, out: &mut Vec<OpenOutput>) {
        match self.probe(index, BLOCK_BYTES) {
            Probe::Need(bytes) => return self.read(index, BLOCK_BYTES, bytes, out),
            Probe::Newer => return self.refuse(OpenRefused::Newer(self.segments[index].number), out),
            Probe::Batch(header, _) => self.segments[index].first = Some(header),
            Probe::NotWhole(_) | Probe::Nothing => {}
        }
        self.state = State::SurveyHeader(index + 1);
    }

    /// Says what the writer needs.
    fn opened(&self) -> Opened {
        let last = self.end.map_or(self.start.segment, |(index, _)| self.segments[index].number);
        let position = match self.end {
            Some((index, position)) => LogPosition {
                segment: self.segments[index].number,
                position,
                next: self.awaited,
                previous_checksum: self.previous_checksum,
            },
            None => LogPosition { next: self.awaited, ..self.start },
        };
        let (mut used, mut spare) = (Vec::new(), Vec::new());
        for found in &self.segments {
            let is_usable = found.bytes.is_multiple_of(BLOCK_BYTES) && found.bytes >= 2 * BLOCK_BYTES;
            let segment = Segment { number: found.number, bytes: if is_usable { found.bytes } else { 0 } };
            let counts = found.number <= last || found.has_torn || self.held.contains(&found.number);
            // A torn batch is kept as long as the log around it, should a person want to see it.
            if counts { used.push(segment) } else { spare.push(segment) }
        }
        Opened { position, next_number: self.next_number, used, spare, held: self.held.clone() }
    }
}
