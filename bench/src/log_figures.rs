//! What the broker's metrics say about its log, looked at before and after a run.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use ringmain_wire::http::{BodyDecoder, HeadLimits, Method, decode_response_head};

use crate::connect::connect;
use crate::failure::Failure;
use crate::report::{Report, ratio};
use crate::setup::get_request;

/// How long the server may take for its metrics.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Totals over all shards.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct LogFigures {
    commits: u64,
    commit_bytes: u64,
    commit_entries: u64,
    checkpoints: u64,
    segment_bytes: u64,
}

impl LogFigures {
    /// Asks the server.
    ///
    /// # Errors
    ///
    /// When it cannot be reached or does not tell them.
    pub(crate) fn look(server: SocketAddr) -> Result<LogFigures, Failure> {
        let text = metrics(server)?;
        Ok(LogFigures {
            commits: total(&text, "ringmain_wal_commits_total")?,
            commit_bytes: total(&text, "ringmain_wal_commit_bytes_total")?,
            commit_entries: total(&text, "ringmain_wal_commit_entries_total")?,
            checkpoints: total(&text, "ringmain_wal_checkpoints_total")?,
            segment_bytes: total(&text, "ringmain_wal_segment_bytes_total")?,
        })
    }

    /// What has come to these since `earlier`.
    pub(crate) fn since(&self, earlier: &LogFigures) -> LogFigures {
        LogFigures {
            commits: self.commits.saturating_sub(earlier.commits),
            commit_bytes: self.commit_bytes.saturating_sub(earlier.commit_bytes),
            commit_entries: self.commit_entries.saturating_sub(earlier.commit_entries),
            checkpoints: self.checkpoints.saturating_sub(earlier.checkpoints),
            segment_bytes: self.segment_bytes.saturating_sub(earlier.segment_bytes),
        }
    }

    /// Adds what they say of a run of `run_ns` that published so many messages.
    pub(crate) fn report(&self, messages: u64, payload_bytes: u64, run_ns: u64, report: &mut Report) {
        let payload_bytes_in_all = messages.saturating_mul(payload_bytes);
        report.count("log_commits", self.commits);
        report.decimal("log_commits_per_s", ratio(self.commits, run_ns) * 1e9);
        report.decimal("log_messages_per_commit", ratio(messages, self.commits));
        report.decimal("log_entries_per_commit", ratio(self.commit_entries, self.commits));
        report.decimal("log_bytes_per_commit", ratio(self.commit_bytes, self.commits));
        report.decimal("log_bytes_per_payload_byte", ratio(self.commit_bytes, payload_bytes_in_all));
        report.decimal("segment_bytes_per_payload_byte", ratio(self.segment_bytes, payload_bytes_in_all));
        report.count("log_checkpoints", self.checkpoints);
    }
}

/// The server's metrics in Prometheus's text format.
fn metrics(server: SocketAddr) -> Result<String, Failure> {
    let failed = |source| Failure::io("no metrics", source);
    let mut stream = connect(server, 0)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX)).map_err(failed)?;
    stream.write_all(&get_request(server, "/metrics", &[("Connection", "close")])).map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    let Some((head, used)) = decode_response_head(&answer, &HeadLimits::default(), Method::Get)? else {
        return Err(Failure::said("the answer to a look at the metrics is cut short"));
    };
    if head.status != 200 {
        return Err(Failure::said(format!("the server answers {} to a look at its metrics", head.status)));
    }
    let mut text = Vec::new();
    BodyDecoder::new(head.framing, u64::MAX)?.decode(&answer[used..], &mut text)?;
    String::from_utf8(text).map_err(|_| Failure::said("the metrics are no text"))
}

/// The sum of a family over its labels.
fn total(text: &str, name: &str) -> Result<u64, Failure> {
    let mut sum = None;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' '])) else { continue };
        let value = rest.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok());
        let Some(value) = value else {
            return Err(Failure::said(format!("the metric {name} is no whole number: {line}")));
        };
        sum = Some(sum.unwrap_or(0) + value);
    }
    sum.ok_or_else(|| Failure::said(format!("the server has no metric {name}: it has no data directory")))
}

#[cfg(test)]
mod tests {
    //! Sums go over the labels of one family and over no other.
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

    use super::{LogFigures, total};

    #[test]
    fn a_family_is_summed_over_its_labels() {
        let text = "# HELP a_total x\n# TYPE a_total counter\na_total{shard=\"0\"} 3\na_total{shard=\"1\"} 4\na_total_more 9\n";
        assert_eq!(total(text, "a_total").unwrap(), 7);
        assert!(total(text, "a").is_err());
    }

    #[test]
    fn what_came_since_is_the_difference() {
        let earlier = LogFigures { commits: 2, commit_bytes: 10, ..LogFigures::default() };
        let later = LogFigures { commits: 5, commit_bytes: 40, checkpoints: 1, ..LogFigures::default() };
        let between = later.since(&earlier);
        assert_eq!((between.commits, between.commit_bytes, between.checkpoints), (3, 30, 1));
    }
}
