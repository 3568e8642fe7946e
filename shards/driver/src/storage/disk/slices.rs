//! Slices of writes and reads between the kernel and their jobs: handed out, taken back, tried again. On the core of the ring.

use std::io;

use ringmain_model::limit::{FILE_OPERATIONS_MAX, SLICES_IN_FLIGHT_MAX};
use ringmain_uring::{AlignedBuffer, FileId, Ring, WriteSync};
use ringmain_wal::Failure;

use super::{Disk, Gone, Job, JobKey, NOT_FOUND, Task, error_of};
use crate::storage::blocking::failure_of;
use crate::storage::job::{Slice, whole_blocks_in};

impl Disk {
    pub(super) fn push_slices(&mut self, ring: &mut Ring, key: JobKey, kept_back: usize) -> Gone {
        loop {
            let Some(job) = self.jobs.get_mut(key) else { return Gone::All };
            let (handed, in_flight, file) = match &job.task {
                Task::Write(file, writing) => (writing.is_handed(), writing.in_flight, *file),
                Task::Read(file, reading) => (reading.is_handed(), reading.in_flight, *file),
                _ => return Gone::All,
            };
            if handed {
                return Gone::All;
            }
            if in_flight >= SLICES_IN_FLIGHT_MAX {
                return Gone::Capped;
            }
            if self.pool.available() <= kept_back {
                return Gone::NoBuffer;
            }
            if ring.file_operations() >= FILE_OPERATIONS_MAX {
                return Gone::Full;
            }
            let Some(mut buffer) = self.pool.take() else { return Gone::NoBuffer };
            let id = self.files.get_mut(file).map(|known| known.id);
            let slice = match &mut job.task {
                Task::Write(_, writing) => writing.fill(&mut buffer),
                Task::Read(_, reading) => reading.next_slice(),
                _ => return Gone::All,
            };
            if let Err(error) = self.push_slice(ring, key, id, slice, buffer) {
                self.slice_ended(key, Err(failure_of(&error)));
                return Gone::All;
            }
        }
    }

    /// Gives the kernel one slice.
    fn push_slice(
        &mut self,
        ring: &mut Ring,
        key: JobKey,
        file: Option<FileId>,
        slice: Slice,
        buffer: AlignedBuffer,
    ) -> io::Result<()> {
        let Some(job) = self.jobs.get(key) else { return Ok(()) };
        let file = file.ok_or_else(|| io::Error::from_raw_os_error(NOT_FOUND))?;
        let started = match &job.task {
            Task::Write(_, writing) => {
                let sync = if writing.durable { WriteSync::Data } else { WriteSync::None };
                ring.write(file, slice.position, buffer, slice.length, sync)
            }
            _ => ring.read(file, slice.position, buffer, slice.length),
        };
        let operation = started.map_err(|refused| error_of(&refused.reason))?;
        self.awaited.insert(operation, (key, slice));
        Ok(())
    }

    pub(super) fn written(
        &mut self,
        ring: &mut Ring,
        key: JobKey,
        slice: Slice,
        mut buffer: AlignedBuffer,
        (written, synced, outcome): (u32, bool, io::Result<()>),
    ) {
        let Some(Job { task: Task::Write(file, writing), .. }) = self.jobs.get_mut(key) else { return };
        writing.synced &= synced;
        if let Err(error) = outcome {
            return self.slice_ended(key, Err(failure_of(&error)));
        }
        if written >= slice.length {
            writing.wrote(slice.length);
            return self.slice_ended(key, Ok(()));
        }
        // It stopped on the way, and the rest will tell why, most likely that there is no room. Whole blocks count.
        let whole = whole_blocks_in(written as usize);
        let moved = u32::try_from(whole).unwrap_or(0);
        writing.wrote(moved);
        if whole == 0 {
            let failure = Failure::Short { written: u64::from(written) };
            return self.slice_ended(key, Err(failure));
        }
        let rest =
            Slice { position: slice.position + u64::from(moved), length: slice.length - moved, number: slice.number };
        buffer.copy_within(whole..slice.length as usize, 0);
        let id = self.files.get_mut(*file).map(|known| known.id);
        if self.push_slice(ring, key, id, rest, buffer).is_err() {
            let failure = Failure::Short { written: u64::from(written) };
            self.slice_ended(key, Err(failure));
        }
    }

    pub(super) fn read(
        &mut self,
        ring: &mut Ring,
        key: JobKey,
        slice: Slice,
        buffer: AlignedBuffer,
        outcome: io::Result<u32>,
    ) {
        let Some(Job { task: Task::Read(file, reading), .. }) = self.jobs.get_mut(key) else { return };
        let read_bytes = match outcome {
            Ok(read_bytes) => read_bytes as usize,
            Err(error) => return self.slice_ended(key, Err(failure_of(&error))),
        };
        let Some(rest) = reading.got(slice, &buffer[..read_bytes.min(buffer.len())]) else {
            return self.slice_ended(key, Ok(()));
        };
        let id = self.files.get_mut(*file).map(|known| known.id);
        if let Err(error) = self.push_slice(ring, key, id, rest, buffer) {
            self.slice_ended(key, Err(failure_of(&error)));
        }
    }

    /// One slice has ended; with the last one the job has.
    fn slice_ended(&mut self, key: JobKey, outcome: Result<(), Failure>) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        match &mut job.task {
            Task::Write(file, writing) => {
                writing.in_flight -= 1;
                if let Err(failure) = outcome {
                    writing.fail(failure);
                }
                if writing.in_flight > 0 || !writing.is_handed() {
                    return;
                }
                let durable = writing.durable && writing.synced && writing.failure.is_none();
                let (completion, file) = (writing.completion(), *file);
                if let Some(known) = self.files.get_mut(file) {
                    known.writing = known.writing.saturating_sub(1);
                    known.clean &= durable;
                }
                self.end(key, Some(file), completion);
            }
            Task::Read(file, reading) => {
                reading.in_flight -= 1;
                if let Err(failure) = outcome {
                    reading.fail(failure);
                }
                if reading.in_flight == 0 && reading.is_handed() {
                    let (completion, file) = (reading.completion(), *file);
                    self.end(key, Some(file), completion);
                }
            }
            _ => {}
        }
    }
}
