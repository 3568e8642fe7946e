//! Carries out the file effects of one core's shards on its ring, and keeps what came of them until the core asks. On that core.
//!
//! **Bounds.** Jobs are as many as the shards have in flight, and each of their state machines has a fixed number: one write of
//! the log, one step of the segment that is being made, one step of a checkpoint, one copy of a tail, and the reads that the
//! shard admits. So the queue needs no bound of its own. Memory is the pool's: a job that finds no buffer waits in the queue, and
//! those that write the log have buffers that no other job may take, so that a long read never holds a commit up.
//!
//! **Opening.** A job whose file is not open waits in the queue for the ring to open it; others go past it. What changes a name waits until
//! no open of that name is under way, and no open begins meanwhile. In what order jobs of one file run otherwise is their shards'
//! business, which ask for the next step when the last has ended.
//!
//! **One round trip for a commit.** A write of the log that fits one buffer asks the kernel to make it durable before it ends. If
//! it says that it is, the sync of the file that the log's writer asks for next is answered at once, because then everything
//! that was ever written to the file is durable: see [`Disk::is_durable`].

mod slices;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use hashbrown::HashMap;
use ringmain_uring::{
    BufferPool, Directory, Error as RingError, FileAccess, FileEvent, FileMode, FileOutcome, OpenedFile,
    OperationId as RingOperation, Refusal, Ring,
};
use ringmain_wal::{Completion, Effect, Failure, FileName, OperationId};
use slotmap::{SlotMap, new_key_type};

use super::blocking::failure_of;
use super::files::{FileKey, OpenFiles};
use super::job::{Reading, Slice, Writing};
use super::names::text_of;

/// What a file system says that cannot reserve room (EOPNOTSUPP), and what it says of a length that cannot be (EINVAL).
const NOT_SUPPORTED: i32 = 95;
const INVALID: i32 = 22;
/// What a file that was removed in the middle of a job is told as (ENOENT).
const NOT_FOUND: i32 = 2;

new_key_type! { struct JobKey; }

/// Sizes of a core's disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskSettings {
    /// Go past the page cache where the file system can.
    pub(crate) direct: bool,
    /// Files open at once.
    pub(crate) open_files_max: usize,
    /// Buffers, more than [`DiskSettings::log_buffers`].
    pub(crate) buffers: u16,
    /// Bytes of each.
    pub(crate) buffer_bytes: u32,
    /// Buffers that only writes of the log may take.
    pub(crate) log_buffers: usize,
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self { direct: true, open_files_max: 512, buffers: 16, buffer_bytes: 256 << 10, log_buffers: 4 }
    }
}

/// What came of an effect.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Done {
    /// Whose it was: the shard's place on this core.
    pub(crate) index: usize,
    pub(crate) operation: OperationId,
    pub(crate) completion: Completion,
}

#[derive(Debug)]
enum Task {
    Write(FileKey, Writing),
    Read(FileKey, Reading),
    Allocate(FileKey, u64),
    /// The file's room cannot be reserved here, so it gets its length alone.
    Lengthen(FileKey, u64),
    /// The file that could not be allocated is being removed.
    Undo(FileKey, Failure),
    /// How many writes the file had seen, if none was under way.
    Sync(FileKey, Option<u64>),
    SyncDirectory,
    Rename(FileKey, FileKey),
    Unlink(FileKey),
}

/// How far a job is from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It has not begun: the ring had no room, or its name is not free for it.
    Asked,
    /// Its file is being opened.
    Opening,
    /// It has its file, or its name.
    Ready,
}

#[derive(Debug)]
struct Job {
    index: usize,
    operation: OperationId,
    task: Task,
    stage: Stage,
}

impl Job {
    /// The file on which it works, open.
    fn file(&self) -> Option<FileKey> {
        match self.task {
            Task::Write(file, _) | Task::Read(file, _) | Task::Sync(file, _) | Task::Allocate(file, _) => Some(file),
            _ => None,
        }
    }

    /// The names that it changes.
    fn names(&self) -> [Option<FileKey>; 2] {
        match self.task {
            Task::Unlink(file) | Task::Undo(file, _) => [Some(file), None],
            Task::Rename(from, to) => [Some(from), Some(to).filter(|to| *to != from)],
            _ => [None, None],
        }
    }
}

/// How far a job got.
#[derive(PartialEq, Eq, Debug)]
enum Gone {
    /// All of it is with the kernel, or it has ended.
    All,
    /// It has as much in flight as one job may.
    Capped,
    /// It waits for its file or its name.
    Waits,
    /// It needs a buffer.
    NoBuffer,
    /// The ring takes no more operations.
    Full,
}

/// The files of one core.
#[derive(Debug)]
pub(crate) struct Disk {
    folders: Vec<PathBuf>,
    /// The same, open.
    directories: Vec<Directory>,
    settings: DiskSettings,
    pool: BufferPool,
    files: OpenFiles,
    jobs: SlotMap<JobKey, Job>,
    /// Jobs with something that the kernel has not got yet: writes of the log, then all others.
    waiting: [VecDeque<JobKey>; 2],
    awaited: HashMap<RingOperation, (JobKey, Slice)>,
    done: VecDeque<Done>,
}

impl Disk {
    /// Makes the disk of a core whose shards have these folders. All rings of the process should be there already.
    ///
    /// # Errors
    /// When there is no memory for buffers, or a folder cannot be opened.
    pub(crate) fn new(ring: &mut Ring, folders: Vec<PathBuf>, settings: DiskSettings) -> Result<Self, RingError> {
        let pool = ring.buffer_pool(settings.buffers, settings.buffer_bytes)?;
        tracing::debug!(registered = pool.registered(), "file buffers");
        let directories = folders.iter().map(|folder| ring.open_directory(folder)).collect::<Result<_, _>>()?;
        Ok(Self {
            folders,
            directories,
            settings,
            pool,
            files: OpenFiles::new(settings.open_files_max),
            jobs: SlotMap::with_key(),
            waiting: Default::default(),
            awaited: HashMap::new(),
            done: VecDeque::new(),
        })
    }

    /// The next result.
    pub(crate) fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    pub(crate) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Begins an effect of the shard at `index`; its result comes with [`Disk::take_done`], perhaps at once.
    pub(crate) fn start(&mut self, ring: &mut Ring, index: usize, operation: OperationId, effect: Effect) {
        let key = |name| FileKey { index, name };
        let mut is_log = false;
        let task = match effect {
            Effect::Write { file, position, parts } => {
                is_log = matches!(file, FileName::Segment(_));
                Task::Write(key(file), Writing::new(position, parts))
            }
            Effect::Read { file, position, bytes } => {
                Task::Read(key(file), Reading::new(position, bytes, self.settings.buffer_bytes as usize))
            }
            Effect::Allocate { file, bytes } => Task::Allocate(key(file), bytes),
            Effect::Sync { file } => Task::Sync(key(file), None),
            Effect::SyncDirectory => Task::SyncDirectory,
            Effect::Rename { from, to } => Task::Rename(key(from), key(to)),
            Effect::Unlink { file } => Task::Unlink(key(file)),
        };
        let job = self.jobs.insert(Job { index, operation, task, stage: Stage::Asked });
        self.waiting[usize::from(!is_log)].push_back(job);
        self.go_on(ring);
    }

    fn path(&self, key: FileKey) -> PathBuf {
        path_in(&self.folders, key)
    }

    /// Gets a job what it needs before its first step: its file, open, or its name for itself. [`Gone::Capped`] when it has that.
    fn prepare(&mut self, ring: &mut Ring, key: JobKey) -> Gone {
        let Some(job) = self.jobs.get(key) else { return Gone::All };
        let direct = self.settings.direct;
        if let Some(file) = job.file() {
            return match job.task {
                Task::Sync(..) if self.is_durable(file) => self.end_early(key, Completion::Done),
                Task::Allocate(..) if self.files.is_opening(file) || self.files.is_changing(file) => Gone::Waits,
                Task::Allocate(..) => {
                    // What had this name before is gone, whatever the table says.
                    self.files.forget(ring, file);
                    self.open(ring, key, file, FileMode { access: FileAccess::CreateNew, direct })
                }
                _ if self.files.get(file).is_some() => self.begin(ring, key, file),
                _ => self.open(ring, key, file, FileMode { access: FileAccess::ReadWrite, direct }),
            };
        }
        let names = job.names();
        if names.iter().flatten().any(|name| self.files.is_opening(*name) || self.files.is_changing(*name)) {
            return Gone::Waits;
        }
        if let Task::Unlink(file) | Task::Undo(file, _) = job.task {
            self.files.forget(ring, file);
        }
        names.into_iter().flatten().for_each(|name| self.files.change(name));
        if let Some(job) = self.jobs.get_mut(key) {
            job.stage = Stage::Ready;
        }
        Gone::Capped
    }

    /// Has a job wait for its file to be opened.
    fn open(&mut self, ring: &mut Ring, key: JobKey, file: FileKey, mode: FileMode) -> Gone {
        if !self.files.is_opening(file) {
            if self.files.is_changing(file) {
                return Gone::Waits;
            }
            match self.files.start_open(ring, file, &path_in(&self.folders, file), mode) {
                Ok(()) => {}
                Err(Refusal::Full) => return Gone::Full,
                Err(refusal) => return self.end_early(key, Completion::Failed(failure_of(&error_of(&refusal)))),
            }
        }
        if let Some(job) = self.jobs.get_mut(key) {
            job.stage = Stage::Opening;
        }
        Gone::Waits
    }

    /// The file of a job is open: from here on the job has it. [`Gone::Capped`] when there is something to be done with it.
    fn begin(&mut self, ring: &mut Ring, key: JobKey, file: FileKey) -> Gone {
        let Some(job) = self.jobs.get_mut(key) else { return Gone::All };
        let nothing_to_do = match &mut job.task {
            Task::Write(_, writing) if writing.is_handed() => Some(writing.completion()),
            Task::Read(_, reading) if reading.is_handed() => Some(reading.completion()),
            _ => None,
        };
        if let Some(completion) = nothing_to_do {
            return self.end_early(key, completion);
        }
        let facts = self.files.get(file).and_then(|known| ring.file_facts(known.id));
        if let Task::Write(_, writing) = &job.task
            && facts.is_some_and(|facts| facts.direct)
            && !writing.is_aligned()
        {
            // The shards write whole blocks; should one not, it is slower and not wrong.
            return self.open(ring, key, file, FileMode { access: FileAccess::ReadWrite, direct: false });
        }
        let Some(known) = self.files.hold(file) else { return Gone::Waits };
        match &mut job.task {
            Task::Write(_, writing) => {
                let is_log = matches!(file.name, FileName::Segment(_));
                writing.durable = is_log && writing.total() <= u64::from(self.settings.buffer_bytes);
                known.writes += 1;
                known.writing += 1;
                known.clean &= writing.durable;
            }
            Task::Sync(_, seen) => *seen = (known.writing == 0).then_some(known.writes),
            _ => {}
        }
        job.stage = Stage::Ready;
        Gone::Capped
    }

    /// An open has ended: those who waited for it have their file, or have failed.
    fn opened(&mut self, ring: &mut Ring, operation: RingOperation, outcome: io::Result<OpenedFile>) {
        let folders = &self.folders;
        let Some((file, outcome)) = self.files.opened(ring, operation, outcome, |key| path_in(folders, key)) else {
            return;
        };
        let waits = |job: &Job| job.stage == Stage::Opening && job.file() == Some(file);
        let waiting = self.waiting.iter().flatten().copied();
        let waiting: Vec<JobKey> = waiting.filter(|key| self.jobs.get(*key).is_some_and(waits)).collect();
        for key in waiting {
            // Whatever comes of it is seen when the queue is looked at next.
            let _ = match &outcome {
                Ok(()) => self.begin(ring, key, file),
                Err(error) => self.end_early(key, Completion::Failed(failure_of(error))),
            };
        }
    }

    /// Gives the kernel what there is room for.
    fn go_on(&mut self, ring: &mut Ring) {
        for class in 0..self.waiting.len() {
            let kept_back = if class == 0 { 0 } else { self.settings.log_buffers };
            let (mut at, mut no_buffer) = (0, false);
            while let Some(job) = self.waiting[class].get(at).copied() {
                match self.advance(ring, job, kept_back, no_buffer) {
                    Gone::All => drop(self.waiting[class].remove(at)),
                    Gone::Full => return,
                    Gone::Capped | Gone::Waits => at += 1,
                    Gone::NoBuffer => {
                        no_buffer = true;
                        at += 1;
                    }
                }
            }
        }
    }

    /// The next steps of one job.
    fn advance(&mut self, ring: &mut Ring, key: JobKey, kept_back: usize, no_buffer: bool) -> Gone {
        if self.jobs.get(key).is_some_and(|job| job.stage == Stage::Asked) {
            let prepared = self.prepare(ring, key);
            if prepared != Gone::Capped {
                return prepared;
            }
        }
        let Some(job) = self.jobs.get(key) else { return Gone::All };
        match job.task {
            _ if job.stage != Stage::Ready => Gone::Waits,
            // What needs no buffer goes past what waits for one.
            Task::Write(..) | Task::Read(..) if no_buffer => Gone::NoBuffer,
            _ => self.push(ring, key, kept_back),
        }
    }

    fn push(&mut self, ring: &mut Ring, key: JobKey, kept_back: usize) -> Gone {
        let Some(job) = self.jobs.get(key) else { return Gone::All };
        let path = |key: FileKey| self.path(key);
        let file = |key: FileKey| self.files.get(key).map(|known| known.id).ok_or(Refusal::UnknownFile);
        let started = match &job.task {
            Task::Write(..) | Task::Read(..) => return self.push_slices(ring, key, kept_back),
            Task::Allocate(key, bytes) => file(*key).and_then(|id| ring.allocate(id, *bytes)),
            Task::Lengthen(key, bytes) => file(*key).and_then(|id| ring.set_length(id, *bytes)),
            Task::Sync(key, _) => file(*key).and_then(|id| ring.sync(id)),
            Task::SyncDirectory => match self.directories.get(job.index) {
                Some(directory) => ring.sync_directory(directory),
                None => Err(Refusal::UnknownFile),
            },
            Task::Rename(from, to) => ring.rename(&path(*from), &path(*to)),
            Task::Unlink(key) | Task::Undo(key, _) => ring.unlink(&path(*key)),
        };
        match started {
            Ok(operation) => {
                self.awaited.insert(operation, (key, Slice { number: 0, position: 0, length: 0 }));
                Gone::All
            }
            Err(Refusal::Full) => Gone::Full,
            Err(refusal) => {
                let error = error_of(&refusal);
                self.finished(ring, key, Err(error));
                Gone::All
            }
        }
    }

    /// Takes the end of an operation of the ring.
    pub(crate) fn complete(&mut self, ring: &mut Ring, event: FileEvent) {
        let FileEvent { operation, outcome } = event;
        if let FileOutcome::Opened(outcome) = outcome {
            self.opened(ring, operation, outcome);
        } else if let Some((key, slice)) = self.awaited.remove(&operation) {
            match outcome {
                FileOutcome::Written { buffer, written_bytes, synced, error } => {
                    let outcome = error.map_or(Ok(()), Err);
                    self.written(ring, key, slice, buffer, (written_bytes, synced, outcome));
                }
                FileOutcome::Read { buffer, read_bytes, error } => {
                    let outcome = error.map_or(Ok(read_bytes), Err);
                    self.read(ring, key, slice, buffer, outcome);
                }
                FileOutcome::Finished(outcome) => self.finished(ring, key, outcome),
                FileOutcome::Opened(_) => {}
            }
        }
        // The end of a close is awaited by nobody, and makes room all the same.
        self.go_on(ring);
    }

    /// Something that is no write and no read has ended, or could not begin.
    fn finished(&mut self, ring: &mut Ring, key: JobKey, outcome: io::Result<()>) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        job.names().into_iter().flatten().for_each(|name| self.files.changed(name));
        let completion =
            outcome.as_ref().map_or_else(|error| Completion::Failed(failure_of(error)), |()| Completion::Done);
        match job.task {
            Task::Sync(file, seen) => {
                if let Some(known) = self.files.get_mut(file) {
                    // What was written while the sync ran may not be in it.
                    known.clean = outcome.is_ok() && seen == Some(known.writes);
                }
                self.end(key, Some(file), completion);
            }
            Task::Allocate(file, bytes) | Task::Lengthen(file, bytes) => match outcome {
                Ok(()) => self.end(key, Some(file), Completion::Done),
                Err(error) => self.allocate_failed(ring, key, file, bytes, &error),
            },
            Task::Rename(from, to) => {
                if outcome.is_ok() {
                    self.files.rename(ring, from, to);
                }
                self.end(key, None, completion);
            }
            Task::Undo(_, failure) => {
                if let Err(error) = outcome {
                    tracing::warn!(%error, "a file without room for it could not be removed");
                }
                self.end(key, None, Completion::Failed(failure));
            }
            _ => self.end(key, None, completion),
        }
    }

    /// There is no room for a file: it goes again before anybody hears of that.
    fn allocate_failed(&mut self, ring: &mut Ring, key: JobKey, file: FileKey, bytes: u64, error: &io::Error) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        if error.raw_os_error() == Some(NOT_SUPPORTED) && matches!(job.task, Task::Allocate(..)) {
            // A file system that cannot reserve: the length at least is there, and a write may find no room.
            job.task = Task::Lengthen(file, bytes);
        } else {
            job.task = Task::Undo(file, failure_of(error));
            job.stage = Stage::Asked;
            self.files.forget(ring, file);
        }
        self.waiting[1].push_back(key);
    }

    fn end(&mut self, key: JobKey, file: Option<FileKey>, completion: Completion) {
        if let Some(file) = file {
            self.files.release(file);
        }
        if let Some(Job { index, operation, .. }) = self.jobs.remove(key) {
            self.done.push_back(Done { index, operation, completion });
        }
    }

    /// Ends a job that has no file.
    fn end_early(&mut self, key: JobKey, completion: Completion) -> Gone {
        self.end(key, None, completion);
        Gone::All
    }

    /// Whether everything that was ever written to a file is known to be durable: a sync that it had covered all writes that
    /// ended before it began and none ran beside it, and every write since was durable when it ended. Then a sync has nothing to
    /// do. Of a file that was just opened nothing is known.
    pub(super) fn is_durable(&self, file: FileKey) -> bool {
        self.files.get(file).is_some_and(|known| known.clean && known.writing == 0)
    }

    #[cfg(test)]
    pub(super) fn open_files(&self) -> usize {
        self.files.len()
    }
}

/// Where a file is.
fn path_in(folders: &[PathBuf], key: FileKey) -> PathBuf {
    folders.get(key.index).map(|folder| folder.join(text_of(key.name))).unwrap_or_default()
}

/// What a refusal of the ring means. None of them is expected.
fn error_of(refusal: &Refusal) -> io::Error {
    match refusal {
        Refusal::UnknownFile => io::Error::from_raw_os_error(NOT_FOUND),
        _ => io::Error::from_raw_os_error(INVALID),
    }
}
