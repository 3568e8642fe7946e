//! What a measurement says, as one line of JSON or as lines for people; pure.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Named figures in the order in which they were added. A name ends with its unit.
pub(crate) struct Report {
    rows: Vec<(String, Value)>,
    sound: bool,
}

impl Report {
    /// A report of a measurement of this kind.
    pub(crate) fn new(measurement: &str) -> Report {
        Report { rows: vec![("measurement".to_owned(), Value::from(measurement))], sound: true }
    }

    /// Puts a label of the caller in front, by which runs are grouped.
    pub(crate) fn label(&mut self, label: &str) {
        self.rows.insert(0, ("label".to_owned(), Value::from(label)));
    }

    pub(crate) fn count(&mut self, name: impl Into<String>, value: u64) {
        self.rows.push((name.into(), Value::from(value)));
    }

    /// A figure, rounded to three decimals. One that is not a number, such as a ratio to nothing, is null.
    pub(crate) fn decimal(&mut self, name: impl Into<String>, value: f64) {
        self.rows.push((name.into(), Value::from((value * 1000.0).round() / 1000.0)));
    }

    pub(crate) fn word(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.rows.push((name.into(), Value::from(value.into())));
    }

    /// Counts in the order in which they were taken.
    pub(crate) fn counts(&mut self, name: impl Into<String>, values: impl Iterator<Item = u64>) {
        self.rows.push((name.into(), values.collect::<Vec<u64>>().into()));
    }

    /// A count that is 0 when the server does what it should.
    pub(crate) fn fault(&mut self, name: impl Into<String>, count: u64) {
        self.sound &= count == 0;
        self.count(name, count);
    }

    /// Whether every fault was 0.
    pub(crate) fn is_sound(&self) -> bool {
        self.sound
    }

    /// One object on one line.
    pub(crate) fn json_line(&self) -> String {
        let map: Map<String, Value> = self.rows.iter().cloned().collect();
        let mut line = Value::Object(map).to_string();
        line.push('\n');
        line
    }

    /// One figure a line, names aligned.
    pub(crate) fn text(&self) -> String {
        let width = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in &self.rows {
            // Writing into a string cannot fail.
            let _ = match value {
                Value::String(word) => writeln!(text, "{name:width$}  {word}"),
                other => writeln!(text, "{name:width$}  {other}"),
            };
        }
        text
    }
}

/// `numerator / denominator`, not a number when there is nothing to divide by.
#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of a run stay far below 2^53")]
pub(crate) fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 { f64::NAN } else { numerator as f64 / denominator as f64 }
}

#[cfg(test)]
mod tests;
