//! How old messages are: by a clock that never jumps, whatever the wall clock does. Pure, on the core that owns the shard.
//!
//! The age clock goes on with the monotonic clock while the broker runs. Anchors in the log tie it to the wall clock, so that
//! a start can go on with it: only the time that the broker was down is taken from the wall clock, and never less than nothing.

use std::collections::VecDeque;

use ringmain_model::Offset;
use ringmain_wal::ClockAnchor;

use crate::command::Now;

/// Samples of one partition: this many divide its retention, so that a message goes at most that much too late. After a pause there is
/// one more.
const SAMPLES: u64 = 64;
/// Two samples are at least so far apart, in milliseconds.
const SAMPLE_MS_MIN: u64 = 100;
/// An anchor is logged when the wall clock has moved by more against the monotonic one, in milliseconds.
const SKEW_MS_MAX: i64 = 500;
/// An anchor is logged at least so often while something is logged, in milliseconds; while nothing is, the clocks are compared as often.
const ANCHOR_MS_MAX: u64 = 60_000;

/// The clock of a shard.
#[derive(Debug, Default)]
pub(crate) struct AgeClock {
    /// What a start found.
    found: Option<ClockAnchor>,
    /// Age at the monotonic time 0, once it is known.
    base_ms: Option<i64>,
    now_ms: u64,
    /// The anchor that the log has.
    logged: Option<ClockAnchor>,
    /// When the clocks were compared last.
    compared_ms: u64,
}

impl AgeClock {
    /// Goes on from an anchor.
    pub(crate) fn restore(&mut self, anchor: ClockAnchor) {
        self.found = Some(anchor);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Now) {
        let monotonic_ms = i64::try_from(now.monotonic_ms).unwrap_or(i64::MAX);
        // Before the loop runs there is no time.
        if self.base_ms.is_none() && now.unix_us != 0 {
            let age_ms = self.found.map_or(0, |anchor| {
                let down_ms = now.unix_us.saturating_sub(anchor.unix_us).max(0) / 1000;
                i64::try_from(anchor.age_ms).unwrap_or(i64::MAX).saturating_add(down_ms)
            });
            self.base_ms = Some(age_ms - monotonic_ms);
        }
        let age_ms = self.base_ms.map_or(0, |base_ms| base_ms.saturating_add(monotonic_ms));
        self.now_ms = u64::try_from(age_ms).unwrap_or(0);
    }

    /// Whether it has a time: at a start it gets one with the first event.
    pub(crate) fn runs(&self) -> bool {
        self.base_ms.is_some()
    }

    /// The age clock's time, milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The monotonic time at which the age clock stands at `age_ms`.
    pub(crate) fn monotonic_ms(&self, age_ms: u64) -> u64 {
        let age_ms = i64::try_from(age_ms).unwrap_or(i64::MAX);
        u64::try_from(age_ms.saturating_sub(self.base_ms.unwrap_or(0))).unwrap_or(0)
    }

    /// How the two clocks stand to each other now.
    pub(crate) fn anchor(&self, now: Now) -> ClockAnchor {
        ClockAnchor { age_ms: self.now_ms, unix_us: now.unix_us }
    }

    /// The anchor that the log should get, if it needs another. While nothing else is logged it needs one only when the wall clock
    /// has jumped: a start would take the jump for the time that the broker was down.
    pub(crate) fn anchor_to_log(&mut self, now: Now, is_logging: bool) -> Option<ClockAnchor> {
        self.compared_ms = self.now_ms;
        let anchor = self.anchor(now);
        let skew = |anchor: &ClockAnchor| anchor.unix_us / 1000 - i64::try_from(anchor.age_ms).unwrap_or(i64::MAX);
        let known = self.logged.as_ref().or(self.found.as_ref());
        let has_jumped = known.is_some_and(|known| (skew(known) - skew(&anchor)).abs() > SKEW_MS_MAX);
        let is_old = self.logged.as_ref().is_none_or(|logged| anchor.age_ms >= logged.age_ms + ANCHOR_MS_MAX);
        ((has_jumped || (is_logging && is_old)) && self.base_ms.is_some()).then_some(anchor)
    }

    /// When the clocks are to be compared, though nothing is logged: monotonic milliseconds.
    pub(crate) fn next_comparison_ms(&self) -> u64 {
        self.monotonic_ms(self.compared_ms + ANCHOR_MS_MAX)
    }

    /// The log has this anchor.
    pub(crate) fn note_logged(&mut self, anchor: ClockAnchor) {
        self.logged = Some(anchor);
    }
}

/// When the records of a partition came, in steps.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Ages {
    /// What is below each offset had come by that time of the age clock.
    pub(crate) samples: VecDeque<(Offset, u64)>,
    /// When the last record came.
    pub(crate) newest_ms: u64,
    /// Records below are known.
    pub(crate) end: Offset,
}

impl Ages {
    /// Records from `base` up to `end` came at `age_ms`, in a partition that keeps them for `max_age_ms`.
    pub(crate) fn note(&mut self, base: Offset, end: Offset, age_ms: u64, max_age_ms: u64) {
        if end <= self.end {
            return;
        }
        let step_ms = (max_age_ms / SAMPLES).max(SAMPLE_MS_MIN);
        let is_time = self.samples.back().is_none_or(|(_, last_ms)| age_ms >= last_ms + step_ms);
        // What came before may be much older than what comes now.
        if self.end > Offset(0) && is_time {
            self.samples.push_back((base, self.newest_ms));
        }
        (self.newest_ms, self.end) = (self.newest_ms.max(age_ms), end);
    }

    /// The first offset that is to be kept at `age_ms`.
    pub(crate) fn start_at(&self, age_ms: u64, max_age_ms: u64) -> Offset {
        let Some(cutoff_ms) = age_ms.checked_sub(max_age_ms) else { return Offset(0) };
        if self.newest_ms <= cutoff_ms {
            return self.end;
        }
        let gone = self.samples.partition_point(|(_, came_ms)| *came_ms <= cutoff_ms);
        gone.checked_sub(1).and_then(|last| self.samples.get(last)).map_or(Offset(0), |(offset, _)| *offset)
    }

    /// Forgets what is below `start`, which is gone.
    pub(crate) fn forget_below(&mut self, start: Offset) {
        while self.samples.get(1).is_some_and(|(offset, _)| *offset <= start) {
            self.samples.pop_front();
        }
    }

    /// When the next records are too old, if there are any.
    pub(crate) fn next_due_ms(&self, start: Offset, max_age_ms: u64) -> Option<u64> {
        if start >= self.end {
            return None;
        }
        let next = self.samples.iter().find(|(offset, _)| *offset > start).map(|(_, came_ms)| *came_ms);
        Some(next.unwrap_or(self.newest_ms).saturating_add(max_age_ms))
    }
}
