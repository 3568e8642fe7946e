//! The slot of one open file: how it is opened, what is known of it, and how it goes. Lives on the core of its ring.
#![allow(unsafe_code, reason = "a close is queued here, and takes the raw descriptor with it")]

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use io_uring::{opcode, squeue, types};
use rustix::fs::AtFlags;

use crate::error::Error;
use crate::files::Files;
use crate::open::ASKED;
use crate::operation::{Operation, OperationId, Refusal, Work};
use crate::ring::Ring;
use crate::tag::Kind;

/// What a block is taken to be where the kernel does not tell.
pub(crate) const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// Messages are nobody's business but the broker's user's.
pub(crate) const PERMISSIONS: u32 = 0o600;

/// Names one open file of one ring, and no other one even after its slot is used again.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FileId {
    slot: u32,
    generation: u32,
}

impl FileId {
    /// A name made by hand, for tables in tests. It names no file unless a ring gives out the same.
    pub fn from_parts(slot: u32, generation: u32) -> FileId {
        FileId { slot, generation }
    }

    pub(crate) fn parts(self) -> (u32, u32) {
        (self.slot, self.generation)
    }
}

/// What may be done with a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileAccess {
    /// It exists and is read.
    Read,
    /// It exists, is read and written.
    ReadWrite,
    /// It must not exist, is made, read and written. Only its owner may open it.
    CreateNew,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileMode {
    /// What may be done with it.
    pub access: FileAccess,
    /// Go past the page cache if the file system can; [`FileFacts::direct`] tells.
    pub direct: bool,
}

/// What is known of an open file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileFacts {
    /// Whether reads and writes go past the page cache.
    pub direct: bool,
    /// With `direct`, positions and lengths must be multiples of this many bytes: what statx(2) tells
    /// (`stx_dio_offset_align`), or 4096 where it does not. Often it is 512, while the device writes 4096 in one piece: who fears torn
    /// blocks takes the larger. Without `direct` nothing needs to be, and this is 4096.
    pub block_bytes: u32,
    /// How long the file was when it was opened, in bytes.
    pub length_bytes: u64,
}

/// Everything that the ring keeps about one file.
pub(crate) struct OpenFile {
    /// None from the moment at which the kernel has been asked to close it.
    descriptor: Option<OwnedFd>,
    pub(crate) facts: FileFacts,
    /// The file system does not take a write that is its own sync.
    pub(crate) write_through_refused: bool,
    /// Operations that have not ended, the close not counted.
    pub(crate) in_flight: u32,
    /// The operation that closes it, once it is asked for.
    closing: Option<OperationId>,
}

impl OpenFile {
    pub(crate) fn new(descriptor: OwnedFd, facts: FileFacts) -> OpenFile {
        OpenFile { descriptor: Some(descriptor), facts, write_through_refused: false, in_flight: 0, closing: None }
    }

    /// Gives the file its length on this thread; the result as the kernel's queue would tell it.
    pub(crate) fn set_length_blocking(&self, bytes: u64) -> i32 {
        match self.descriptor.as_ref().map(|descriptor| rustix::fs::ftruncate(descriptor, bytes)) {
            Some(Ok(())) => 0,
            Some(Err(error)) => -error.raw_os_error(),
            None => -libc::EBADF,
        }
    }

    /// The descriptor as the kernel's queue wants it; none once it is being closed.
    pub(crate) fn target(&self) -> Option<types::Fd> {
        self.descriptor.as_ref().map(|descriptor| types::Fd(descriptor.as_raw_fd()))
    }

    /// The file with what is known of it, if it may be used.
    pub(crate) fn is_usable(&self) -> bool {
        self.closing.is_none()
    }
}

/// Opens a file on this thread.
fn open(files: &mut Files, path: &Path, mode: FileMode) -> std::io::Result<OpenFile> {
    let writes = mode.access != FileAccess::Read;
    let creates = mode.access == FileAccess::CreateNew;
    if !creates && !std::fs::metadata(path)?.is_file() {
        // Opening a pipe would wait for its other end.
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let file: File = OpenOptions::new().read(true).write(writes).create_new(creates).mode(PERMISSIONS).open(path)?;
    let told = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, ASKED)?;
    let facts = files.facts_of(&file, &told, mode.direct)?;
    Ok(OpenFile::new(OwnedFd::from(file), facts))
}

impl Files {
    /// Gives a file its slot; none, and the file is closed, when all are taken.
    pub(crate) fn insert_file(&mut self, file: OpenFile) -> Option<FileId> {
        self.open.insert(file).ok().map(|(slot, generation)| FileId { slot, generation })
    }
}

impl Ring {
    /// Opens a regular file, or makes one. This blocks, for as long as the disk hangs: only for starts and tests, see
    /// [`Ring::start_open`].
    ///
    /// A new file is found after a crash only when its directory has been synced too, see
    /// [`Ring::sync_directory`].
    ///
    /// # Errors
    ///
    /// [`Error::Full`] when 65 536 files are open; [`Error::System`] with what the system says, or
    /// `InvalidInput` when it is not a regular file.
    pub fn open_file(&mut self, path: &Path, mode: FileMode) -> Result<FileId, Error> {
        if self.files.open.is_full() {
            return Err(Error::Full { what: "files" });
        }
        let file = open(&mut self.files, path, mode).map_err(|source| Error::System { what: "open", source })?;
        self.files.insert_file(file).ok_or(Error::Full { what: "files" })
    }

    /// What is known of a file; none when it is closed.
    pub fn file_facts(&self, id: FileId) -> Option<FileFacts> {
        Some(self.files.open.get(id.slot, id.generation)?.facts)
    }

    /// How many files are open or closing.
    pub fn files(&self) -> usize {
        self.files.open.len()
    }

    /// Closes a file after the operations on it have ended, which are still told. No new ones are
    /// taken. Closing does not sync.
    ///
    /// It goes through the ring: closing a file that has been unlinked frees its blocks, which takes
    /// the time of a large write.
    ///
    /// # Errors
    ///
    /// [`Refusal::UnknownFile`] and [`Refusal::Full`].
    pub fn close_file(&mut self, id: FileId) -> Result<OperationId, Refusal> {
        if !self.files.open.get(id.slot, id.generation).is_some_and(OpenFile::is_usable) {
            return Err(Refusal::UnknownFile);
        }
        let operation = self.insert_operation(Operation::new(Some(id), Work::Close(None))).map_err(|(why, _)| why)?;
        if let Some(file) = self.files.open.get_mut(id.slot, id.generation) {
            file.closing = Some(operation);
        }
        self.close_if_quiet(id);
        Ok(operation)
    }

    /// One operation on the file has ended.
    pub(crate) fn release_file(&mut self, id: FileId) {
        if let Some(file) = self.files.open.get_mut(id.slot, id.generation) {
            file.in_flight -= 1;
        }
        self.close_if_quiet(id);
    }

    /// Queues the close of a file that nobody uses any more.
    fn close_if_quiet(&mut self, id: FileId) {
        let Some(file) = self.files.open.get_mut(id.slot, id.generation) else {
            return;
        };
        let Some(operation) = file.closing.filter(|_| file.in_flight == 0) else {
            return;
        };
        let Some(descriptor) = file.descriptor.take().map(IntoRawFd::into_raw_fd) else {
            return;
        };
        let (slot, generation) = operation.parts();
        if let Some(operation) = self.files.operations.get_mut(slot, generation) {
            operation.start(Work::Close(Some(descriptor)));
        }
        let entry = opcode::Close::new(types::Fd(descriptor))
            .build()
            .flags(squeue::Flags::ASYNC)
            .user_data(operation.tag(Kind::File));
        // SAFETY: a close carries no pointer. The descriptor is open, and nobody owns it but the
        // operation, which closes it if the kernel says that it did not.
        unsafe { self.queue.push(entry) };
    }
}
