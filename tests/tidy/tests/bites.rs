//! Promise: each rule of the style checker bites when it is shown what it forbids, and is not fooled by literals.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use ringmain_tidy::lexer::{Class, classify};
use ringmain_tidy::{Manifest, Rule, SourceFile, arrows, length, purity, words};

fn lines_found(rule: Rule, path: &str, text: &str) -> Vec<usize> {
    rule(&SourceFile::new(path, text)).into_iter().map(|finding| finding.line).collect()
}

fn function_of(lines: usize) -> String {
    format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn a_long_file_is_found() {
    let fits = "// a line\n".repeat(length::FILE_LINES_MAX);
    assert_eq!(lines_found(length::file_length, "src/a.rs", &fits), []);
    let long = "// a line\n".repeat(length::FILE_LINES_MAX + 1);
    assert_eq!(lines_found(length::file_length, "src/a.rs", &long), [0]);
    assert_eq!(lines_found(length::file_length, "tests/web/a.mjs", &long), [0]);
}

#[test]
fn a_long_function_is_found() {
    let fits = function_of(length::FUNCTION_LINES_MAX);
    assert_eq!(lines_found(length::function_length, "src/a.rs", &fits), []);
    let long = function_of(length::FUNCTION_LINES_MAX + 1);
    assert_eq!(lines_found(length::function_length, "src/a.rs", &format!("//! A.\n\n{long}")), [3]);
}

#[test]
fn braces_in_literals_and_comments_do_not_end_a_function() {
    let body = "    let a = \"}\"; let b = '}'; /* } /* } */ } */ let c = r#\"}\"}\"#; // }\n".repeat(90);
    let text = format!("fn long<'a>(x: &'a [u8; 3]) -> fn(u8) {{\n{body}}}\nfn short() {{}}\n");
    assert_eq!(lines_found(length::function_length, "src/a.rs", &text), [1]);
}

#[test]
fn declarations_and_function_pointers_have_no_length() {
    let text = format!("trait T {{ fn a(&self, x: [u8; 2]) -> u8;\n{} }}\ntype F = fn(u8);\n", "// more\n".repeat(90));
    assert_eq!(lines_found(length::function_length, "src/a.rs", &text), []);
}

#[test]
fn a_long_inline_test_block_is_found() {
    let block = |lines: usize| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // a line\n".repeat(lines - 3));
    let fits = block(length::INLINE_TEST_LINES_MAX);
    assert_eq!(lines_found(length::inline_test_length, "src/a.rs", &fits), []);
    let long = block(length::INLINE_TEST_LINES_MAX + 1);
    assert_eq!(lines_found(length::inline_test_length, "src/a.rs", &long), [1]);
    let sibling = format!("#[cfg(test)]\nmod tests;\n{}", function_of(90));
    assert_eq!(lines_found(length::inline_test_length, "src/a.rs", &sibling), []);
}

#[test]
fn a_first_line_that_says_nothing_is_found() {
    assert_eq!(lines_found(words::first_line, "src/a.rs", "use std::fmt;\n"), [1]);
    assert_eq!(lines_found(words::first_line, "src/a.rs", "//! The router.\n"), [1]);
    assert_eq!(lines_found(words::first_line, "shards/wal/src/a.rs", "//! Scores of batches.\n"), [1]);
    assert_eq!(lines_found(words::first_line, "src/a.rs", "//! The router, on any core.\n"), []);
    assert_eq!(lines_found(words::first_line, "shards/wal/src/tests.rs", "//! Tests of batches.\n"), []);
    assert_eq!(lines_found(words::first_line, "tests/promises/a.rs", "// no promise\n"), [1]);
}

#[test]
fn banned_words_are_found_in_code_and_comments() {
    let bad = [
        "mod util;",
        "// TODO: later",
        "/* FIXME */",
        "fn f() { todo!() }",
        "fn f() { unimplemented!() }",
        "fn f() { dbg!(1); }",
        "struct ConnectionManager;",
        "/// A helper.",
        "let common_part = 1;",
    ];
    for snippet in bad {
        assert_eq!(lines_found(words::banned_words, "src/a.rs", snippet), [1], "{snippet}");
    }
    for snippet in ["let a = \"TODO\";", "// utility of commonly", "let utilised = 1;", "let c = b\"manager\";"] {
        assert_eq!(lines_found(words::banned_words, "src/a.rs", snippet), [], "{snippet}");
    }
    assert_eq!(lines_found(words::banned_words, "tests/web/a.mjs", "// TODO\n"), [1]);
    assert_eq!(lines_found(words::banned_words, "tests/start", "#!/bin/sh\n# FIXME\n"), [2]);
}

#[test]
fn names_of_files_that_say_nothing_are_found() {
    for path in ["src/util.rs", "shards/wire/src/common/mod.rs", "src/string_helpers.rs", "src/types.rs"] {
        assert_eq!(lines_found(words::file_names, path, ""), [0], "{path}");
    }
    assert_eq!(lines_found(words::file_names, "src/front/http/publish.rs", ""), []);
}

#[test]
fn paths_of_one_machine_are_found() {
    let path = concat!("/ho", "me/");
    assert_eq!(lines_found(words::machine_paths, "src/a.rs", &format!("//! A.\nlet a = \"{path}me/x\";")), [2]);
    assert_eq!(lines_found(words::machine_paths, "README.md", &format!("run {path}me/x")), [1]);
    assert_eq!(lines_found(words::machine_paths, "README.md", &format!("https://example.org{path}page")), []);
}

#[test]
fn fixed_sleeps_in_tests_are_found() {
    let text = "//! T.\nfn f() { std::thread::sleep(d); }\n";
    assert_eq!(lines_found(words::fixed_sleeps, "tests/promises/a.rs", text), [2]);
    assert_eq!(lines_found(words::fixed_sleeps, "shards/uring/src/tests.rs", text), [2]);
    assert_eq!(lines_found(words::fixed_sleeps, "shards/uring/tests/a.rs", text), [2]);
    assert_eq!(lines_found(words::fixed_sleeps, "tests/promises/deadline.rs", text), []);
    assert_eq!(lines_found(words::fixed_sleeps, "src/cli/subscribe.rs", text), []);
}

#[test]
fn clocks_chance_and_io_in_pure_crates_are_found() {
    let bad = [
        "use std::time::Instant;",
        "let t = SystemTime::now();",
        "let d = t.elapsed().unwrap();",
        "let t = jiff::Timestamp::now();",
        "use std::net::TcpStream;",
        "use std::fs;",
        "fn f() { fs::read(p) }",
        "std::thread::spawn(f);",
        "let x = rand::random();",
        "getrandom::fill(&mut b);",
        "async fn f() {}",
    ];
    for snippet in bad {
        assert!(!lines_found(purity::pure_crates, "shards/wire/src/a.rs", snippet).is_empty(), "{snippet}");
        assert_eq!(lines_found(purity::pure_crates, "shards/uring/src/a.rs", snippet), [], "{snippet}");
    }
    for snippet in [
        "// Instant",
        "let operand = 1;",
        "let a = \"async\";",
        "use std::time::{Duration, UNIX_EPOCH};",
        "offs::x()",
        "use std::net::Ipv4Addr;",
    ] {
        assert_eq!(lines_found(purity::pure_crates, "shards/wal/src/a.rs", snippet), [], "{snippet}");
    }
}

#[test]
fn unsafe_code_outside_uring_is_found() {
    let text = "//! A.\nfn f() { unsafe { g() } }\n";
    assert_eq!(lines_found(purity::unsafe_code, "shards/driver/src/a.rs", text), [2]);
    assert_eq!(lines_found(purity::unsafe_code, "shards/uring/tests/a.rs", text), []);
    assert_eq!(lines_found(purity::unsafe_code, "src/a.rs", "#![deny(unsafe_code)] // unsafe\n"), []);
}

#[test]
fn formats_of_the_log_outside_inspect_are_found() {
    let text = "//! A.\nuse ringmain_wal::RecordBatch;\n";
    assert_eq!(lines_found(purity::log_formats, "src/front/http/sse.rs", text), [2]);
    for path in ["src/cli/inspect/log.rs", "src/cli/inspect.rs", "shards/engine/src/log.rs"] {
        assert_eq!(lines_found(purity::log_formats, path, text), [], "{path}");
    }
}

fn arrows_found(text: &str) -> Vec<usize> {
    arrows::forbidden_arrows(&Manifest::parse("Cargo.toml", text)).into_iter().map(|finding| finding.line).collect()
}

#[test]
fn forbidden_arrows_are_found() {
    let engine = "[package]\nname = \"ringmain-engine\"\n";
    assert_eq!(arrows_found(&format!("{engine}[dependencies]\nringmain-wal.workspace = true\n")), []);
    assert_eq!(arrows_found(&format!("{engine}[dependencies]\nringmain-wire.workspace = true\n")), [4]);
    assert_eq!(arrows_found(&format!("{engine}[dependencies]\nringmain-uring = {{ path = \"../uring\" }}\n")), [4]);
    assert_eq!(arrows_found(&format!("{engine}[dependencies.ringmain-wire]\npath = \"../wire\"\n")), [3]);
    assert_eq!(arrows_found(&format!("{engine}[target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n")), [4]);
    assert_eq!(arrows_found(&format!("{engine}[dev-dependencies]\nringmain-driver.workspace = true\n")), [4]);
    assert_eq!(arrows_found(&format!("{engine}[dev-dependencies]\nringmain-wire.workspace = true\n")), []);
    assert_eq!(arrows_found(&format!("{engine}[build-dependencies]\nringmain-driver.workspace = true\n")), [4]);
    let program = "[workspace.dependencies]\nringmain-uring = \"1\"\n[package]\nname = \"ringmain\"\n[dependencies]\n";
    assert_eq!(arrows_found(&format!("{program}ringmain-driver.workspace = true\n")), []);
    assert_eq!(arrows_found(&format!("{program}ringmain-uring.workspace = true\nio-uring = \"0.7\"\n")), [6, 7]);
    assert_eq!(arrows_found("[package]\nname = \"stranger\"\n[dependencies]\nringmain-wal = \"1\"\n"), [4]);
}

#[test]
fn the_lexer_tells_code_comments_and_literals_apart() {
    let text = "let r#type = br##\"a\"#\"##; // c\nlet q = b'\\''; let s: &'static str = \"\\\"é\"; 'outer: loop {}";
    let classes = classify(text);
    assert_eq!(classes.len(), text.len());
    let only = |wanted: Class| -> String {
        let kept = text.bytes().zip(&classes).filter(|(_, class)| **class == wanted).map(|(byte, _)| byte);
        String::from_utf8(kept.collect()).unwrap()
    };
    assert_eq!(only(Class::Comment), "// c");
    assert_eq!(only(Class::Literal), "br##\"a\"#\"##'\\''\"\\\"é\"");
    assert_eq!(only(Class::Code), "let r#type = ; \nlet q = b; let s: &'static str = ; 'outer: loop {}");
}
