//! What can be done with files: write, read, sync, allocate, rename, unlink. Lives on the core of its ring.
//!
//! Each call starts one operation that ends in one [`Event::File`](crate::Event::File). Operations run
//! side by side, in any order: who needs one after another starts it when the first has ended. All
//! of them go through the ring; only [`Ring::open_file`] and [`Ring::open_directory`] block.
#![allow(unsafe_code, reason = "operations on files are queued here")]

use std::path::Path;

use io_uring::{opcode, squeue, types};

use crate::file::{FileId, OpenFile};
use crate::operation::{FileEvent, KernelPath, Operation, OperationId, Refusal, Refused, Work, Write, WriteMethod};
use crate::pool::AlignedBuffer;
use crate::queue::Completion;
use crate::ring::Ring;
use crate::tag::Kind;

/// Whether a write ends before or after its data are durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteSync {
    /// Before: they become durable with a later sync.
    None,
    /// After, in the way that [`Ring::set_sync_choice`] has chosen. This speaks of the bytes of this one
    /// write, with the length of the file that it needs, and not of earlier ones.
    Data,
}

/// Two ways of making a write durable. Which is faster depends on file system and device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SyncChoice {
    /// One write with RWF_DSYNC. A file whose file system does not know it goes over to the other way.
    WriteThrough,
    /// A write and a linked fdatasync.
    WriteThenSync,
}

/// The longest file that the kernel can speak of.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

impl Ring {
    /// How writes with [`WriteSync::Data`] become durable from now on: as measured by
    /// [`measure_sync`](crate::measure_sync) or as configured. At first with RWF_DSYNC.
    pub fn set_sync_choice(&mut self, choice: SyncChoice) {
        self.files.sync_choice = choice;
    }

    /// Whether the file system has been found not to know RWF_DSYNC.
    pub(crate) fn write_through_refused(&self, file: FileId) -> bool {
        self.usable(file).is_ok_and(|file| file.write_through_refused)
    }

    /// Operations on files that have been started and not yet told.
    pub fn file_operations(&self) -> usize {
        self.files.operations.len()
    }

    /// Writes the first `length` bytes of the buffer at `position`, both in bytes. Ends in
    /// [`FileOutcome::Written`](crate::FileOutcome::Written).
    ///
    /// # Errors
    ///
    /// [`Refused`] with the buffer when this cannot be: file unknown, too many operations, not aligned,
    /// beyond the buffer or any file.
    pub fn write(
        &mut self,
        file: FileId,
        position: u64,
        buffer: AlignedBuffer,
        length: u32,
        sync: WriteSync,
    ) -> Result<OperationId, Refused> {
        let write_through_refused = match self.check_range(file, position, &buffer, length) {
            Ok(file) => file.write_through_refused,
            Err(reason) => return Err(Refused { reason, buffer }),
        };
        let method = match (sync, self.files.sync_choice) {
            (WriteSync::None, _) => WriteMethod::Plain,
            (WriteSync::Data, SyncChoice::WriteThrough) if !write_through_refused => WriteMethod::WriteThrough,
            (WriteSync::Data, _) => WriteMethod::Linked { cuts: 0 },
        };
        let work = Work::Write(Write { buffer, position, length, method });
        let id = self.insert_with_buffer(file, work)?;
        self.queue_write(id);
        Ok(id)
    }

    /// Reads `length` bytes at `position` into the front of the buffer. Ends in
    /// [`FileOutcome::Read`](crate::FileOutcome::Read).
    ///
    /// # Errors
    ///
    /// As for [`Ring::write`].
    pub fn read(
        &mut self,
        file: FileId,
        position: u64,
        buffer: AlignedBuffer,
        length: u32,
    ) -> Result<OperationId, Refused> {
        let target = match self.check_range(file, position, &buffer, length) {
            Ok(file) => file.target(),
            Err(reason) => return Err(Refused { reason, buffer }),
        };
        let Some(target) = target else {
            return Err(Refused { reason: Refusal::UnknownFile, buffer });
        };
        let (address, index) = (buffer.address(), self.files.registered.index(&buffer));
        let id = self.insert_with_buffer(file, Work::Read(buffer))?;
        let entry = match index {
            Some(index) => opcode::ReadFixed::new(target, address, length, index).offset(position).build(),
            None => opcode::Read::new(target, address, length).offset(position).build(),
        };
        // SAFETY: the operation owns the buffer, of which `length` bytes were checked to exist, and makes
        // no reference to it; the file's slot keeps the descriptor. Both stay until the completion, and a
        // ring that cannot be drained leaks the buffer.
        unsafe { self.queue.push(entry.user_data(id.tag(Kind::File))) };
        Ok(id)
    }

    /// Makes all writes durable that have ended before (fdatasync), with the length of the file.
    ///
    /// After a failure nothing is known of them, and another sync that succeeds proves nothing.
    ///
    /// # Errors
    ///
    /// [`Refusal::UnknownFile`] and [`Refusal::Full`].
    pub fn sync(&mut self, file: FileId) -> Result<OperationId, Refusal> {
        self.start_on_file(file, |target| opcode::Fsync::new(target).flags(types::FsyncFlags::DATASYNC).build())
    }

    /// Reserves the first `bytes` of the file on the disk (fallocate) and makes it at least that long.
    /// What was not written before reads as zero.
    ///
    /// # Errors
    ///
    /// [`Refusal::UnknownFile`], [`Refusal::Full`], and [`Refusal::Length`] for 0 or more than any file
    /// can hold.
    pub fn allocate(&mut self, file: FileId, bytes: u64) -> Result<OperationId, Refusal> {
        if bytes == 0 || bytes > FILE_BYTES_MAX {
            return Err(Refusal::Length);
        }
        self.start_on_file(file, |target| opcode::Fallocate::new(target, bytes).build())
    }

    /// Makes the file `bytes` long. Where it grows it reads as zero, and nothing is reserved: this is for file systems on which
    /// [`Ring::allocate`] ends in `EOPNOTSUPP`. Kernels before 6.9 cannot do it in their queue: there it blocks.
    ///
    /// # Errors
    ///
    /// As for [`Ring::allocate`], but for a length of 0.
    pub fn set_length(&mut self, file: FileId, bytes: u64) -> Result<OperationId, Refusal> {
        if bytes > FILE_BYTES_MAX {
            return Err(Refusal::Length);
        }
        self.start_work_on_file(file, Work::SetLength(bytes), |target| opcode::Ftruncate::new(target, bytes).build())
    }

    /// Gives a file another name in the same file system, in place of one that has it. Durable after
    /// the directory has been synced.
    ///
    /// # Errors
    ///
    /// [`Refusal::Path`] and [`Refusal::Full`].
    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<OperationId, Refusal> {
        let (from, to) = (KernelPath::new(from)?, KernelPath::new(to)?);
        let here = types::Fd(libc::AT_FDCWD);
        let entry = opcode::RenameAt::new(here, from.address(), here, to.address()).build();
        self.start_on_paths(entry, Work::OnPaths((from, Some(to))))
    }

    /// Takes away the name of a file. Its blocks are freed when nobody has it open any more. Durable after
    /// the directory has been synced.
    ///
    /// # Errors
    ///
    /// [`Refusal::Path`] and [`Refusal::Full`].
    pub fn unlink(&mut self, path: &Path) -> Result<OperationId, Refusal> {
        let path = KernelPath::new(path)?;
        let entry = opcode::UnlinkAt::new(types::Fd(libc::AT_FDCWD), path.address()).build();
        self.start_on_paths(entry, Work::OnPaths((path, None)))
    }

    fn start_on_paths(&mut self, entry: squeue::Entry, work: Work) -> Result<OperationId, Refusal> {
        let id = self.insert_operation(Operation::new(None, work)).map_err(|(why, _)| why)?;
        // SAFETY: the operation owns the paths at addresses that stay, until it has ended.
        unsafe { self.queue.push(entry.user_data(id.tag(Kind::File))) };
        Ok(id)
    }

    fn start_on_file(
        &mut self,
        file: FileId,
        entry: impl FnOnce(types::Fd) -> squeue::Entry,
    ) -> Result<OperationId, Refusal> {
        self.start_work_on_file(file, Work::OnFile, entry)
    }

    fn start_work_on_file(
        &mut self,
        file: FileId,
        work: Work,
        entry: impl FnOnce(types::Fd) -> squeue::Entry,
    ) -> Result<OperationId, Refusal> {
        let target = self.usable(file)?.target().ok_or(Refusal::UnknownFile)?;
        let id = self.insert_operation(Operation::new(Some(file), work)).map_err(|(why, _)| why)?;
        self.hold_file(file);
        // SAFETY: the operation carries no pointer, and the file's slot keeps the descriptor open until
        // it has ended.
        unsafe { self.queue.push(entry(target).user_data(id.tag(Kind::File))) };
        Ok(id)
    }

    fn usable(&self, id: FileId) -> Result<&OpenFile, Refusal> {
        let (slot, generation) = id.parts();
        self.files.open.get(slot, generation).filter(|file| file.is_usable()).ok_or(Refusal::UnknownFile)
    }

    /// The file, if this many bytes of the buffer can be written or read there.
    fn check_range(
        &self,
        file: FileId,
        position: u64,
        buffer: &AlignedBuffer,
        length: u32,
    ) -> Result<&OpenFile, Refusal> {
        let file = self.usable(file)?;
        if length == 0 || length > buffer.bytes() {
            return Err(Refusal::Length);
        }
        if position.checked_add(u64::from(length)).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Refusal::Position);
        }
        let block_bytes = file.facts.block_bytes;
        let aligned = position.is_multiple_of(u64::from(block_bytes)) && length.is_multiple_of(block_bytes);
        if file.facts.direct && !aligned {
            return Err(Refusal::Alignment { block_bytes });
        }
        Ok(file)
    }

    fn hold_file(&mut self, id: FileId) {
        let (slot, generation) = id.parts();
        if let Some(file) = self.files.open.get_mut(slot, generation) {
            file.in_flight += 1;
        }
    }

    /// Gives an operation its slot, or gives it back.
    pub(crate) fn insert_operation(&mut self, operation: Operation) -> Result<OperationId, (Refusal, Work)> {
        match self.files.operations.insert(operation) {
            Ok(parts) => Ok(OperationId::new(parts)),
            Err(operation) => Err((Refusal::Full, operation.work)),
        }
    }

    fn insert_with_buffer(&mut self, file: FileId, work: Work) -> Result<OperationId, Refused> {
        match self.insert_operation(Operation::new(Some(file), work)) {
            Ok(id) => {
                self.hold_file(file);
                Ok(id)
            }
            Err((reason, Work::Write(Write { buffer, .. }) | Work::Read(buffer))) => Err(Refused { reason, buffer }),
            Err(_) => unreachable!("only reads and writes come here"),
        }
    }

    /// Queues a write in the way that it says.
    fn queue_write(&mut self, id: OperationId) {
        let (slot, generation) = id.parts();
        let cuts = self.queue.cuts();
        let Some(operation) = self.files.operations.get_mut(slot, generation) else {
            return;
        };
        let (Work::Write(write), Some(file)) = (&mut operation.work, operation.file) else {
            return;
        };
        let (slot, generation) = file.parts();
        let Some(target) = self.files.open.get(slot, generation).and_then(OpenFile::target) else {
            debug_assert!(false, "the file of a write was closed");
            return;
        };
        let flags = if write.method == WriteMethod::WriteThrough { self.files.write_through_flag } else { 0 };
        let (address, length, position) = (write.buffer.address(), write.length, write.position);
        let entry = match self.files.registered.index(&write.buffer) {
            Some(index) => {
                opcode::WriteFixed::new(target, address, length, index).offset(position).rw_flags(flags).build()
            }
            None => opcode::Write::new(target, address, length).offset(position).rw_flags(flags).build(),
        }
        .user_data(id.tag(Kind::File));
        if let WriteMethod::Linked { cuts: counted } = &mut write.method {
            *counted = cuts;
            operation.expect(2);
            let sync = data_sync(target, id);
            // SAFETY: the operation owns the buffer, of which `length` bytes were checked to exist; the
            // file's slot keeps the descriptor. Both stay until both completions have come, and a ring
            // that cannot be drained leaks the buffer.
            unsafe { self.queue.push_linked(entry, sync) };
        } else {
            operation.expect(1);
            // SAFETY: as above, with one completion.
            unsafe { self.queue.push(entry) };
        }
    }

    /// Takes the completion of an operation; gives its event when there is nothing more to come.
    pub(crate) fn complete_file(&mut self, completion: &Completion) -> Option<FileEvent> {
        let id = OperationId::of_tag(completion.tag);
        let (slot, generation) = id.parts();
        let operation = self.files.operations.get_mut(slot, generation)?;
        if !operation.note(completion.tag.kind, completion.result) || self.examine(id) || self.goes_on(id) {
            return None;
        }
        self.set_length_here(id);
        let operation = self.files.operations.remove(slot, generation)?;
        if let Some(file) = operation.file {
            if matches!(operation.work, Work::Close(_)) {
                let (slot, generation) = file.parts();
                self.files.open.remove(slot, generation);
            } else {
                self.release_file(file);
            }
        }
        Some(FileEvent { operation: id, outcome: operation.outcome(&mut self.files) })
    }

    /// Sets the length of a file here when the kernel does not know how to do it in its queue.
    fn set_length_here(&mut self, id: OperationId) {
        let (slot, generation) = id.parts();
        if let Some(operation) = self.files.operations.get_mut(slot, generation)
            && let (Work::SetLength(bytes), Some(file)) = (&operation.work, operation.file)
            && operation.result == -libc::EINVAL
            && let (slot, generation) = file.parts()
            && let Some(file) = self.files.open.get(slot, generation)
        {
            operation.result = file.set_length_blocking(*bytes);
        }
    }

    /// Whether a write needs another step before its end can be told; queues it then.
    fn goes_on(&mut self, id: OperationId) -> bool {
        let (slot, generation) = id.parts();
        let cuts = self.queue.cuts();
        let Some(operation) = self.files.operations.get_mut(slot, generation) else {
            return false;
        };
        let (result, sync_result) = (operation.result, operation.sync_result);
        let (Work::Write(write), Some(file)) = (&mut operation.work, operation.file) else {
            return false;
        };
        let (slot, generation) = file.parts();
        let Some(file) = self.files.open.get_mut(slot, generation) else {
            return false;
        };
        match write.method {
            WriteMethod::WriteThrough if result == -libc::EOPNOTSUPP => {
                file.write_through_refused = true;
                write.method = WriteMethod::Linked { cuts };
                self.queue_write(id);
                true
            }
            WriteMethod::Linked { cuts: counted }
                if counted != cuts && sync_result == 0 && u32::try_from(result) == Ok(write.length) =>
            {
                let Some(target) = file.target() else {
                    return false;
                };
                write.method = WriteMethod::SyncAgain;
                operation.expect(1);
                // SAFETY: a sync carries no pointer, and the file's slot keeps the descriptor open.
                unsafe { self.queue.push(data_sync(target, id)) };
                true
            }
            _ => false,
        }
    }
}

/// The sync that belongs to a write.
fn data_sync(target: types::Fd, id: OperationId) -> squeue::Entry {
    opcode::Fsync::new(target).flags(types::FsyncFlags::DATASYNC).build().user_data(id.tag(Kind::FileSync))
}
