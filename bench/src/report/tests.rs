//! Results: one line for programs, aligned lines for people, faults that count.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use serde_json::Value;

use super::{Report, ratio};

fn example() -> Report {
    let mut report = Report::new("publish");
    report.count("messages", 12);
    report.decimal("messages_per_s", 3.456_789);
    report.word("latency_basis", "closed loop");
    report
}

#[test]
fn json_is_one_line_with_every_figure() {
    let mut report = example();
    report.label("broker \"a\"");
    let line = report.json_line();
    assert_eq!(line.matches('\n').count(), 1);
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["label"], "broker \"a\"");
    assert_eq!(value["measurement"], "publish");
    assert_eq!(value["messages"], 12);
    assert_eq!(value["messages_per_s"], 3.457);
}

#[test]
fn text_has_one_aligned_line_for_each_figure_in_order() {
    let text = example().text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "measurement     publish");
    assert_eq!(lines[1], "messages        12");
    assert_eq!(lines[2], "messages_per_s  3.457");
    assert_eq!(lines.len(), 4);
}

#[test]
fn a_fault_makes_the_report_unsound_and_none_does_not() {
    let mut report = example();
    report.fault("missing", 0);
    assert!(report.is_sound());
    report.fault("repeated", 1);
    report.fault("misplaced", 0);
    assert!(!report.is_sound());
}

#[test]
fn a_ratio_to_nothing_is_null() {
    let mut report = example();
    report.decimal("server_cpu_us_per_message", ratio(5, 0));
    let value: Value = serde_json::from_str(&report.json_line()).unwrap();
    assert!(value["server_cpu_us_per_message"].is_null());
    assert!((ratio(6, 4) - 1.5).abs() < f64::EPSILON);
}
