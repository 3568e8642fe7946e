//! Moves records out of the log into the topic segments of their partitions. A state machine on the core that owns the shard.

use std::collections::VecDeque;

use bytes::Bytes;
use ringmain_model::ShardId;

use crate::effect::{Completion, Effect, Failure, FileName, OperationId, TopicFile, succeeded};
use crate::topic::plan::{FilePlan, Piece, plan};
use crate::topic::{PartitionSegments, StoreJob, TOPIC_WRITE_BYTES_MAX};

/// What the system answers when a file to be made is there.
const ALREADY_THERE: Failure = Failure::System(17);

/// What the writer of topic segments says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SegmentsOutput {
    /// Do this and bring the result.
    Do {
        /// Comes back with the result.
        operation: OperationId,
        /// What to do.
        effect: Effect,
    },
    /// A partition's last segment cannot be written to: nothing of that job is stored, the others go on. What is in the file counts as
    /// before; the same job goes through with a new file, after [`TopicSegment::give_up`].
    GivenUp {
        /// The file.
        file: TopicFile,
        /// What the system said.
        failure: Failure,
    },
    /// All jobs but those that were given up are done and durable, and a slot may name this: for each job, in order, the segments that are new or changed. The
    /// first takes the place of the job's last segment when it has the same base.
    Stored(Vec<PartitionSegments>),
    /// Nothing was stored; the same jobs may be tried again later. What was written on the way is in nobody's way.
    Failed(Failure),
    /// What is on the disk is not known any more: nothing is stored until the next start.
    Poisoned(Failure),
}

/// What is being done to the file in front, or to all files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Allocate {
        bytes: u64,
        /// A file of that name was there and is gone.
        is_again: bool,
    },
    /// Removes what a checkpoint left that came to no end: no slot names it.
    Unlink {
        bytes: u64,
    },
    Write {
        bytes: u64,
    },
    Sync {
        index: usize,
    },
    SyncDirectory,
}

#[derive(Debug)]
struct Run {
    /// Still to be written.
    files: VecDeque<FilePlan>,
    /// Parts of a piece that is larger than one write.
    rest: VecDeque<Bytes>,
    touched: Vec<FileName>,
    has_created: bool,
    stored: Vec<PartitionSegments>,
    step: Step,
    operation: OperationId,
}

/// Does the jobs of one checkpoint at a time, one effect after another.
#[derive(Debug)]
pub struct SegmentsWriter {
    shard: ShardId,
    run: Option<Run>,
    next_operation: u64,
    is_poisoned: bool,
}

impl SegmentsWriter {
    /// A writer that has nothing to do.
    #[must_use]
    pub fn new(shard: ShardId) -> Self {
        Self { shard, run: None, next_operation: 0, is_poisoned: false }
    }

    /// Whether jobs can begin.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.run.is_none() && !self.is_poisoned
    }

    /// Whether a result of that operation is awaited.
    #[must_use]
    pub fn waits_for(&self, operation: OperationId) -> bool {
        self.run.as_ref().is_some_and(|run| run.operation == operation)
    }

    /// Begins `jobs`, at most one for a partition, at `now_us`, microseconds since the Unix epoch; says whether it did, which it
    /// does not while others are being done or after poison.
    ///
    /// Files whose names the jobs' new segments get are thrown away if they are there: no valid slot may name one.
    ///
    /// # Panics
    /// When the batches of a job are not its partition's, out of order, or begin before its last segment ends.
    pub fn begin(&mut self, jobs: Vec<StoreJob>, now_us: i64, out: &mut Vec<SegmentsOutput>) -> bool {
        if !self.is_ready() {
            return false;
        }
        let mut files = VecDeque::new();
        let stored = jobs.into_iter().map(|job| plan(self.shard, job, now_us, &mut files)).collect();
        let run = Run {
            files,
            rest: VecDeque::new(),
            touched: Vec::new(),
            has_created: false,
            stored,
            step: Step::SyncDirectory,
            operation: OperationId(0),
        };
        self.next_file(run, out);
        true
    }

    /// Takes the result of an operation; one that it does not wait for is ignored.
    pub fn completed(&mut self, operation: OperationId, completion: &Completion, out: &mut Vec<SegmentsOutput>) {
        let Some(mut run) = self.run.take_if(|run| run.operation == operation) else { return };
        let written = match run.step {
            Step::Write { bytes } => bytes,
            _ => 0,
        };
        match (run.step, succeeded(completion, written)) {
            (Step::Allocate { bytes, is_again: false }, Err(ALREADY_THERE)) => {
                let Some(file) = run.files.front().map(|plan| plan.file) else { return };
                self.perform(run, Step::Unlink { bytes }, Effect::Unlink { file }, out);
            }
            (Step::Sync { .. } | Step::SyncDirectory, Err(failure)) => {
                self.is_poisoned = true;
                out.push(SegmentsOutput::Poisoned(failure));
            }
            (Step::Write { .. }, Err(failure)) if failure.is_of_the_file() => self.write_failed(run, failure, out),
            (_, Err(failure)) => out.push(SegmentsOutput::Failed(failure)),
            (Step::Unlink { bytes }, Ok(())) => self.allocate(run, bytes, true, out),
            (Step::Allocate { .. }, Ok(())) => {
                run.has_created = true;
                self.write(run, out);
            }
            (Step::Write { .. }, Ok(())) => self.write(run, out),
            (Step::Sync { index }, Ok(())) => self.sync(run, index + 1, out),
            (Step::SyncDirectory, Ok(())) => out.push(SegmentsOutput::Stored(run.stored)),
        }
    }

    fn perform(&mut self, mut run: Run, step: Step, effect: Effect, out: &mut Vec<SegmentsOutput>) {
        let operation = OperationId(self.next_operation);
        self.next_operation += 1;
        out.push(SegmentsOutput::Do { operation, effect });
        (run.step, run.operation) = (step, operation);
        self.run = Some(run);
    }

    fn next_file(&mut self, run: Run, out: &mut Vec<SegmentsOutput>) {
        match run.files.front().map(|plan| plan.allocate) {
            Some(Some(bytes)) => self.allocate(run, bytes, false, out),
            Some(None) => self.write(run, out),
            None => self.sync(run, 0, out),
        }
    }

    fn allocate(&mut self, run: Run, bytes: u64, is_again: bool, out: &mut Vec<SegmentsOutput>) {
        let Some(file) = run.files.front().map(|plan| plan.file) else { return };
        self.perform(run, Step::Allocate { bytes, is_again }, Effect::Allocate { file, bytes }, out);
    }

    /// Writes what comes next in the file in front, or goes on with the next file.
    fn write(&mut self, mut run: Run, out: &mut Vec<SegmentsOutput>) {
        let Some(plan) = run.files.front_mut() else { return };
        let parts = next_write(plan, &mut run.rest);
        let (file, position) = (plan.file, plan.position);
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        plan.position += bytes;
        if bytes > 0 {
            self.perform(run, Step::Write { bytes }, Effect::Write { file, position, parts }, out);
            return;
        }
        run.files.pop_front();
        run.touched.push(file);
        self.next_file(run, out);
    }

    /// A file that was there before is in nobody's way: its partition's job is left out. One that was just made tells of more.
    fn write_failed(&mut self, mut run: Run, failure: Failure, out: &mut Vec<SegmentsOutput>) {
        let appended = run.files.front().filter(|plan| plan.allocate.is_none());
        let Some(FileName::Topic(file)) = appended.map(|plan| plan.file) else {
            return out.push(SegmentsOutput::Failed(failure));
        };
        run.rest.clear();
        run.files.retain(|plan| plan.partition != file.partition);
        run.stored.retain(|stored| stored.partition != file.partition);
        out.push(SegmentsOutput::GivenUp { file, failure });
        self.next_file(run, out);
    }

    fn sync(&mut self, run: Run, index: usize, out: &mut Vec<SegmentsOutput>) {
        if let Some(file) = run.touched.get(index).copied() {
            self.perform(run, Step::Sync { index }, Effect::Sync { file }, out);
        } else if run.has_created {
            self.perform(run, Step::SyncDirectory, Effect::SyncDirectory, out);
        } else {
            out.push(SegmentsOutput::Stored(run.stored));
        }
    }
}

/// As many whole pieces as go into one write; of a piece that is too large for one, the next part. Nothing at the end of the file.
fn next_write(plan: &mut FilePlan, rest: &mut VecDeque<Bytes>) -> Vec<Bytes> {
    let (mut parts, mut bytes) = (Vec::new(), 0);
    while rest.is_empty() {
        let fits = |piece: &Piece| bytes == 0 || bytes + piece.bytes() <= TOPIC_WRITE_BYTES_MAX;
        if !plan.pieces.front().is_some_and(fits) {
            break;
        }
        let Some(piece) = plan.pieces.pop_front() else { break };
        bytes += piece.bytes();
        let is_large = bytes > TOPIC_WRITE_BYTES_MAX;
        let mut made = Vec::new();
        piece.put(plan.partition, &mut made);
        if is_large { rest.extend(made) } else { parts.extend(made) }
    }
    if !parts.is_empty() {
        return parts;
    }
    let mut room = TOPIC_WRITE_BYTES_MAX;
    while let Some(mut part) = rest.pop_front() {
        let taken = usize::try_from(room).unwrap_or(usize::MAX).min(part.len());
        room -= taken as u64;
        let left = part.split_off(taken);
        parts.push(part);
        if !left.is_empty() {
            rest.push_front(left);
        }
        if room == 0 {
            break;
        }
    }
    parts
}
