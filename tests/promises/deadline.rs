//! Waiting for a condition with a deadline: the one place of these tests that sleeps.

use crate::chance::scaled;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen. Far above what any of it takes, so that a loaded machine
/// fails nothing; only a fault makes a test wait this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Polls `condition` until it holds. Panics with `what` when [`LIMIT`] has passed, or a multiple of it when the heavy
/// loops are made longer.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = LIMIT * u32::try_from(scaled(1)).unwrap();
    let until = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < until, "waited {limit:?} in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Polls `value` until it gives something. Panics with `what` when [`LIMIT`] has passed.
pub(crate) fn wait_for<T>(what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_until(what, || {
        found = value();
        found.is_some()
    });
    found.unwrap()
}

/// Watches a quantity that must stay still, such as consumed processor time, for a span of time. Gives its growth.
pub(crate) fn growth_during(span: Duration, quantity: impl Fn() -> u64) -> u64 {
    let (start, before) = (Instant::now(), quantity());
    while start.elapsed() < span {
        thread::sleep(Duration::from_millis(50));
    }
    quantity().saturating_sub(before)
}
