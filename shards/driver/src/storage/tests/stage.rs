//! A folder that goes away with the test, and a disk whose effects are waited for.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringmain_uring::{Event, Ring, RingConfig};
use ringmain_wal::{Completion, Effect, FileName, OperationId, SegmentNumber};

use crate::storage::disk::{Disk, DiskSettings};

/// No condition of any test takes longer, unless it never comes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ringmain-driver-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Names and contents of all files, sorted.
    pub(super) fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(Result::unwrap);
        let file =
            |entry: std::fs::DirEntry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap());
        let mut files: Vec<_> = entries.map(file).collect();
        files.sort();
        files
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Few and small buffers, so that most writes and reads need several.
pub(super) const SMALL: DiskSettings =
    DiskSettings { direct: true, open_files_max: 4, buffers: 4, buffer_bytes: 8192, log_buffers: 1 };

/// A disk with one shard.
pub(super) struct Stage {
    pub(super) disk: Disk,
    pub(super) scratch: Scratch,
    ring: Ring,
    next: u64,
    ended: Vec<(OperationId, Completion)>,
}

impl Stage {
    pub(super) fn new(settings: DiskSettings) -> Self {
        let config = RingConfig {
            submission_entries: 8,
            completion_entries: 64,
            buffer_count: 2,
            buffer_bytes: 4096,
            sockets_max: 4,
        };
        let mut ring = Ring::new(&config).unwrap();
        let scratch = Scratch::new();
        let disk = Disk::new(&mut ring, vec![scratch.path().to_owned()], settings).unwrap();
        Self { disk, scratch, ring, next: 0, ended: Vec::new() }
    }

    pub(super) fn start(&mut self, effect: Effect) -> OperationId {
        let operation = OperationId(self.next);
        self.next += 1;
        self.disk.start(&mut self.ring, 0, operation, effect);
        operation
    }

    fn take_done(&mut self) {
        while let Some(done) = self.disk.take_done() {
            assert_eq!(done.index, 0);
            self.ended.push((done.operation, done.completion));
        }
    }

    /// What came of an operation without asking the kernel.
    pub(super) fn ended(&mut self, operation: OperationId) -> Option<Completion> {
        self.take_done();
        let at = self.ended.iter().position(|(ended, _)| *ended == operation)?;
        Some(self.ended.swap_remove(at).1)
    }

    pub(super) fn end(&mut self, operation: OperationId) -> Completion {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(completion) = self.ended(operation) {
                return completion;
            }
            assert!(Instant::now() < deadline, "never ended: {operation:?}");
            self.ring.turn(Some(Duration::from_millis(50))).unwrap();
            loop {
                match self.ring.next_event() {
                    None => break,
                    Some(Event::File(event)) => self.disk.complete(&mut self.ring, event),
                    Some(_) => {}
                }
            }
        }
    }

    /// What the ring has been given and has not told the end of.
    pub(super) fn in_flight(&self) -> usize {
        self.ring.file_operations()
    }

    pub(super) fn perform(&mut self, effect: Effect) -> Completion {
        let operation = self.start(effect);
        self.end(operation)
    }
}

pub(super) fn segment(number: u64) -> FileName {
    FileName::Segment(SegmentNumber(number))
}

/// Bytes that differ from place to place.
pub(super) fn pattern(length: usize, seed: u8) -> Bytes {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed)).collect()
}
