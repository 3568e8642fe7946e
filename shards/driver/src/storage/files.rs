//! The files that one core has open: opened on first use, kept, closed when there are too many. On the core of its ring.
//!
//! The ring opens them, so that a disk that hangs holds nobody up who does not need it. A name is opened once at a time, and not while
//! it is being taken away or given to another file: so what is in the table under a name is the file that has it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use ringmain_uring::{FileId, FileMode, OpenedFile, OperationId as RingOperation, Refusal, Ring};
use ringmain_wal::FileName;

/// A file of one of this core's shards.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileKey {
    /// The shard's place on this core.
    pub(super) index: usize,
    pub(super) name: FileName,
}

/// What is known of an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) id: FileId,
    /// Everything that was ever written to it is known to be durable. Not known of a file that was just opened.
    pub(super) clean: bool,
    /// Counts writes, so that a sync can tell whether one began beside it.
    pub(super) writes: u64,
    /// Writes that have not ended.
    pub(super) writing: u32,
    /// Jobs that use it.
    users: u32,
    used_at: u64,
}

/// Descriptors kept back for files: connections may use up all others, and the log must still go on in its next segment.
const SPARE_DESCRIPTORS: usize = 8;
const TOO_MANY_OPEN: [i32; 2] = [24, 23];

/// The table.
#[derive(Debug)]
pub(super) struct OpenFiles {
    open: HashMap<FileKey, Known>,
    /// Opens that are under way: one for each name at most, and no more than there are jobs.
    opening: HashMap<FileKey, FileMode>,
    opens: HashMap<RingOperation, FileKey>,
    /// Names that are being taken away or given to another file: one or two for each such job.
    changing: Vec<FileKey>,
    open_max: usize,
    clock: u64,
    spare: Vec<File>,
    /// Of what spare descriptors are copies.
    null: Option<File>,
}

impl OpenFiles {
    pub(super) fn new(open_max: usize) -> Self {
        let mut files = Self {
            open: HashMap::new(),
            opening: HashMap::new(),
            opens: HashMap::new(),
            changing: Vec::new(),
            open_max,
            clock: 0,
            spare: Vec::new(),
            null: File::open("/dev/null").ok(),
        };
        files.refill_spare();
        files
    }

    fn refill_spare(&mut self) {
        let Some(null) = &self.null else { return };
        while self.spare.len() < SPARE_DESCRIPTORS {
            // A copy asks no file system.
            let Ok(file) = null.try_clone() else { return };
            self.spare.push(file);
        }
    }

    /// The file with one user more, if it is open.
    pub(super) fn hold(&mut self, key: FileKey) -> Option<&mut Known> {
        self.clock += 1;
        let known = self.open.get_mut(&key)?;
        known.users += 1;
        known.used_at = self.clock;
        Some(known)
    }

    /// Whether an open of that name is under way.
    pub(super) fn is_opening(&self, key: FileKey) -> bool {
        self.opening.contains_key(&key)
    }

    /// Whether that name is being taken away or given to another file.
    pub(super) fn is_changing(&self, key: FileKey) -> bool {
        self.changing.contains(&key)
    }

    /// Nobody opens that name until [`OpenFiles::changed`].
    pub(super) fn change(&mut self, key: FileKey) {
        debug_assert!(!self.is_opening(key) && !self.is_changing(key), "one thing at a time is done with a name");
        self.changing.push(key);
    }

    pub(super) fn changed(&mut self, key: FileKey) {
        self.changing.retain(|changing| *changing != key);
    }

    /// Begins to open a name that is neither being opened nor changing. If it is open already, what is opened now takes the place of
    /// that, and what is in flight there ends undisturbed.
    ///
    /// # Errors
    /// What the ring says; then nothing was begun.
    pub(super) fn start_open(
        &mut self,
        ring: &mut Ring,
        key: FileKey,
        path: &Path,
        mode: FileMode,
    ) -> Result<(), Refusal> {
        debug_assert!(!self.is_opening(key) && !self.is_changing(key), "one thing at a time is done with a name");
        let operation = ring.start_open(path, mode)?;
        self.opens.insert(operation, key);
        self.opening.insert(key, mode);
        Ok(())
    }

    /// Takes the end of an open: the name, and whether it is open now. `None` when it goes on.
    pub(super) fn opened(
        &mut self,
        ring: &mut Ring,
        operation: RingOperation,
        outcome: io::Result<OpenedFile>,
        path_of: impl FnOnce(FileKey) -> PathBuf,
    ) -> Option<(FileKey, io::Result<()>)> {
        let Some(key) = self.opens.remove(&operation) else {
            debug_assert!(false, "an open of nobody");
            if let Ok(opened) = outcome {
                close(ring, opened.id);
            }
            return None;
        };
        let mode = self.opening.remove(&key)?;
        let error = match outcome {
            Ok(opened) => {
                self.insert(ring, key, opened.id);
                return Some((key, Ok(())));
            }
            Err(error) => error,
        };
        let too_many = error.raw_os_error().is_some_and(|number| TOO_MANY_OPEN.contains(&number));
        if too_many && self.spare.pop().is_some() && self.start_open(ring, key, &path_of(key), mode).is_ok() {
            return None;
        }
        Some((key, Err(error)))
    }

    fn insert(&mut self, ring: &mut Ring, key: FileKey, id: FileId) {
        self.clock += 1;
        if let Some(known) = self.open.get_mut(&key) {
            let old = std::mem::replace(&mut known.id, id);
            known.clean = false;
            close(ring, old);
            return;
        }
        while self.open.len() >= self.open_max {
            let idle = self.open.iter().filter(|(_, known)| known.users == 0).min_by_key(|(_, known)| known.used_at);
            // If all are in use there are more for a while: they are bounded by what the shards have in flight.
            let Some(idle) = idle.map(|(key, _)| *key) else { break };
            self.forget(ring, idle);
        }
        let known = Known { id, clean: false, writes: 0, writing: 0, users: 0, used_at: self.clock };
        self.open.insert(key, known);
    }

    pub(super) fn get(&self, key: FileKey) -> Option<&Known> {
        self.open.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: FileKey) -> Option<&mut Known> {
        self.open.get_mut(&key)
    }

    /// A job has ended.
    pub(super) fn release(&mut self, key: FileKey) {
        if let Some(known) = self.open.get_mut(&key) {
            known.users = known.users.saturating_sub(1);
        }
        if self.spare.len() < SPARE_DESCRIPTORS {
            self.refill_spare();
        }
    }

    /// Closes a file that is to be removed or is not used any more.
    pub(super) fn forget(&mut self, ring: &mut Ring, key: FileKey) {
        if let Some(known) = self.open.remove(&key) {
            close(ring, known.id);
        }
    }

    /// The file has another name now. The open one stays valid, and so does what is known of it.
    pub(super) fn rename(&mut self, ring: &mut Ring, from: FileKey, to: FileKey) {
        self.forget(ring, to);
        if let Some(known) = self.open.remove(&from) {
            self.open.insert(to, known);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

/// Closes a file after what is in flight on it. Should the ring have no room, the file stays open until the ring goes.
fn close(ring: &mut Ring, id: FileId) {
    let _ = ring.close_file(id);
}
