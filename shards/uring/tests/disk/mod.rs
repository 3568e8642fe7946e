//! The disk on which tests of files play: a directory that goes away, and a ring that ends operations.
#![allow(dead_code, reason = "no test uses all of it")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringmain_uring::{
    AlignedBuffer, BufferPool, Event, FileAccess, FileId, FileMode, FileOutcome, OpenedFile, OperationId, Ring,
    RingConfig, SyncChoice, WriteSync,
};

/// No condition of any test takes longer, unless it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const BOTH: [SyncChoice; 2] = [SyncChoice::WriteThrough, SyncChoice::WriteThenSync];

pub(crate) const NEW: FileMode = FileMode { access: FileAccess::CreateNew, direct: true };

pub(crate) const BLOCK: u32 = 4096;

/// A directory of this test alone, removed at its end.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    /// On the disk that holds what was built.
    pub(crate) fn new() -> Scratch {
        Scratch::under(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    pub(crate) fn under(parent: &Path) -> Scratch {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("ringmain-files-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch { path }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// What a write has come to.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) bytes: u32,
    pub(crate) synced: bool,
    pub(crate) error: Option<i32>,
}

/// A ring with a pool, and the events that nobody has asked for yet.
pub(crate) struct Disk {
    pub(crate) ring: Ring,
    pub(crate) pool: BufferPool,
    ended: Vec<(OperationId, FileOutcome)>,
}

impl Disk {
    pub(crate) fn new() -> Disk {
        Disk::with(64, 128, 16, 64 * 1024)
    }

    pub(crate) fn with(submission_entries: u32, completion_entries: u32, buffers: u16, bytes: u32) -> Disk {
        let config =
            RingConfig { submission_entries, completion_entries, buffer_count: 2, buffer_bytes: 4096, sockets_max: 4 };
        let mut ring = Ring::new(&config).unwrap();
        let pool = ring.buffer_pool(buffers, bytes).unwrap();
        Disk { ring, pool, ended: Vec::new() }
    }

    /// One turn, and the events that it tells.
    pub(crate) fn turn(&mut self, wait: Duration) {
        self.ring.turn(Some(wait)).unwrap();
        while let Some(event) = self.ring.next_event() {
            if let Event::File(event) = event {
                self.ended.push((event.operation, event.outcome));
            }
        }
    }

    /// Turns until this operation has ended.
    pub(crate) fn end(&mut self, operation: OperationId) -> FileOutcome {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(index) = self.ended.iter().position(|(id, _)| *id == operation) {
                return self.ended.swap_remove(index).1;
            }
            assert!(Instant::now() < deadline, "never ended: {operation:?}; ended: {:?}", self.ended);
            self.turn(Duration::from_millis(50));
        }
    }

    /// Events that have come and were not asked for.
    pub(crate) fn unasked(&self) -> usize {
        self.ended.len()
    }

    pub(crate) fn finish(&mut self, operation: OperationId) -> io::Result<()> {
        match self.end(operation) {
            FileOutcome::Finished(result) => result,
            other => panic!("unexpected: {other:?}"),
        }
    }

    pub(crate) fn opened(&mut self, operation: OperationId) -> io::Result<OpenedFile> {
        match self.end(operation) {
            FileOutcome::Opened(result) => result,
            other => panic!("unexpected: {other:?}"),
        }
    }

    pub(crate) fn written(&mut self, operation: OperationId) -> Written {
        match self.end(operation) {
            FileOutcome::Written { buffer, written_bytes, synced, error } => {
                let error = error.map(|error| error.raw_os_error().unwrap());
                Written { buffer, bytes: written_bytes, synced, error }
            }
            other => panic!("unexpected: {other:?}"),
        }
    }

    /// A taken buffer with these bytes at its front.
    pub(crate) fn filled(&self, bytes: &[u8]) -> AlignedBuffer {
        let mut buffer = self.pool.take().expect("a free buffer");
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    pub(crate) fn start_write(&mut self, file: FileId, position: u64, bytes: &[u8], sync: WriteSync) -> OperationId {
        let buffer = self.filled(bytes);
        self.ring.write(file, position, buffer, bytes.len() as u32, sync).unwrap()
    }

    pub(crate) fn write(&mut self, file: FileId, position: u64, bytes: &[u8], sync: WriteSync) -> Written {
        let operation = self.start_write(file, position, bytes, sync);
        self.written(operation)
    }

    pub(crate) fn read(&mut self, file: FileId, position: u64, length: u32) -> Vec<u8> {
        let buffer = self.pool.take().expect("a free buffer");
        let operation = self.ring.read(file, position, buffer, length).unwrap();
        match self.end(operation) {
            FileOutcome::Read { buffer, read_bytes, error: None } => buffer[..read_bytes as usize].to_vec(),
            other => panic!("unexpected: {other:?}"),
        }
    }

    pub(crate) fn close(&mut self, file: FileId) {
        let operation = self.ring.close_file(file).unwrap();
        self.finish(operation).unwrap();
    }
}

/// Runs one test of this program once more, alone in a process of its own.
pub(crate) fn in_child(test: &str) -> bool {
    const CHILD: &str = "RINGMAIN_FILES_ALONE";
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        return true;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, test)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    false
}
