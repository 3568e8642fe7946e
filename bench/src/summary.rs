//! Medians of repeated runs as a table; pure but for reading the files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde_json::{Map, Value};

use crate::command_line::SummaryOptions;
use crate::failure::Failure;

/// Figures that the table shows, in its order; a row that does not have one leaves it empty.
const COLUMNS: &[(&str, &str)] = &[
    ("messages_per_s", "messages/s"),
    ("deliveries_per_s", "deliveries/s"),
    ("server_cpu_us_per_message", "server CPU µs/message"),
    ("server_cpu_us_per_delivery", "server CPU µs/delivery"),
    ("server_cpu_share", "server CPU share"),
    ("generator_cpu_share", "generator CPU share"),
    ("latency_us_p50", "p50 µs"),
    ("latency_us_p99", "p99 µs"),
    ("delivery_latency_us_p50", "delivery p50 µs"),
    ("delivery_latency_us_p99", "delivery p99 µs"),
    ("server_bytes_per_connection", "bytes/connection"),
    ("log_commits_per_s", "commits/s"),
    ("log_messages_per_commit", "messages/commit"),
    ("log_bytes_per_payload_byte", "log bytes/payload byte"),
    ("segment_bytes_per_payload_byte", "segment bytes/payload byte"),
    ("log_checkpoints", "checkpoints"),
    ("dsync_us_p50", "dsync p50 µs"),
    ("dsync_us_p99", "dsync p99 µs"),
    ("fdatasync_us_p50", "fdatasync p50 µs"),
    ("fdatasync_us_p99", "fdatasync p99 µs"),
    ("answer_ms", "answer ms"),
    ("answer_ms_longest", "longest"),
    ("others_wait_ms_longest", "others wait ms, longest"),
    ("listening_ms", "listening ms"),
    ("ready_ms", "ready ms"),
    ("server_cpu_ms", "server CPU ms"),
    ("server_resident_bytes", "resident bytes"),
    ("creations_per_s", "topics made/s"),
    ("server_cpu_us_per_creation", "server CPU µs/topic"),
    ("server_bytes_per_topic", "bytes/topic"),
    ("server_bytes_per_topic_with_message", "bytes/topic with a message"),
    ("server_resident_bytes_before", "resident bytes before"),
    ("server_resident_bytes_max", "most"),
    ("server_resident_bytes_after", "after"),
];

/// Runs with one label, in the order of their lines.
type Runs = Vec<Map<String, Value>>;

/// Makes the table of the files.
///
/// # Errors
///
/// When a file cannot be read or a line is no object of JSON.
pub(crate) fn run(options: &SummaryOptions) -> Result<String, Failure> {
    let mut text = String::new();
    for path in &options.files {
        let piece = fs::read_to_string(path)
            .map_err(|source| Failure::io(format!("cannot read {}", path.display()), source))?;
        text.push_str(&piece);
        text.push('\n');
    }
    table(&text)
}

fn table(text: &str) -> Result<String, Failure> {
    let groups = groups(text)?;
    let columns: Vec<&(&str, &str)> = COLUMNS
        .iter()
        .filter(|(key, _)| groups.iter().any(|(_, runs)| runs.iter().any(|run| run.contains_key(*key))))
        .collect();
    let mut out = String::from("| configuration | runs |");
    for (_, title) in &columns {
        // Writing into a string cannot fail, here and below.
        let _ = write!(out, " {title} |");
    }
    out.push_str("\n|---|---|");
    out.push_str(&"---|".repeat(columns.len()));
    out.push('\n');
    for (label, runs) in &groups {
        let _ = write!(out, "| {label} | {} |", runs.len());
        for (key, _) in &columns {
            let values: Vec<f64> = runs.iter().filter_map(|run| run.get(*key).and_then(Value::as_f64)).collect();
            let _ = write!(out, " {} |", cell(values));
        }
        out.push('\n');
    }
    Ok(out)
}

/// Runs by label, labels in the order in which they first come.
fn groups(text: &str) -> Result<Vec<(String, Runs)>, Failure> {
    let mut order: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: Vec<(String, Runs)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let run: Map<String, Value> = serde_json::from_str(line)
            .map_err(|error| Failure::said(format!("a line is no object of JSON ({error}): {line}")))?;
        let label = ["label", "measurement"].iter().find_map(|key| run.get(*key).and_then(Value::as_str));
        let label = label.unwrap_or("?").to_owned();
        let place = *order.entry(label.clone()).or_insert_with(|| {
            groups.push((label, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(run);
    }
    Ok(groups)
}

/// The median, and the range when there are several values.
fn cell(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (values.first().copied(), values.last().copied()) else { return String::new() };
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
    if values.len() == 1 {
        figure(median)
    } else {
        format!("{} ({}–{})", figure(median), figure(least), figure(most))
    }
}

/// As many digits as such a measurement is good for.
fn figure(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    //! Medians are those of the label's own runs.
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

    use super::{cell, table};

    #[test]
    fn runs_are_grouped_by_label_and_shown_with_their_range() {
        let text = "{\"label\":\"b\",\"messages_per_s\":300.0}\n\
            {\"label\":\"a\",\"messages_per_s\":10.5,\"latency_us_p50\":1}\n\n\
            {\"label\":\"b\",\"messages_per_s\":100.0}\n{\"label\":\"b\",\"messages_per_s\":200.0}\n";
        assert_eq!(
            table(text).unwrap(),
            "| configuration | runs | messages/s | p50 µs |\n|---|---|---|---|\n\
             | b | 3 | 200 (100–300) |  |\n| a | 1 | 10.50 | 1.00 |\n"
        );
    }

    #[test]
    fn an_even_number_of_runs_has_its_median_between_the_two_in_the_middle() {
        assert_eq!(cell(vec![4.0, 1.0, 2.0, 3.0]), "2.50 (1.00–4.00)");
        assert_eq!(cell(vec![]), "");
    }

    #[test]
    fn a_line_that_is_no_json_is_named() {
        assert!(table("nonsense\n").unwrap_err().to_string().contains("nonsense"));
    }
}
