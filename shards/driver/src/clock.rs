//! The clocks of one core: read once a turn, so that a turn has one time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ringmain_engine::Now;

/// Where monotonic time began: the same instant for all cores of a broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            unix_us: i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX),
            monotonic_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}
