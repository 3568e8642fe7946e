//! Carries out the file effects of one core's shards on its ring, and keeps what came of them until the core asks. On that core.
//!
//! **Bounds.** Jobs are as many as the shards have in flight, and each of their state machines has a fixed number: one write of
//! the log, one step of the segment that is being made, one step of a checkpoint, one copy of a tail, and the reads that the
//! shard admits. So the queue needs no bound of its own. Memory is the pool's: a job that finds no buffer waits in the queue, and
//! those that write the log have buffers that no other job may take, so that a long read never holds a commit up.
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
    BufferPool, Error as RingError, FileEvent, FileOutcome, OperationId as RingOperation, Refusal, Ring,
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
    /// The file that could not be allocated is being removed.
    Undo(Failure),
    /// How many writes the file had seen, if none was under way.
    Sync(FileKey, Option<u64>),
    SyncDirectory,
    Rename(FileKey, FileKey),
    Unlink(FileKey),
}

#[derive(Debug)]
struct Job {
    index: usize,
    operation: OperationId,
    task: Task,
}

/// How far a job got.
#[derive(PartialEq, Eq, Debug)]
enum Gone {
    /// All of it is with the kernel, or it has ended.
    All,
    /// It has as much in flight as one job may.
    Capped,
    /// It needs a buffer.
    NoBuffer,
    /// The ring takes no more operations.
    Full,
}

/// The files of one core.
#[derive(Debug)]
pub(crate) struct Disk {
    folders: Vec<PathBuf>,
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
    /// When there is no memory for buffers.
    pub(crate) fn new(ring: &mut Ring, folders: Vec<PathBuf>, settings: DiskSettings) -> Result<Self, RingError> {
        let pool = ring.buffer_pool(settings.buffers, settings.buffer_bytes)?;
        tracing::debug!(registered = pool.registered(), "file buffers");
        Ok(Self {
            folders,
            settings,
            pool,
            files: OpenFiles::new(settings.open_files_max, settings.direct),
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
        let mut job = Job { index, operation, task };
        match self.prepare(ring, &mut job) {
            Ok(Some(completion)) => self.done.push_back(Done { index, operation, completion }),
            Ok(None) => {
                let job = self.jobs.insert(job);
                self.waiting[usize::from(!is_log)].push_back(job);
                self.go_on(ring);
            }
            Err(error) => {
                let completion = Completion::Failed(failure_of(&error));
                self.done.push_back(Done { index, operation, completion });
            }
        }
    }

    /// Opens what a job needs. Gives what came of it if nothing needs to be done.
    fn prepare(&mut self, ring: &mut Ring, job: &mut Job) -> io::Result<Option<Completion>> {
        let path = |key: FileKey| self.folders[key.index].join(text_of(key.name));
        match &mut job.task {
            Task::Write(key, writing) => {
                let known = self.files.hold(ring, *key, || path(*key))?;
                if writing.is_handed() {
                    self.files.release(*key);
                    return Ok(Some(writing.completion()));
                }
                let direct = ring.file_facts(known.id).is_some_and(|facts| facts.direct);
                if direct && !writing.is_aligned() {
                    // The shards write whole blocks; should one not, it is slower and not wrong.
                    if let Err(error) = self.files.reopen_buffered(ring, *key, &path(*key)) {
                        self.files.release(*key);
                        return Err(error);
                    }
                }
                let is_log = matches!(key.name, FileName::Segment(_));
                writing.durable = is_log && writing.total() <= u64::from(self.settings.buffer_bytes);
                if let Some(known) = self.files.get_mut(*key) {
                    known.writes += 1;
                    known.writing += 1;
                    known.clean &= writing.durable;
                }
            }
            Task::Read(key, reading) => {
                self.files.hold(ring, *key, || path(*key))?;
                if reading.is_handed() {
                    self.files.release(*key);
                    return Ok(Some(reading.completion()));
                }
            }
            Task::Sync(key, _) if self.is_durable(*key) => return Ok(Some(Completion::Done)),
            Task::Sync(key, seen) => {
                let known = self.files.hold(ring, *key, || self.folders[key.index].join(text_of(key.name)))?;
                *seen = (known.writing == 0).then_some(known.writes);
            }
            Task::Allocate(key, _) => {
                self.files.create(ring, *key, &path(*key))?;
            }
            Task::Unlink(key) => self.files.forget(ring, *key),
            Task::SyncDirectory | Task::Rename(..) | Task::Undo(_) => {}
        }
        Ok(None)
    }

    /// Gives the kernel what there is room for.
    fn go_on(&mut self, ring: &mut Ring) {
        for class in 0..self.waiting.len() {
            let kept_back = if class == 0 { 0 } else { self.settings.log_buffers };
            let (mut at, mut no_buffer) = (0, false);
            while let Some(job) = self.waiting[class].get(at).copied() {
                // What needs no buffer goes past what waits for one.
                let needs_buffer =
                    matches!(self.jobs.get(job), Some(Job { task: Task::Write(..) | Task::Read(..), .. }));
                let gone = if no_buffer && needs_buffer { Gone::NoBuffer } else { self.push(ring, job, kept_back) };
                match gone {
                    Gone::All => drop(self.waiting[class].remove(at)),
                    Gone::Full => return,
                    Gone::Capped => at += 1,
                    Gone::NoBuffer => {
                        no_buffer = true;
                        at += 1;
                    }
                }
            }
        }
    }

    fn push(&mut self, ring: &mut Ring, key: JobKey, kept_back: usize) -> Gone {
        let Some(job) = self.jobs.get_mut(key) else { return Gone::All };
        let path = |key: FileKey| self.folders[key.index].join(text_of(key.name));
        let file = |files: &mut OpenFiles, key: FileKey| files.get_mut(key).map(|known| known.id);
        let started = match &mut job.task {
            Task::Write(..) | Task::Read(..) => return self.push_slices(ring, key, kept_back),
            Task::Allocate(key, bytes) => {
                file(&mut self.files, *key).ok_or(Refusal::UnknownFile).and_then(|id| ring.allocate(id, *bytes))
            }
            Task::Sync(key, _) => file(&mut self.files, *key).ok_or(Refusal::UnknownFile).and_then(|id| ring.sync(id)),
            Task::SyncDirectory => ring.sync_directory(&self.folders[job.index]),
            Task::Rename(from, to) => ring.rename(&path(*from), &path(*to)),
            Task::Unlink(key) => ring.unlink(&path(*key)),
            Task::Undo(_) => return Gone::All,
        };
        match started {
            Ok(operation) => {
                self.awaited.insert(operation, (key, Slice { number: 0, position: 0, length: 0 }));
                Gone::All
            }
            Err(Refusal::Full) => Gone::Full,
            Err(refusal) => {
                let error = error_of(refusal);
                self.finished(ring, key, Err(error));
                Gone::All
            }
        }
    }

    /// Takes the end of an operation of the ring.
    pub(crate) fn complete(&mut self, ring: &mut Ring, event: FileEvent) {
        // The end of a close is awaited by nobody.
        if let Some((key, slice)) = self.awaited.remove(&event.operation) {
            match event.outcome {
                FileOutcome::Written { buffer, written_bytes, synced, error } => {
                    let outcome = error.map_or(Ok(()), Err);
                    self.written(ring, key, slice, buffer, (written_bytes, synced, outcome));
                }
                FileOutcome::Read { buffer, read_bytes, error } => {
                    let outcome = error.map_or(Ok(read_bytes), Err);
                    self.read(ring, key, slice, buffer, outcome);
                }
                FileOutcome::Finished(outcome) => self.finished(ring, key, outcome),
            }
        }
        self.go_on(ring);
    }

    /// Something that is no write and no read has ended, or could not begin.
    fn finished(&mut self, ring: &mut Ring, key: JobKey, outcome: io::Result<()>) {
        let Some(job) = self.jobs.get_mut(key) else { return };
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
            Task::Allocate(file, bytes) => match outcome {
                Ok(()) => self.end(key, Some(file), Completion::Done),
                Err(error) => self.allocate_failed(ring, key, file, bytes, &error),
            },
            Task::Rename(from, to) => {
                if outcome.is_ok() {
                    self.files.rename(ring, from, to);
                }
                self.end(key, None, completion);
            }
            Task::Undo(failure) => {
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
        let path = self.folders[file.index].join(text_of(file.name));
        let mut failure = failure_of(error);
        if error.raw_os_error() == Some(NOT_SUPPORTED) {
            // A file system that cannot reserve: the length at least is there, and a write may find no room.
            match std::fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(bytes)) {
                Ok(()) => return self.end(key, Some(file), Completion::Done),
                Err(error) => failure = failure_of(&error),
            }
        }
        self.files.forget(ring, file);
        match ring.unlink(&path) {
            Ok(operation) => {
                if let Some(job) = self.jobs.get_mut(key) {
                    job.task = Task::Undo(failure);
                }
                self.awaited.insert(operation, (key, Slice { number: 0, position: 0, length: 0 }));
            }
            Err(_) => {
                let removed = std::fs::remove_file(&path);
                if let Err(error) = removed {
                    tracing::warn!(%error, path = %path.display(), "a file without room for it could not be removed");
                }
                self.end(key, None, Completion::Failed(failure));
            }
        }
    }

    fn end(&mut self, key: JobKey, file: Option<FileKey>, completion: Completion) {
        if let Some(file) = file {
            self.files.release(file);
        }
        if let Some(Job { index, operation, .. }) = self.jobs.remove(key) {
            self.done.push_back(Done { index, operation, completion });
        }
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

/// What a refusal of the ring means. None of them but a directory that cannot be opened is expected.
fn error_of(refusal: Refusal) -> io::Error {
    match refusal {
        Refusal::Directory(error) => error,
        _ => io::Error::from_raw_os_error(INVALID),
    }
}
