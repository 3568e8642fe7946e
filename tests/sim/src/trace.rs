//! What happened in a run, line by line: the last lines for a person, a checksum of all of them for a comparison.

use std::collections::VecDeque;

/// Lines of a run.
#[derive(Clone, Debug)]
pub struct Trace {
    lines: VecDeque<String>,
    lines_max: usize,
    count: u64,
    sum: u64,
}

impl Trace {
    /// A trace that keeps the last `lines_max` lines.
    #[must_use]
    pub fn new(lines_max: usize) -> Self {
        Self { lines: VecDeque::new(), lines_max, count: 0, sum: 0xcbf2_9ce4_8422_2325 }
    }

    /// Adds a line.
    pub fn note(&mut self, line: String) {
        for byte in line.bytes().chain([b'\n']) {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.count += 1;
        if self.lines.len() >= self.lines_max {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The lines that were kept, one below the other, each with its number.
    #[must_use]
    pub fn text(&self) -> String {
        let first = self.count - self.lines.len() as u64;
        let numbered = self.lines.iter().zip(first..).map(|(line, number)| format!("{number:6} {line}\n"));
        numbered.collect()
    }

    /// Number of all lines and their checksum.
    #[must_use]
    pub fn sum(&self) -> (u64, u64) {
        (self.count, self.sum)
    }

    /// The lines that were kept.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}
