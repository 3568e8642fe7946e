//! The generator's ring and how long its loop sleeps.

use std::time::Duration;

use ringmain_uring::{Ring, RingConfig};

use crate::failure::Failure;

/// A loop that must act sooner than this looks instead of sleeping, as a timer of the kernel would be late.
const LOOK_NS: u64 = 100_000;

/// Receive buffers of the generator's ring.
pub(crate) const BUFFER_COUNT: u16 = 1024;

/// How long a loop may sleep that has to act at `wake_ns`.
pub(crate) fn sleep(now_ns: u64, wake_ns: u64) -> Duration {
    let left_ns = wake_ns.saturating_sub(now_ns);
    if left_ns < LOOK_NS { Duration::ZERO } else { Duration::from_nanos(left_ns - LOOK_NS / 2) }
}

/// A ring for this many connections.
pub(crate) fn ring_for(connections: usize) -> Result<Ring, Failure> {
    let config = RingConfig {
        buffer_count: BUFFER_COUNT,
        completion_entries: 32_768,
        sockets_max: u32::try_from(connections).unwrap_or(u32::MAX).saturating_add(16),
        ..RingConfig::default()
    };
    Ok(Ring::new(&config)?)
}
