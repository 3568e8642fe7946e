//! The generator's one clock: nanoseconds since it started.

use std::time::{Duration, Instant};

/// Counts from the start of the process's measurement, so that a time fits into 64 bits and into a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// Nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.origin.elapsed())
    }
}

/// A duration in nanoseconds; 584 years at most.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
