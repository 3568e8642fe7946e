//! The style checker: it reads the repository's own files on the test's thread and says what breaks the house's rules.
//!
//! Each rule is a pure function from a [`SourceFile`] (or a [`Manifest`]) to [`Finding`]s, so that each can be shown a
//! bad snippet and be seen to bite (`tests/bites.rs`). `tests/repository.rs` applies all of them to the tree.

pub mod arrows;
pub mod length;
pub mod lexer;
pub mod purity;
pub mod source;
pub mod tree;
pub mod words;

pub use arrows::Manifest;
pub use source::SourceFile;
use std::fmt;

/// One breach of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the repository's root, with forward slashes.
    pub path: String,
    /// Line, counted from 1; 0 when the finding concerns the whole file.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub text: String,
}

impl Finding {
    /// Makes a finding at a line (from 1, or 0 for the whole file).
    #[must_use]
    pub fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// A rule over one source file.
pub type Rule = fn(&SourceFile) -> Vec<Finding>;

/// Every rule over source files, with the name that a failing test shows.
pub const RULES: &[(&str, Rule)] = &[
    ("file length", length::file_length),
    ("function length", length::function_length),
    ("inline test block length", length::inline_test_length),
    ("first line", words::first_line),
    ("banned words", words::banned_words),
    ("file names", words::file_names),
    ("machine paths", words::machine_paths),
    ("fixed sleeps in tests", words::fixed_sleeps),
    ("pure crates", purity::pure_crates),
    ("unsafe only in uring", purity::unsafe_code),
    ("formats of the log", purity::log_formats),
];
