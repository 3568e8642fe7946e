//! Every input of the fuzzers' corpora passes its check, so that what a fuzzer once found stays found; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use std::fs;
use std::path::Path;

#[path = "../../../tests/fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "the file is also a library of its own")]
mod checks;

/// Runs the check over each file; a failure names the file.
fn run(target: &str, check: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "{} has lost its seeds", directory.display());
    for file in files {
        let data = fs::read(&file).unwrap();
        let result = std::panic::catch_unwind(|| check(&data));
        assert!(result.is_ok(), "the check failed for {}", file.display());
    }
}

#[test]
fn http_request() {
    run("http_request", checks::http_request);
}

#[test]
fn http_body() {
    run("http_body", checks::http_body);
}

#[test]
fn publish_json() {
    run("publish_json", checks::publish_json);
}

#[test]
fn sse_decode() {
    run("sse_decode", checks::sse_decode);
}

#[test]
fn ws_frames() {
    run("ws_frames", checks::ws_frames);
}
