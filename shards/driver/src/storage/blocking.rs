//! Carries out file effects one at a time and blocking, for openers, before any ring exists. On the opening threads.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use bytes::Bytes;
use ringmain_wal::{Completion, Effect, Failure, FileName};

use super::description::sync_directory;
use super::names::text_of;

/// Files that one opener has open at once: it reads them one after another.
const FILES_MAX: usize = 16;
/// Bytes of one read, so that a read that says more than the file has takes no memory for it.
const READ_BYTES: usize = 1 << 20;

/// One shard's folder.
#[derive(Debug)]
pub(super) struct BlockingFolder {
    folder: PathBuf,
    open: HashMap<FileName, File>,
}

impl BlockingFolder {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, open: HashMap::new() }
    }

    fn path(&self, file: FileName) -> PathBuf {
        self.folder.join(text_of(file))
    }

    /// Carries one effect out.
    pub(super) fn perform(&mut self, effect: &Effect) -> Completion {
        self.try_perform(effect).unwrap_or_else(|error| Completion::Failed(failure_of(&error)))
    }

    fn try_perform(&mut self, effect: &Effect) -> io::Result<Completion> {
        match effect {
            Effect::Allocate { file, bytes } => self.allocate(*file, *bytes)?,
            Effect::Write { file, position, parts } => {
                let mut at = *position;
                let file = self.file(*file)?;
                for part in parts {
                    file.write_all_at(part, at)?;
                    at += part.len() as u64;
                }
                return Ok(Completion::Written(at - position));
            }
            Effect::Sync { file } => self.file(*file)?.sync_data()?,
            Effect::SyncDirectory => sync_directory(&self.folder)?,
            Effect::Rename { from, to } => {
                fs::rename(self.path(*from), self.path(*to))?;
                // Whatever had that name has none any more.
                self.open.remove(to);
                if let Some(file) = self.open.remove(from) {
                    self.open.insert(*to, file);
                }
            }
            Effect::Unlink { file } => {
                self.open.remove(file);
                fs::remove_file(self.path(*file))?;
            }
            Effect::Read { file, position, bytes } => return self.read(*file, *position, *bytes).map(Completion::Read),
        }
        Ok(Completion::Done)
    }

    fn file(&mut self, name: FileName) -> io::Result<&File> {
        if !self.open.contains_key(&name) {
            let file = OpenOptions::new().read(true).write(true).open(self.path(name))?;
            if self.open.len() >= FILES_MAX {
                self.open.clear();
            }
            self.open.insert(name, file);
        }
        self.open.get(&name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn allocate(&mut self, name: FileName, bytes: u64) -> io::Result<()> {
        let path = self.path(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let made = match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
            made => made.map_err(io::Error::from),
        };
        if let Err(error) = made {
            fs::remove_file(&path)?;
            return Err(error);
        }
        Ok(())
    }

    fn read(&mut self, name: FileName, position: u64, bytes: u64) -> io::Result<Bytes> {
        let file = self.file(name)?;
        let mut read = Vec::new();
        while (read.len() as u64) < bytes {
            let before = read.len();
            let left = usize::try_from(bytes - before as u64).unwrap_or(usize::MAX).min(READ_BYTES);
            read.resize(before + left, 0);
            let count = match file.read_at(&mut read[before..], position + before as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return Err(error),
                Ok(0) => {
                    read.truncate(before);
                    break;
                }
                Ok(count) => count,
            };
            read.truncate(before + count);
        }
        Ok(Bytes::from(read))
    }
}

/// What a failure of the system means to the log.
pub(super) fn failure_of(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::NoSpace,
        _ => Failure::System(error.raw_os_error().unwrap_or(0)),
    }
}

/// The same error; one that speaks of too many open files with what to do about it.
pub(super) fn with_cure(error: io::Error) -> io::Error {
    let failure = failure_of(&error);
    if failure.is_want_of_descriptors() { io::Error::new(error.kind(), failure.to_string()) } else { error }
}
