//! Directories that are kept open to be synced. Lives on the core of its ring.
#![allow(unsafe_code, reason = "the sync of a directory is queued here")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use io_uring::{opcode, squeue, types};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::error::Error;
use crate::open::ASKED;
use crate::operation::{Operation, OperationId, Refusal, Work};
use crate::ring::Ring;
use crate::tag::Kind;

/// An open directory. Closed when it is dropped and no sync of it is under way.
#[derive(Clone, Debug)]
pub struct Directory(Arc<OwnedFd>);

impl Ring {
    /// Opens a directory, and learns about its file system what opening files in it needs to know. This blocks: do it at the start.
    ///
    /// # Errors
    ///
    /// [`Error::System`] with what the system says.
    pub fn open_directory(&mut self, path: &Path) -> Result<Directory, Error> {
        let failed = |what| move |error: rustix::io::Errno| Error::System { what, source: error.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(failed("open"))?;
        let told = rustix::fs::statx(&directory, c"", AtFlags::EMPTY_PATH, ASKED).map_err(failed("statx"))?;
        self.files.is_memory(&directory, &told);
        Ok(Directory(Arc::new(directory)))
    }

    /// Makes durable which names a directory holds.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    pub fn sync_directory(&mut self, directory: &Directory) -> Result<OperationId, Refusal> {
        let target = types::Fd(directory.0.as_raw_fd());
        let work = Work::OnDirectory(Arc::clone(&directory.0));
        let id = self.insert_operation(Operation::new(None, work)).map_err(|(why, _)| why)?;
        let entry = opcode::Fsync::new(target).build().flags(squeue::Flags::ASYNC).user_data(id.tag(Kind::File));
        // SAFETY: a sync carries no pointer, and the operation keeps the descriptor until it has ended.
        unsafe { self.queue.push(entry) };
        Ok(id)
    }
}
