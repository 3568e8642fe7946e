//! A core's deadlines: one entry a connection, moved lazily, so that a request costs no timer work.

use std::collections::BTreeSet;

use crate::connection::Link;

/// Connections by the time at which to look at them. At most one entry a connection, so it needs no bound of its own.
#[derive(Default, Debug)]
pub(crate) struct Timers {
    entries: BTreeSet<(u64, usize)>,
}

impl Timers {
    /// Makes sure that `link` is looked at when its earliest wish is due. A later wish than the entry's leaves the entry where
    /// it is: it is put off when it comes up.
    pub(crate) fn note(&mut self, link: &mut Link) {
        let wish = link.deadline_ms.min(link.stall_ms);
        if wish == u64::MAX || link.scheduled_ms.is_some_and(|scheduled| scheduled <= wish) {
            return;
        }
        self.forget(link);
        self.entries.insert((wish, link.socket.slot()));
        link.scheduled_ms = Some(wish);
    }

    /// Takes out the entry of a connection that ends.
    pub(crate) fn forget(&mut self, link: &mut Link) {
        if let Some(scheduled) = link.scheduled_ms.take() {
            self.entries.remove(&(scheduled, link.socket.slot()));
        }
    }

    /// The slot of a connection whose entry is due at `now_ms`.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<usize> {
        let first = *self.entries.first()?;
        (first.0 <= now_ms).then(|| {
            self.entries.pop_first();
            first.1
        })
    }

    /// When the next entry is due.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.entries.first().map(|(due, _)| *due)
    }
}
