//! Finds out which way of making writes durable is faster here. Runs once on the main thread, before the loops.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::event::Event;
use crate::file::{FileAccess, FileId, FileMode};
use crate::operation::{FileOutcome, OperationId};
use crate::pool::{BUFFER_ALIGNMENT_BYTES, BufferPool};
use crate::ring::{Ring, RingConfig};
use crate::storage::{SyncChoice, WriteSync};

/// Blocks of the file: they are written first, because a log is written over blocks that exist.
const BLOCKS: u32 = 64;

/// How often each way is measured at most.
const ROUNDS_MAX: u32 = 32;

/// No round begins later than this.
const TIME_MAX: Duration = Duration::from_millis(500);

/// A disk that takes longer for one write is given up.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// What has been measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SyncMeasure {
    /// The way that is clearly faster; the linked sync when neither is.
    pub choice: SyncChoice,
    /// Microseconds that the fastest quarter of writes of one block took at most with RWF_DSYNC; none when the
    /// file system does not know it.
    pub write_through_us: Option<u64>,
    /// The same with a linked fdatasync.
    pub write_then_sync_us: u64,
}

/// Measures both ways of making a write durable on the file system of this directory, in a file without
/// a name and 256 KiB long, by a ring of its own.
///
/// Takes about half a second at most; a disk that hangs is given up after about 12 seconds.
///
/// # Errors
///
/// What [`Ring::new`] says; [`Error::System`] with what the file system says, for example that it is full
/// or read-only, or with `TimedOut`.
pub fn measure_sync(directory: &Path) -> Result<SyncMeasure, Error> {
    let config = RingConfig {
        submission_entries: 8,
        completion_entries: 16,
        buffer_count: 1,
        buffer_bytes: BUFFER_ALIGNMENT_BYTES,
        sockets_max: 1,
    };
    let mut ring = Ring::new(&config)?;
    let path = directory.join(format!(".sync-measure-{}", std::process::id()));
    // A process with this number may have been killed between these three lines. Usually there is none.
    let _ = std::fs::remove_file(&path);
    let file = ring.open_file(&path, FileMode { access: FileAccess::CreateNew, direct: true })?;
    std::fs::remove_file(&path).map_err(|source| Error::System { what: "unlink", source })?;

    let block_bytes = ring.file_facts(file).map_or(0, |facts| facts.block_bytes.max(BUFFER_ALIGNMENT_BYTES));
    let pool = ring.buffer_pool(1, block_bytes)?;
    let mut probe = Probe { ring, file, pool, block_bytes };
    for block in 0..BLOCKS {
        probe.write(block, WriteSync::None)?;
    }
    // Also makes the length durable, so that no later sync has to.
    probe.write(0, WriteSync::Data)?;
    probe.compare()
}

struct Probe {
    ring: Ring,
    file: FileId,
    pool: BufferPool,
    block_bytes: u32,
}

impl Probe {
    /// Both ways in turn, so that a disk that becomes slower does so for both.
    fn compare(&mut self) -> Result<SyncMeasure, Error> {
        let start = Instant::now();
        let (mut through, mut then) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS_MAX {
            if round > 0 && start.elapsed() >= TIME_MAX {
                break;
            }
            self.ring.set_sync_choice(SyncChoice::WriteThrough);
            through.push(self.write(2 * round % BLOCKS, WriteSync::Data)?);
            self.ring.set_sync_choice(SyncChoice::WriteThenSync);
            then.push(self.write((2 * round + 1) % BLOCKS, WriteSync::Data)?);
        }
        let refused = self.ring.write_through_refused(self.file);
        let write_through_us = if refused { None } else { Some(quartile_us(through)) };
        let write_then_sync_us = quartile_us(then);
        let choice = match write_through_us {
            // Only when it is clearly faster: with RWF_DSYNC the end of a write runs on the processor that submitted it, and on
            // a busy one durable publishes were measured at a third to a fifth of what the linked sync gave.
            Some(through_us) if through_us.saturating_mul(5) <= write_then_sync_us.saturating_mul(4) => {
                SyncChoice::WriteThrough
            }
            _ => SyncChoice::WriteThenSync,
        };
        Ok(SyncMeasure { choice, write_through_us, write_then_sync_us })
    }

    /// Writes one block and gives the time that it took.
    fn write(&mut self, block: u32, sync: WriteSync) -> Result<Duration, Error> {
        let busy = || Error::Full { what: "operations on files" };
        let buffer = self.pool.take().ok_or_else(busy)?;
        let start = Instant::now();
        let position = u64::from(block) * u64::from(self.block_bytes);
        let operation = self.ring.write(self.file, position, buffer, self.block_bytes, sync).map_err(|_| busy())?;
        match self.wait(operation, start + ANSWER_TIME_MAX)? {
            FileOutcome::Written { error: Some(source), .. } => Err(Error::System { what: "write", source }),
            FileOutcome::Written { written_bytes, .. } if written_bytes < self.block_bytes => {
                Err(Error::System { what: "write", source: std::io::ErrorKind::StorageFull.into() })
            }
            _ => Ok(start.elapsed()),
        }
    }

    fn wait(&mut self, operation: OperationId, deadline: Instant) -> Result<FileOutcome, Error> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::System { what: "write", source: std::io::ErrorKind::TimedOut.into() });
            }
            self.ring.turn(Some(left))?;
            while let Some(event) = self.ring.next_event() {
                if let Event::File(event) = event
                    && event.operation == operation
                {
                    return Ok(event.outcome);
                }
            }
        }
    }
}

/// The time below which a quarter lies, in microseconds: what else the machine does can only add to it, so the
/// fast ones speak of the disk. There is at least one time.
fn quartile_us(mut times: Vec<Duration>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 4).map_or(u64::MAX, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}
