//! Rules on words, applied on the test's thread: first lines, names that say nothing, paths of one machine, sleeps.

use crate::Finding;
use crate::source::{SourceFile, line_of, whole_words};

/// Words that name what a thing lacks, or that promise work for later. Compared with each piece of an identifier.
const BANNED: &[&str] = &[
    "util",
    "utils",
    "common",
    "helper",
    "helpers",
    "manager",
    "managers",
    "todo",
    "fixme",
    "xxx",
    "unimplemented",
    "dbg",
];

/// Names of files and folders that say nothing about what is inside.
const BANNED_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc", "types"];

/// Beginnings of paths that exist on somebody's machine only. Written in pieces so that this file passes its own rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("/tmp", "/target"),
];

/// The one name of a test file that may sleep: it holds the function that polls a condition until a deadline.
const POLLING_FILE: &str = "deadline.rs";

/// The first line of a Rust file says what it is and, in the product, on which core or thread it lives.
#[must_use]
pub fn first_line(file: &SourceFile) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let line = file.text.lines().next().unwrap_or_default();
    if !line.starts_with("//! ") {
        return vec![Finding::new(&file.path, 1, "the first line must be `//! ` and say what the file is")];
    }
    let is_product = file.path.starts_with("src/") || file.path.starts_with("shards/");
    let places = ["core", "cores", "thread", "threads"];
    if is_product && !file.is_test() && !places.iter().any(|place| !whole_words(line, place).is_empty()) {
        return vec![Finding::new(
            &file.path,
            1,
            "the first line must name the core or thread on which the file lives",
        )];
    }
    Vec::new()
}

/// Banned words in code and comments; text in literals is free.
#[must_use]
pub fn banned_words(file: &SourceFile) -> Vec<Finding> {
    if !file.is_rust() && !file.is_script() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for view in [&file.code, &file.comments] {
        for (index, line) in view.lines().enumerate() {
            for piece in pieces(line) {
                if BANNED.contains(&piece.as_str()) {
                    findings.push(Finding::new(
                        &file.path,
                        index + 1,
                        format!("the word `{piece}` is banned: name the thing"),
                    ));
                }
            }
        }
    }
    findings
}

/// Files and folders whose name says nothing.
#[must_use]
pub fn file_names(file: &SourceFile) -> Vec<Finding> {
    let names = file.path.split('/').flat_map(pieces);
    names
        .filter(|name| BANNED_NAMES.contains(&name.as_str()))
        .map(|name| Finding::new(&file.path, 0, format!("`{name}` in a path: name the file for what it holds")))
        .collect()
}

/// Paths of one machine, in any text.
#[must_use]
pub fn machine_paths(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in MACHINE_PATHS {
        for (position, _) in file.text.match_indices(path) {
            // Part of a longer path, as in a URL or below a variable, is no path of a machine.
            let before = file.text[..position].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || ".}_-)".contains(letter)) {
                continue;
            }
            let text = format!("`{path}` exists on one machine only");
            findings.push(Finding::new(&file.path, line_of(&file.text, position), text));
        }
    }
    findings
}

/// Tests wait for a condition until a deadline; only the file that polls may sleep.
#[must_use]
pub fn fixed_sleeps(file: &SourceFile) -> Vec<Finding> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    if !file.is_rust() || !file.is_test() || name == POLLING_FILE {
        return Vec::new();
    }
    ["sleep", "sleep_ms", "sleep_until"]
        .iter()
        .flat_map(|word| whole_words(&file.code, word))
        .map(|position| {
            let text = format!("a test waits for a condition with a deadline ({POLLING_FILE}), it does not sleep");
            Finding::new(&file.path, line_of(&file.code, position), text)
        })
        .collect()
}

/// The words of a line: identifiers split at `_` and at changes of case, in lower case.
fn pieces(line: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut current = String::new();
    let mut previous_is_lower = false;
    for letter in line.chars() {
        let ends = !letter.is_alphanumeric() || (letter.is_uppercase() && previous_is_lower);
        if ends && !current.is_empty() {
            pieces.push(std::mem::take(&mut current));
        }
        if letter.is_alphanumeric() {
            current.extend(letter.to_lowercase());
        }
        previous_is_lower = letter.is_lowercase();
    }
    if !current.is_empty() {
        pieces.push(current);
    }
    pieces
}
