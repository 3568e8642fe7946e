//! Rules on length, applied on the test's thread: what does not fit on a few screens is split before it grows.

use crate::Finding;
use crate::source::{SourceFile, line_of, whole_words};

/// Lines of a file: about 500, so the check gives a little room.
pub const FILE_LINES_MAX: usize = 520;
/// Lines of a function, from its `fn` to its closing brace: about 70, so the check gives a little room.
pub const FUNCTION_LINES_MAX: usize = 75;
/// Lines of a test module inside the file that it tests; a longer one moves to a sibling file.
pub const INLINE_TEST_LINES_MAX: usize = 60;

/// A file that is too long.
#[must_use]
pub fn file_length(file: &SourceFile) -> Vec<Finding> {
    let lines = file.text.lines().count();
    if (file.is_rust() || file.is_script()) && lines > FILE_LINES_MAX {
        let text = format!("{lines} lines; split the file by what it knows (about 500, at most {FILE_LINES_MAX})");
        return vec![Finding::new(&file.path, 0, text)];
    }
    Vec::new()
}

/// Functions that are too long.
#[must_use]
pub fn function_length(file: &SourceFile) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for start in whole_words(&file.code, "fn") {
        let after = &file.code[start + 2..];
        let name: String =
            after.trim_start().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        // `fn(u8) -> u8` is a type, not a function.
        if name.is_empty() {
            continue;
        }
        if let Some(end) = body_end(&file.code, start) {
            let lines = 1 + line_of(&file.code, end) - line_of(&file.code, start);
            if lines > FUNCTION_LINES_MAX {
                let text = format!("fn {name} has {lines} lines (about 70, at most {FUNCTION_LINES_MAX})");
                findings.push(Finding::new(&file.path, line_of(&file.code, start), text));
            }
        }
    }
    findings
}

/// Test modules written inside another file that are too long.
#[must_use]
pub fn inline_test_length(file: &SourceFile) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (start, _) in file.code.match_indices("#[cfg(test)]") {
        let next_end = file.code[start..].find(['{', ';']).map(|length| start + length);
        let is_module = next_end.is_some_and(|end| !whole_words(&file.code[start..end], "mod").is_empty());
        if !is_module {
            continue;
        }
        if let Some(end) = body_end(&file.code, start + "#[cfg(test)]".len()) {
            let lines = 1 + line_of(&file.code, end) - line_of(&file.code, start);
            if lines > INLINE_TEST_LINES_MAX {
                let text =
                    format!("inline tests of {lines} lines (at most {INLINE_TEST_LINES_MAX}): move them to tests.rs");
                findings.push(Finding::new(&file.path, line_of(&file.code, start), text));
            }
        }
    }
    findings
}

/// Position of the brace that closes the item that starts at `start`; nothing when the item has no body.
fn body_end(code: &str, start: usize) -> Option<usize> {
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for (offset, byte) in code.as_bytes()[start..].iter().enumerate() {
        match byte {
            b'(' | b'[' if braces == 0 => brackets += 1,
            b')' | b']' if braces == 0 => brackets = brackets.saturating_sub(1),
            b';' if braces == 0 && brackets == 0 => return None,
            b'{' if brackets == 0 => braces += 1,
            b'}' if brackets == 0 => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(start + offset);
                }
            }
            _ => {}
        }
    }
    None
}
