//! One operation on files: what it holds while the kernel works on it, and how it ends. Lives on the core of its ring.
#![allow(unsafe_code, reason = "paths and descriptors are owned in raw form while the kernel has them")]

use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::file::{FileId, FileMode};
use crate::files::Files;
use crate::open::{Examined, OpenedFile};
use crate::pool::AlignedBuffer;
use crate::tag::{Kind, Tag};

/// Names one operation of one ring, and no other one even after its slot is used again.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct OperationId {
    slot: u32,
    generation: u32,
}

impl OperationId {
    pub(crate) fn new((slot, generation): (u32, u32)) -> OperationId {
        OperationId { slot, generation }
    }

    /// A name made by hand, for tables in tests. It names no operation unless a ring gives out the same.
    pub fn from_parts(slot: u32, generation: u32) -> OperationId {
        OperationId { slot, generation }
    }

    pub(crate) fn parts(self) -> (u32, u32) {
        (self.slot, self.generation)
    }

    pub(crate) fn of_tag(tag: Tag) -> OperationId {
        OperationId { slot: tag.slot, generation: tag.generation }
    }

    pub(crate) fn tag(self, kind: Kind) -> u64 {
        Tag { kind, slot: self.slot, generation: self.generation }.to_bits()
    }
}

/// The end of one operation. Comes exactly once for each.
#[derive(Debug)]
pub struct FileEvent {
    /// Which one.
    pub operation: OperationId,
    /// How it ended.
    pub outcome: FileOutcome,
}

/// How an operation has ended.
#[derive(Debug)]
pub enum FileOutcome {
    /// A write.
    Written {
        /// The buffer that was handed over, unchanged.
        buffer: AlignedBuffer,
        /// How many bytes from its front the kernel has taken. Fewer than asked for, without an error,
        /// when for example the disk filled up on the way: the next write tells the reason.
        written_bytes: u32,
        /// Whether all that was asked for is durable. Only ever true for
        /// [`WriteSync::Data`](crate::WriteSync::Data); if it is false then, nothing is known of what a
        /// power loss would leave, and the caller writes all of it again or gives the log up.
        synced: bool,
        /// Why the write failed, or why the sync after it did.
        error: Option<io::Error>,
    },
    /// A read.
    Read {
        /// The buffer that was handed over.
        buffer: AlignedBuffer,
        /// How many bytes at its front are new. Fewer than asked for at the end of the file; after
        /// any other short read, reading on tells the reason.
        read_bytes: u32,
        /// Why it failed.
        error: Option<io::Error>,
    },
    /// An open.
    Opened(io::Result<OpenedFile>),
    /// Anything else.
    Finished(io::Result<()>),
}

/// Why an operation was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The file is closed or closing.
    #[error("no such file is open")]
    UnknownFile,
    /// 4096 operations are in flight.
    #[error("too many operations on files are in flight")]
    Full,
    /// Direct I/O needs whole blocks.
    #[error("position and length of direct I/O must be multiples of {block_bytes} bytes")]
    Alignment {
        /// What they must be multiples of.
        block_bytes: u32,
    },
    /// The length is 0, or more than the buffer or any file can hold.
    #[error("the length is 0 or too large")]
    Length,
    /// The end lies beyond 2⁶³ - 1 bytes.
    #[error("the position lies beyond what a file can have")]
    Position,
    /// The path contains a zero byte.
    #[error("the path contains a zero byte")]
    Path,
}

/// A write or read that was not started, with the buffer that was meant for it.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// Why.
    pub reason: Refusal,
    /// As it was handed over.
    pub buffer: AlignedBuffer,
}

/// A path as the kernel wants it, at an address that stays.
///
/// It is a raw pointer and not a box, because moving a box tells the compiler that nobody else
/// looks at its inside, and the kernel does.
pub(crate) struct KernelPath(NonNull<c_char>);

impl KernelPath {
    pub(crate) fn new(path: &Path) -> Result<KernelPath, Refusal> {
        let text = CString::new(path.as_os_str().as_bytes()).map_err(|_| Refusal::Path)?;
        NonNull::new(text.into_raw()).map(KernelPath).ok_or(Refusal::Path)
    }

    pub(crate) fn address(&self) -> *const c_char {
        self.0.as_ptr()
    }
}

impl Drop for KernelPath {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `CString::into_raw`, nobody has changed the text, and it is
        // freed only here. The ring drops a path only when no operation on it is in flight.
        drop(unsafe { CString::from_raw(self.0.as_ptr()) });
    }
}

/// How a write becomes durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WriteMethod {
    /// Not by itself.
    Plain,
    /// RWF_DSYNC: the write ends when its data are durable.
    WriteThrough,
    /// A linked fdatasync; `cuts` tells whether the kernel may have parted the two.
    Linked {
        /// What the queue had counted when the pair was queued.
        cuts: u64,
    },
    /// The pair may have been parted, so another fdatasync follows the completed write.
    SyncAgain,
}

/// A write with all that is needed to start it once more.
pub(crate) struct Write {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) position: u64,
    pub(crate) length: u32,
    pub(crate) method: WriteMethod,
}

/// What the kernel works on, and so what must stay until it is done.
pub(crate) enum Work {
    Write(Write),
    Read(AlignedBuffer),
    /// Something on a file that needs no memory.
    OnFile,
    /// A new length, which kernels before 6.9 cannot give.
    SetLength(u64),
    /// The path of a file that is being opened.
    Open(#[expect(dead_code, reason = "it is kept for the kernel")] KernelPath, FileMode),
    /// A file that was just opened.
    Examine(Examined),
    /// The descriptor of a directory to be synced.
    OnDirectory(#[expect(dead_code, reason = "it is kept open for the kernel")] Arc<OwnedFd>),
    /// The paths of a rename or unlink.
    OnPaths(#[expect(dead_code, reason = "they are kept for the kernel")] (KernelPath, Option<KernelPath>)),
    /// A descriptor that nobody else owns; none while the close waits for others to end.
    Close(Option<RawFd>),
    /// Nothing any more.
    Given,
}

/// The slot of one operation.
pub(crate) struct Operation {
    pub(crate) file: Option<FileId>,
    pub(crate) work: Work,
    /// Completions that are still to come.
    pending: u8,
    /// What the kernel said of the operation itself.
    pub(crate) result: i32,
    /// What it said of the sync after a write.
    pub(crate) sync_result: i32,
}

/// The error of a negative result.
fn failure(result: i32) -> Option<io::Error> {
    (result < 0).then(|| io::Error::from_raw_os_error(result.saturating_neg()))
}

/// The count of bytes of a result; none for a failure.
fn count(result: i32) -> u32 {
    u32::try_from(result).unwrap_or(0)
}

impl Operation {
    pub(crate) fn new(file: Option<FileId>, work: Work) -> Operation {
        Operation { file, work, pending: 1, result: 0, sync_result: 0 }
    }

    /// Begins anew with other work and one completion to come.
    pub(crate) fn start(&mut self, work: Work) {
        *self = Operation::new(self.file, work);
    }

    /// As many completions are to come.
    pub(crate) fn expect(&mut self, completions: u8) {
        self.pending = completions;
    }

    /// Notes a result; true when it was the last.
    pub(crate) fn note(&mut self, kind: Kind, result: i32) -> bool {
        match kind {
            Kind::FileSync => self.sync_result = result,
            _ => self.result = result,
        }
        self.pending = self.pending.saturating_sub(1);
        self.pending == 0
    }

    /// Gives up for ever what the kernel may still use.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.work, Work::Given));
    }

    /// What the caller is told. All completions have come. A file that was opened gets its slot.
    pub(crate) fn outcome(self, files: &mut Files) -> FileOutcome {
        let result = self.result;
        match self.work {
            Work::Write(write) => {
                let whole = count(result) == write.length;
                let (durable, sync_result) = match write.method {
                    WriteMethod::Plain => (false, 0),
                    WriteMethod::WriteThrough => (true, 0),
                    WriteMethod::Linked { .. } | WriteMethod::SyncAgain => (self.sync_result == 0, self.sync_result),
                };
                // The sync of an unfinished write was cancelled, which is not the reason to tell.
                let error = failure(result).or_else(|| if whole { failure(sync_result) } else { None });
                let written_bytes = count(result);
                FileOutcome::Written { buffer: write.buffer, written_bytes, synced: whole && durable, error }
            }
            Work::Read(buffer) => FileOutcome::Read { buffer, read_bytes: count(result), error: failure(result) },
            Work::Close(descriptor) => {
                if result == -libc::ECANCELED
                    && let Some(descriptor) = descriptor
                {
                    // SAFETY: the close was cancelled before it began, so the descriptor is open, and
                    // the operation was its only owner. After any other result it is closed, as close(2)
                    // closes even when it fails.
                    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
                    return FileOutcome::Finished(Ok(()));
                }
                FileOutcome::Finished(failure(result).map_or(Ok(()), Err))
            }
            Work::Open(..) => {
                FileOutcome::Opened(Err(failure(result).unwrap_or_else(|| io::ErrorKind::Interrupted.into())))
            }
            Work::Examine(examined) => FileOutcome::Opened(files.take_in(examined, result)),
            Work::OnFile | Work::SetLength(_) | Work::OnDirectory(_) | Work::OnPaths(..) | Work::Given => {
                FileOutcome::Finished(failure(result).map_or(Ok(()), Err))
            }
        }
    }
}
