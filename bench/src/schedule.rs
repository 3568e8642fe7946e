//! When each message is meant to be sent; pure.

/// Nanoseconds of a second.
const SECOND_NS: u128 = 1_000_000_000;

/// How a generator decides to send.
#[derive(Clone, Debug)]
pub(crate) enum Pace {
    /// As soon as an earlier answer makes room. Latency counts from the moment of sending, so it does not show
    /// what a stall did to messages that were never sent.
    Closed,
    /// At fixed times that the server cannot influence. Latency counts from the intended time, so a stall counts
    /// against every message that it delayed.
    Open(Schedule),
}

impl Pace {
    /// The pace for an optional rate in messages per second, from `start_ns` on.
    pub(crate) fn of(rate: Option<u64>, start_ns: u64) -> Pace {
        rate.map_or(Pace::Closed, |rate| Pace::Open(Schedule::new(rate, start_ns)))
    }

    /// The time from which the latency of the next message counts, if one may be sent now.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<u64> {
        match self {
            Pace::Closed => Some(now_ns),
            Pace::Open(schedule) => schedule.take(now_ns),
        }
    }

    /// When the next message is meant to go; none when answers decide.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        match self {
            Pace::Closed => None,
            Pace::Open(schedule) => Some(schedule.next_due_ns()),
        }
    }

    /// Messages whose time has come and that were not sent.
    pub(crate) fn behind(&self, now_ns: u64) -> u64 {
        match self {
            Pace::Closed => 0,
            Pace::Open(schedule) => schedule.behind(now_ns),
        }
    }

    /// How latency is to be read, for the result.
    pub(crate) fn latency_basis(&self) -> &'static str {
        match self {
            Pace::Closed => "closed loop: from the moment of sending; messages delayed by a stall are not seen",
            Pace::Open(_) => {
                "open loop: from the intended send time, so a stall counts against every message it delayed \
                 (no coordinated omission)"
            }
        }
    }
}

/// Evenly spaced send times. The time of each message follows from its number, so errors do not add up.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    rate: u64,
    start_ns: u64,
    taken: u64,
}

impl Schedule {
    /// `rate` is in messages per second; 0 counts as 1.
    pub(crate) fn new(rate: u64, start_ns: u64) -> Schedule {
        Schedule { rate: rate.max(1), start_ns, taken: 0 }
    }

    fn due_ns(&self, number: u64) -> u64 {
        let after_ns = u128::from(number) * SECOND_NS / u128::from(self.rate);
        self.start_ns.saturating_add(u64::try_from(after_ns).unwrap_or(u64::MAX))
    }

    /// The intended time of the next message, if it has come; the message then counts as sent.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_due_ns();
        (due_ns <= now_ns).then(|| {
            self.taken += 1;
            due_ns
        })
    }

    pub(crate) fn next_due_ns(&self) -> u64 {
        self.due_ns(self.taken)
    }

    /// Messages that are due at `now_ns` and not taken.
    pub(crate) fn behind(&self, now_ns: u64) -> u64 {
        let Some(elapsed_ns) = now_ns.checked_sub(self.start_ns) else { return 0 };
        let due = u128::from(elapsed_ns) * u128::from(self.rate) / SECOND_NS + 1;
        u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests;
