//! Rules on what the pure crates may touch and where `unsafe` may stand, applied on the test's thread.

use crate::Finding;
use crate::source::{SourceFile, line_of, whole_words};

/// Crates that only decide: time and chance are arguments of theirs.
pub const PURE_CRATES: &[&str] = &["model", "wire", "wal", "engine"];

/// Words that stand for a clock, chance, a socket or an executor. `SystemTime` as a form of a number is free: reading the
/// clock is not. So are addresses of `std::net`.
const IMPURE_WORDS: &[&str] = &[
    "Instant",
    "rand",
    "getrandom",
    "OsRng",
    "RandomState",
    "async",
    "await",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "ToSocketAddrs",
];

/// Modules of the standard library that do I/O, and calls that read a clock.
const IMPURE_PATHS: &[&str] =
    &["std::fs", "std::thread", "std::os", "std::process", "std::env", "fs::", "thread::", "::now(", ".elapsed("];

/// A clock, randomness, I/O, a thread or async code in a crate that only decides.
#[must_use]
pub fn pure_crates(file: &SourceFile) -> Vec<Finding> {
    let is_pure = PURE_CRATES.iter().any(|name| file.path.starts_with(&format!("shards/{name}/src/")));
    if !is_pure || !file.is_rust() {
        return Vec::new();
    }
    let words =
        IMPURE_WORDS.iter().flat_map(|word| whole_words(&file.code, word).into_iter().map(move |at| (*word, at)));
    let paths =
        IMPURE_PATHS.iter().flat_map(|path| starts_of_paths(&file.code, path).into_iter().map(move |at| (*path, at)));
    words
        .chain(paths)
        .map(|(what, at)| {
            let text = format!("`{what}` in a pure crate: time, chance and I/O are arguments");
            Finding::new(&file.path, line_of(&file.code, at), text)
        })
        .collect()
}

/// `unsafe` outside the one crate that talks to the kernel.
#[must_use]
pub fn unsafe_code(file: &SourceFile) -> Vec<Finding> {
    if !file.is_rust() || file.path.starts_with("shards/uring/") {
        return Vec::new();
    }
    whole_words(&file.code, "unsafe")
        .into_iter()
        .map(|at| Finding::new(&file.path, line_of(&file.code, at), "`unsafe` may stand in shards/uring only"))
        .collect()
}

/// The log's formats in a part of the broker's program that is not `ringmain inspect`: a front sees what the engine shows.
#[must_use]
pub fn log_formats(file: &SourceFile) -> Vec<Finding> {
    if !file.is_rust() || !file.path.starts_with("src/") || file.path.starts_with("src/cli/inspect") {
        return Vec::new();
    }
    whole_words(&file.code, "ringmain_wal")
        .into_iter()
        .map(|at| {
            Finding::new(&file.path, line_of(&file.code, at), "only `src/cli/inspect` looks into the log's files")
        })
        .collect()
}

/// Positions of a path that does not go on to the left or right as a longer name.
fn starts_of_paths(code: &str, path: &str) -> Vec<usize> {
    let is_word = |letter: char| letter == '_' || letter.is_alphanumeric();
    code.match_indices(path)
        .map(|(at, _)| at)
        .filter(|at| path.starts_with([':', '.']) || !code[..*at].chars().next_back().is_some_and(is_word))
        .filter(|at| {
            let ends_open = path.ends_with(is_word);
            !(ends_open && code[at + path.len()..].chars().next().is_some_and(is_word))
        })
        .collect()
}
