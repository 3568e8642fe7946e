//! Waiting for a condition with a deadline: the one place of these tests that sleeps. On no core of the broker.

use std::time::{Duration, Instant};

/// How long a test waits for what must happen. Far above what any of it takes: only a fault makes a test wait this long.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Polls `condition` until it holds. Panics with `what` when [`LIMIT`] has passed.
pub async fn wait_until(what: &str, condition: impl AsyncFn() -> bool) {
    let until = Instant::now() + LIMIT;
    while !condition().await {
        assert!(Instant::now() < until, "waited {LIMIT:?} in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
