//! The files that one core has open: opened on first use, kept, closed when there are too many. On the core of its ring.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use ringmain_uring::{Error as RingError, FileAccess, FileId, FileMode, Ring};
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
    open_max: usize,
    direct: bool,
    clock: u64,
    spare: Vec<File>,
}

impl OpenFiles {
    pub(super) fn new(open_max: usize, direct: bool) -> Self {
        let mut files = Self { open: HashMap::new(), open_max, direct, clock: 0, spare: Vec::new() };
        files.refill_spare();
        files
    }

    fn refill_spare(&mut self) {
        while self.spare.len() < SPARE_DESCRIPTORS {
            let Ok(file) = File::open("/dev/null") else { return };
            self.spare.push(file);
        }
    }

    /// The file, opened if need be, with one user more.
    pub(super) fn hold(&mut self, ring: &mut Ring, key: FileKey, path: impl FnOnce() -> PathBuf) -> io::Result<Known> {
        self.clock += 1;
        if let Some(known) = self.open.get_mut(&key) {
            known.users += 1;
            known.used_at = self.clock;
            return Ok(*known);
        }
        self.insert(ring, key, &path(), FileAccess::ReadWrite)
    }

    /// A file that is not there yet, likewise.
    pub(super) fn create(&mut self, ring: &mut Ring, key: FileKey, path: &Path) -> io::Result<Known> {
        // What had this name before is gone, whatever the table says.
        self.forget(ring, key);
        self.insert(ring, key, path, FileAccess::CreateNew)
    }

    /// The same file through the page cache, which takes lengths that are no whole blocks. What is in flight on the other
    /// descriptor ends undisturbed.
    pub(super) fn reopen_buffered(&mut self, ring: &mut Ring, key: FileKey, path: &Path) -> io::Result<Known> {
        let id = open(ring, path, FileMode { access: FileAccess::ReadWrite, direct: false }, &mut self.spare)?;
        match self.open.get_mut(&key) {
            Some(known) => {
                let old = std::mem::replace(&mut known.id, id);
                known.clean = false;
                let known = *known;
                close(ring, old);
                Ok(known)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn insert(&mut self, ring: &mut Ring, key: FileKey, path: &Path, access: FileAccess) -> io::Result<Known> {
        self.clock += 1;
        if self.open.len() >= self.open_max {
            let idle = self.open.iter().filter(|(_, known)| known.users == 0).min_by_key(|(_, known)| known.used_at);
            // If all are in use there are more for a while: they are bounded by what the shards have in flight.
            if let Some(idle) = idle.map(|(key, _)| *key) {
                self.forget(ring, idle);
            }
        }
        let id = open(ring, path, FileMode { access, direct: self.direct }, &mut self.spare)?;
        let known = Known { id, clean: false, writes: 0, writing: 0, users: 1, used_at: self.clock };
        self.open.insert(key, known);
        Ok(known)
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

fn open(ring: &mut Ring, path: &Path, mode: FileMode, spare: &mut Vec<File>) -> io::Result<FileId> {
    loop {
        let error = match ring.open_file(path, mode) {
            Ok(id) => return Ok(id),
            Err(RingError::System { source, .. }) => source,
            Err(other) => return Err(io::Error::other(other.to_string())),
        };
        let too_many = error.raw_os_error().is_some_and(|number| TOO_MANY_OPEN.contains(&number));
        if !too_many || spare.pop().is_none() {
            return Err(error);
        }
    }
}

/// Closes a file after what is in flight on it. Should the ring have no room, the file stays open until the ring goes.
fn close(ring: &mut Ring, id: FileId) {
    let _ = ring.close_file(id);
}
