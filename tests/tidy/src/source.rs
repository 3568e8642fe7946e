//! One file of the repository and the views of it that the rules read; lives on the test's thread.

use crate::lexer::{self, Class};

/// A text file of the repository.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path from the repository's root, with forward slashes.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The text with comments and literals blanked: same lines, same columns in bytes. Only for Rust files; for others
    /// it is the whole text.
    pub code: String,
    /// The text with everything but comments blanked; empty for files that are not Rust.
    pub comments: String,
}

impl SourceFile {
    /// Reads the views out of a text. What kind of file it is follows from the path's ending.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        let is_rust = path.ends_with(".rs");
        let (code, comments) = if is_rust {
            let classes = lexer::classify(text);
            (only(text, &classes, Class::Code), only(text, &classes, Class::Comment))
        } else {
            (text.to_owned(), String::new())
        };
        Self { path: path.to_owned(), text: text.to_owned(), code, comments }
    }

    /// Whether this is Rust.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether this is a script: JavaScript or a shell script.
    #[must_use]
    pub fn is_script(&self) -> bool {
        [".js", ".mjs", ".cjs", ".sh"].iter().any(|ending| self.path.ends_with(ending)) || self.text.starts_with("#!")
    }

    /// Whether this file is test code: a file `tests.rs` (or `…_tests.rs`), or one below a folder `tests`.
    #[must_use]
    pub fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs"
            || name.ends_with("_tests.rs")
            || self.path.split('/').rev().skip(1).any(|part| part == "tests")
    }
}

/// The line, counted from 1, of a byte position.
#[must_use]
pub fn line_of(text: &str, position: usize) -> usize {
    1 + text.as_bytes()[..position].iter().filter(|byte| **byte == b'\n').count()
}

/// Positions at which `word` stands whole, that is not inside a longer identifier.
#[must_use]
pub fn whole_words(text: &str, word: &str) -> Vec<usize> {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| *byte == b'_' || byte.is_ascii_alphanumeric());
    let bytes = text.as_bytes();
    text.match_indices(word)
        .map(|(position, _)| position)
        .filter(|position| {
            let before = position.checked_sub(1).and_then(|index| bytes.get(index));
            !is_word(before) && !is_word(bytes.get(position + word.len()))
        })
        .collect()
}

/// The text with all bytes of other classes replaced by blanks; line ends stay.
fn only(text: &str, classes: &[Class], wanted: Class) -> String {
    let kept =
        text.bytes().zip(classes).map(|(byte, class)| if *class == wanted || byte == b'\n' { byte } else { b' ' });
    String::from_utf8_lossy(&kept.collect::<Vec<u8>>()).into_owned()
}
