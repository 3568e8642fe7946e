//! The measured part of a run: it begins after the warm-up, ends with the run, and is bounded by looks at the
//! processor time of both sides.

use std::time::Duration;

use crate::clock::nanoseconds;
use crate::failure::Failure;
use crate::process::Process;
use crate::report::{Report, ratio};

/// Where a run stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// Nothing counts yet.
    WarmUp,
    /// What happens now counts.
    Measured,
    /// Nothing counts any more.
    Over,
}

/// Times and processor times at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    at_ns: u64,
    server_cpu_ns: u64,
    own_cpu_ns: u64,
}

/// Knows the stage and what the measured part cost.
pub(crate) struct Meter {
    stage: Stage,
    measured_from_ns: u64,
    measured_until_ns: u64,
    server: Option<Process>,
    first: Look,
    last: Look,
}

impl Meter {
    /// A meter for a run that starts at `start_ns`.
    pub(crate) fn new(start_ns: u64, warm_up: Duration, duration: Duration, server_id: Option<u32>) -> Meter {
        let measured_from_ns = start_ns.saturating_add(nanoseconds(warm_up));
        Meter {
            stage: Stage::WarmUp,
            measured_from_ns,
            measured_until_ns: measured_from_ns.saturating_add(nanoseconds(duration)),
            server: server_id.map(Process::new),
            first: Look::default(),
            last: Look::default(),
        }
    }

    /// A meter without warm-up for a run that ends by [`Meter::end`], or after `patience` at the latest.
    ///
    /// # Errors
    ///
    /// When the server's process cannot be looked at.
    pub(crate) fn until_ended(start_ns: u64, patience: Duration, server_id: Option<u32>) -> Result<Meter, Failure> {
        let mut meter = Meter::new(start_ns, Duration::ZERO, patience, server_id);
        meter.advance(start_ns)?;
        Ok(meter)
    }

    /// Goes on to the stage of this moment. Call it once a turn.
    ///
    /// # Errors
    ///
    /// When the server's process cannot be looked at.
    pub(crate) fn advance(&mut self, now_ns: u64) -> Result<Stage, Failure> {
        if self.stage == Stage::WarmUp && now_ns >= self.measured_from_ns {
            self.first = self.look(now_ns)?;
            self.stage = Stage::Measured;
        } else if self.stage == Stage::Measured && now_ns >= self.measured_until_ns {
            self.last = self.look(now_ns)?;
            self.stage = Stage::Over;
        }
        Ok(self.stage)
    }

    /// Ends the measured part now, before its time.
    ///
    /// # Errors
    ///
    /// When the server's process cannot be looked at.
    pub(crate) fn end(&mut self, now_ns: u64) -> Result<(), Failure> {
        if self.stage == Stage::WarmUp {
            self.first = self.look(now_ns)?;
        }
        if self.stage != Stage::Over {
            self.last = self.look(now_ns)?;
            self.stage = Stage::Over;
        }
        Ok(())
    }

    fn look(&self, at_ns: u64) -> Result<Look, Failure> {
        let server_cpu_ns = self.server.map_or(Ok(0), Process::cpu_ns)?;
        Ok(Look { at_ns, server_cpu_ns, own_cpu_ns: Process::own().cpu_ns()? })
    }

    /// Whether what happens now counts.
    pub(crate) fn is_measuring(&self) -> bool {
        self.stage == Stage::Measured
    }

    /// When the stage ends by itself, for the sleep of a loop.
    pub(crate) fn next_change_ns(&self) -> u64 {
        match self.stage {
            Stage::WarmUp => self.measured_from_ns,
            Stage::Measured | Stage::Over => self.measured_until_ns,
        }
    }

    /// The same as [`Meter::report`], with the name of what is counted in front of times and shares too: for reports
    /// of several parts.
    pub(crate) fn report_as(&self, singular: &str, plural: &str, count: u64, report: &mut Report) {
        let elapsed_ns = self.last.at_ns.saturating_sub(self.first.at_ns);
        report.decimal(format!("{plural}_s"), ratio(elapsed_ns, 1_000_000_000));
        report.decimal(format!("{plural}_per_s"), ratio(count, elapsed_ns) * 1e9);
        if self.server.is_some() {
            let used_ns = self.last.server_cpu_ns.saturating_sub(self.first.server_cpu_ns);
            report.decimal(format!("server_cpu_us_per_{singular}"), ratio(used_ns, count) / 1000.0);
        }
    }

    /// Adds the rate of `count` things, under names made from the singular and the plural, and what they cost the
    /// server.
    pub(crate) fn report(&self, singular: &str, plural: &str, count: u64, report: &mut Report) {
        let elapsed_ns = self.last.at_ns.saturating_sub(self.first.at_ns);
        report.count(plural, count);
        report.decimal("measured_s", ratio(elapsed_ns, 1_000_000_000));
        report.decimal(format!("{plural}_per_s"), ratio(count, elapsed_ns) * 1e9);
        if self.server.is_some() {
            let used_ns = self.last.server_cpu_ns.saturating_sub(self.first.server_cpu_ns);
            report.decimal(format!("server_cpu_us_per_{singular}"), ratio(used_ns, count) / 1000.0);
            report.decimal("server_cpu_share", ratio(used_ns, elapsed_ns));
        }
        let own_ns = self.last.own_cpu_ns.saturating_sub(self.first.own_cpu_ns);
        report.decimal("generator_cpu_share", ratio(own_ns, elapsed_ns));
    }
}
