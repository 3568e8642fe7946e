//! Opening a file through the ring: the open, then what the kernel tells of the file, then its slot. Lives on the core of its ring.
//!
//! Finding a name may read the disk, and making one waits while the file system is frozen. So both steps are
//! done by the kernel's own threads. What follows on the loop's thread asks nothing of a disk:
//!
//! * fcntl(2) to choose direct I/O changes a flag of the open file under a spin lock and looks at no inode;
//! * fstatfs(2) is asked once for each file system without a device, and [`Ring::open_directory`] has asked it before
//!   anything is served. The file systems of disks have a device and are never asked.
#![allow(
    unsafe_code,
    reason = "a path and the memory for an answer are lent to the kernel, and a descriptor is taken from it"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use io_uring::{opcode, squeue, types};
use rustix::fs::{FileType, OFlags, Statx, StatxFlags};

use crate::file::{BLOCK_BYTES_DEFAULT, FileAccess, FileFacts, FileId, FileMode, OpenFile, PERMISSIONS};
use crate::files::Files;
use crate::operation::{KernelPath, Operation, OperationId, Refusal, Work};
use crate::pool::BUFFER_ALIGNMENT_BYTES;
use crate::ring::Ring;
use crate::tag::Kind;

/// File systems that are memory, from `linux/magic.h`. Recent kernels accept direct I/O on tmpfs and
/// copy all the same.
const MEMORY_FILE_SYSTEMS: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// File systems without a device of which it is remembered whether they are memory.
const REMEMBERED_MAX: usize = 64;

/// What is asked of a file that was opened.
pub(crate) const ASKED: StatxFlags = StatxFlags::TYPE.union(StatxFlags::SIZE).union(StatxFlags::DIOALIGN);

const _: () = assert!(size_of::<Statx>() == 256, "the kernel writes this many bytes");

/// A file that [`Ring::start_open`] has opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OpenedFile {
    /// Its name in this ring.
    pub id: FileId,
    /// What is known of it.
    pub facts: FileFacts,
}

/// The memory for what the kernel tells of a file, at an address that stays.
///
/// It is a raw pointer and not a box, because moving a box tells the compiler that nobody else
/// looks at its inside, and the kernel does.
struct Answer(NonNull<MaybeUninit<Statx>>);

impl Answer {
    fn new() -> Answer {
        Answer(NonNull::from(Box::leak(Box::new(MaybeUninit::zeroed()))))
    }

    /// What was told. Nothing may be in flight that writes it.
    fn told(&self) -> Statx {
        // SAFETY: the memory is a live box that is freed only in `drop`, and the caller says that the kernel
        // does not write it. It was zeroed, and the kernel writes whole fields of numbers, for which all bits are valid.
        unsafe { self.0.as_ref().assume_init() }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Box::leak`, and it is freed only here. The ring drops an answer only when
        // the operation that writes it has completed, and otherwise forgets it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// An open file that the kernel is asked about.
pub(crate) struct Examined {
    descriptor: OwnedFd,
    mode: FileMode,
    answer: Answer,
}

impl Ring {
    /// Opens a regular file, or makes one, without waiting for the disk. Ends in
    /// [`FileOutcome::Opened`](crate::FileOutcome::Opened): a file that nobody takes over from there stays open as long as the ring.
    ///
    /// A new file is found after a crash only when its directory has been synced too, see
    /// [`Ring::sync_directory`]. What is no regular file ends in `InvalidInput`, or what the system says; a
    /// 65 537th open file ends in `EMFILE`.
    ///
    /// # Errors
    ///
    /// [`Refusal::Path`] and [`Refusal::Full`].
    pub fn start_open(&mut self, path: &Path, mode: FileMode) -> Result<OperationId, Refusal> {
        let path = KernelPath::new(path)?;
        let access = match mode.access {
            FileAccess::Read => libc::O_RDONLY,
            FileAccess::ReadWrite => libc::O_RDWR,
            FileAccess::CreateNew => libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
        };
        // Not to wait for the other end of a pipe, and not to make a terminal ours: neither is kept.
        let flags = access | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.address()).flags(flags).mode(PERMISSIONS);
        let id = self.insert_operation(Operation::new(None, Work::Open(path, mode))).map_err(|(why, _)| why)?;
        // Without ASYNC the kernel would try at first on this thread, and taking the lock of a directory may wait.
        let entry = entry.build().flags(squeue::Flags::ASYNC).user_data(id.tag(Kind::File));
        // SAFETY: the operation owns the path at an address that stays, until it has ended; a ring that cannot be
        // drained leaks it.
        unsafe { self.queue.push(entry) };
        Ok(id)
    }

    /// Asks about the file that an open has just opened; false when the operation is no open, or has failed.
    pub(crate) fn examine(&mut self, id: OperationId) -> bool {
        let (slot, generation) = id.parts();
        let Some(operation) = self.files.operations.get_mut(slot, generation) else {
            return false;
        };
        let Work::Open(_, mode) = operation.work else {
            return false;
        };
        if operation.result < 0 {
            return false;
        }
        // SAFETY: the result of an open that succeeded is a new descriptor that is in nobody's hands yet. The work is
        // replaced below, so it is taken only once.
        let descriptor = unsafe { OwnedFd::from_raw_fd(operation.result) };
        let examined = Examined { descriptor, mode, answer: Answer::new() };
        let target = types::Fd(examined.descriptor.as_raw_fd());
        let entry = opcode::Statx::new(target, c"".as_ptr(), examined.answer.0.as_ptr().cast())
            .flags(libc::AT_EMPTY_PATH)
            .mask(ASKED.bits())
            .build()
            .user_data(id.tag(Kind::File));
        operation.start(Work::Examine(examined));
        // SAFETY: the empty path is constant. The operation owns the descriptor and the memory of the answer, at an
        // address that stays, until it has ended; a ring that cannot be drained leaks both.
        unsafe { self.queue.push(entry) };
        true
    }
}

impl Files {
    /// Gives a file its slot, once the kernel has told about it. Closes it otherwise.
    pub(crate) fn take_in(&mut self, examined: Examined, result: i32) -> io::Result<OpenedFile> {
        let Examined { descriptor, mode, answer } = examined;
        if result < 0 {
            return Err(io::Error::from_raw_os_error(result.saturating_neg()));
        }
        let facts = self.facts_of(&descriptor, &answer.told(), mode.direct)?;
        // More files than there is room for are as good as too many descriptors.
        let id = self
            .insert_file(OpenFile::new(descriptor, facts))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        Ok(OpenedFile { id, facts })
    }

    /// What is known of an open file after it was asked for; switches to direct I/O if that is wanted and can be.
    pub(crate) fn facts_of(&mut self, descriptor: impl AsFd, told: &Statx, direct: bool) -> io::Result<FileFacts> {
        if FileType::from_raw_mode(u32::from(told.stx_mode)) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let block_bytes = if direct { self.direct_block_bytes(&descriptor, told) } else { None };
        let direct = set_flags(&descriptor, block_bytes.is_some())?;
        let block_bytes = block_bytes.filter(|_| direct).unwrap_or(BLOCK_BYTES_DEFAULT);
        Ok(FileFacts { direct, block_bytes, length_bytes: told.stx_size })
    }

    /// The block of direct I/O, if file and device can do it with buffers of ours.
    fn direct_block_bytes(&mut self, descriptor: impl AsFd, told: &Statx) -> Option<u32> {
        if self.is_memory(descriptor, told) {
            return None;
        }
        if told.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            return Some(BLOCK_BYTES_DEFAULT);
        }
        // Zeros mean that this very file cannot do it.
        let memory_bytes = told.stx_dio_mem_align;
        let can = told.stx_dio_offset_align != 0 && memory_bytes != 0 && memory_bytes <= BUFFER_ALIGNMENT_BYTES;
        can.then_some(told.stx_dio_offset_align)
    }

    /// Whether the file system of a file is memory. Asks only about those without a device, and about each of them once.
    pub(crate) fn is_memory(&mut self, descriptor: impl AsFd, told: &Statx) -> bool {
        if told.stx_dev_major != 0 {
            return false;
        }
        if let Some((_, is_memory)) = self.deviceless.iter().find(|(minor, _)| *minor == told.stx_dev_minor) {
            return *is_memory;
        }
        let is_memory = rustix::fs::fstatfs(descriptor).is_ok_and(|told| MEMORY_FILE_SYSTEMS.contains(&told.f_type));
        if self.deviceless.len() == REMEMBERED_MAX {
            self.deviceless.remove(0);
        }
        self.deviceless.push((told.stx_dev_minor, is_memory));
        is_memory
    }
}

/// Takes away that reads and writes do not wait, which was for the open alone, and switches to direct I/O if `direct`; gives
/// whether that could be.
fn set_flags(descriptor: impl AsFd, direct: bool) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(&descriptor)?.difference(OFlags::NONBLOCK);
    // Asking after the open rather than with it: a refused open may leave a new file behind.
    if direct && rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::DIRECT).is_ok() {
        return Ok(true);
    }
    rustix::fs::fcntl_setfl(&descriptor, flags)?;
    Ok(false)
}
