//! Which processors this process may use, and where a loop's thread runs. Called at the start of each loop.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that the calling thread may run on, in ascending order and never empty.
///
/// Where the system does not say, for example with more than 1024 processors, they are numbered from 0
/// to the parallelism that the standard library reports.
pub fn allowed() -> Vec<usize> {
    let listed: Vec<usize> = sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
        .unwrap_or_default();
    if listed.is_empty() {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        return (0..count).collect();
    }
    listed
}

/// Keeps the calling thread on one processor. Placement is a hint: a caller goes on when this fails.
///
/// # Errors
///
/// `InvalidInput` when the number is beyond what can be named; otherwise what the system says, for
/// example that the processor is offline or not allowed.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)?;
    Ok(())
}
