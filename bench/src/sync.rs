//! Writes single blocks durably by the same ring as the broker's log, without any broker: the floor under the latency
//! of a durable publish.

use std::path::Path;
use std::time::{Duration, Instant};

use ringmain_uring::{
    BufferPool, Event, FileAccess, FileId, FileMode, FileOutcome, OperationId, Ring, RingConfig, SyncChoice, WriteSync,
};

use crate::clock::nanoseconds;
use crate::command_line::SyncOptions;
use crate::failure::Failure;
use crate::latency::Latencies;
use crate::report::Report;

/// The file is this many writes long and is written over from its front again.
const WRITES_PER_FILE: u64 = 1024;

/// A disk that takes longer for one write is given up.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

struct Probe {
    ring: Ring,
    file: FileId,
    pool: BufferPool,
    write_bytes: u32,
    next: u64,
}

/// Runs the measurement: both ways in turn, so that a disk that becomes slower does so for both.
///
/// # Errors
///
/// When the file cannot be made or written.
pub(crate) fn run(options: &SyncOptions) -> Result<Report, Failure> {
    let mut probe = Probe::start(&options.directory, options.bytes)?;
    let (mut through, mut then) = (Latencies::new()?, Latencies::new()?);
    let end = Instant::now() + options.duration_s;
    let mut writes = 0;
    while Instant::now() < end {
        probe.ring.set_sync_choice(SyncChoice::WriteThrough);
        through.record(nanoseconds(probe.write(WriteSync::Data)?));
        probe.ring.set_sync_choice(SyncChoice::WriteThenSync);
        then.record(nanoseconds(probe.write(WriteSync::Data)?));
        writes += 1;
    }
    let direct = probe.ring.file_facts(probe.file).is_some_and(|facts| facts.direct);
    let mut report = Report::new("sync");
    report.count("write_bytes", options.bytes.into());
    report.count("writes_each_way", writes);
    report.word("direct_io", if direct { "yes" } else { "no" });
    through.report("dsync", &mut report);
    then.report("fdatasync", &mut report);
    Ok(report)
}

impl Probe {
    /// Makes the file, without a name, and writes all of it once.
    fn start(directory: &Path, write_bytes: u32) -> Result<Probe, Failure> {
        let config = RingConfig {
            submission_entries: 8,
            completion_entries: 16,
            buffer_count: 1,
            buffer_bytes: 4096,
            sockets_max: 1,
        };
        let mut ring = Ring::new(&config)?;
        let path = directory.join(format!(".sync-probe-{}", std::process::id()));
        let file = ring.open_file(&path, FileMode { access: FileAccess::CreateNew, direct: true })?;
        std::fs::remove_file(&path).map_err(|source| Failure::io("cannot unlink the file", source))?;
        let pool = ring.buffer_pool(1, write_bytes)?;
        let mut probe = Probe { ring, file, pool, write_bytes, next: 0 };
        for _ in 0..WRITES_PER_FILE {
            probe.write(WriteSync::None)?;
        }
        probe.write(WriteSync::Data)?;
        Ok(probe)
    }

    /// Writes the next block and gives the time that it took.
    fn write(&mut self, sync: WriteSync) -> Result<Duration, Failure> {
        let buffer = self.pool.take().ok_or_else(|| Failure::said("the buffer is still in use"))?;
        let position = self.next % WRITES_PER_FILE * u64::from(self.write_bytes);
        self.next += 1;
        let start = Instant::now();
        let operation = self
            .ring
            .write(self.file, position, buffer, self.write_bytes, sync)
            .map_err(|refused| Failure::said(format!("a write is refused: {:?}", refused.reason)))?;
        match self.wait(operation, start + ANSWER_TIME_MAX)? {
            FileOutcome::Written { error: None, written_bytes, .. } if written_bytes == self.write_bytes => {
                Ok(start.elapsed())
            }
            FileOutcome::Written { error: Some(source), .. } => Err(Failure::io("cannot write", source)),
            _ => Err(Failure::said("a write was cut short")),
        }
    }

    fn wait(&mut self, operation: OperationId, deadline: Instant) -> Result<FileOutcome, Failure> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::said("the disk does not answer"));
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
