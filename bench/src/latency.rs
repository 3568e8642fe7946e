//! Latencies of a run, counted exactly to three digits.

use hdrhistogram::Histogram;

use crate::failure::Failure;
use crate::report::Report;

/// Longer ones count as this: two minutes.
const LATENCY_NS_MAX: u64 = 120_000_000_000;

/// Digits that are kept.
const DIGITS: u8 = 3;

/// A histogram of nanoseconds.
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    pub(crate) fn new() -> Result<Latencies, Failure> {
        Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)
            .map(|histogram| Latencies { histogram })
            .map_err(|error| Failure::said(format!("cannot make a histogram: {error}")))
    }

    pub(crate) fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns);
    }

    /// Adds the usual quantiles, in microseconds, each under `name` and its own suffix.
    pub(crate) fn report(&self, name: &str, report: &mut Report) {
        if self.histogram.is_empty() {
            return;
        }
        for (suffix, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)] {
            let latency_ns = self.histogram.value_at_quantile(quantile);
            report.decimal(format!("{name}_us_{suffix}"), microseconds(latency_ns));
        }
        report.decimal(format!("{name}_us_max"), microseconds(self.histogram.max()));
    }
}

#[expect(clippy::cast_precision_loss, reason = "two minutes in nanoseconds need 37 bits of the 53")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}
