//! Promise: the program explains itself, refuses what it cannot do by name, value and remedy, and its subcommands work
//! against a running broker.

use crate::broker::{Broker, Folder, program};
use std::process::Output;

/// Runs the program to its end. One that should have refused and runs on is killed, which no test takes for a refusal.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = Folder::new();
    let mut command = program(&folder, &["timeout", "--signal=KILL", "30"]);
    command.args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_version_is_told() {
    let output = run(&["--version"], &[]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout).trim(), concat!("ringmain ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_has_examples() {
    for arguments in
        [&["--help"][..], &["serve", "--help"], &["publish", "--help"], &["subscribe", "--help"], &["topic", "--help"]]
    {
        let output = run(arguments, &[]);
        let help = text(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {help}");
        assert!(help.contains("Examples:") || help.contains("Example:"), "{arguments:?} has no example: {help}");
        assert!(help.contains("ringmain "), "{arguments:?}: an example is a line to copy: {help}");
    }
    let help = text(&run(&["serve", "--help"], &[]).stdout);
    for name in ["SERVER_PORT", "MAX_MESSAGE_RETENTION", "RINGMAIN_SHARDS", "LOG_LEVEL", "8080"] {
        assert!(help.contains(name), "{name} is not in {help}");
    }
}

#[test]
fn values_that_cannot_be_are_refused_by_name() {
    let cases = [
        ("--port", "SERVER_PORT", "99999"),
        ("--port", "SERVER_PORT", "http"),
        ("--bind", "RINGMAIN_BIND", "nowhere.example:1"),
        ("--shards", "RINGMAIN_SHARDS", "0"),
        ("--shards", "RINGMAIN_SHARDS", "100000000"),
        ("--cores", "RINGMAIN_CORES", "0"),
        ("--retention", "MAX_MESSAGE_RETENTION", "0"),
        ("--retention", "MAX_MESSAGE_RETENTION", "-1"),
        ("--log-level", "LOG_LEVEL", "loud"),
        ("--log-format", "RINGMAIN_LOG_FORMAT", "xml"),
        ("--header-timeout-ms", "RINGMAIN_HEADER_TIMEOUT_MS", "0"),
        ("--body-timeout-ms", "RINGMAIN_BODY_TIMEOUT_MS", "soon"),
        ("--idle-timeout-ms", "RINGMAIN_IDLE_TIMEOUT_MS", "0"),
        ("--write-timeout-ms", "RINGMAIN_WRITE_TIMEOUT_MS", "1.5"),
        ("--heartbeat-ms", "RINGMAIN_HEARTBEAT_MS", "0"),
        ("--max-connections", "RINGMAIN_MAX_CONNECTIONS", "0"),
        ("--max-message-bytes", "RINGMAIN_MAX_MESSAGE_BYTES", "999999999999"),
        ("--max-body-bytes", "RINGMAIN_MAX_BODY_BYTES", "999999999999"),
        ("--lane-requests", "RINGMAIN_LANE_REQUESTS", "0"),
        ("--cors-origins", "RINGMAIN_CORS_ORIGINS", "not an origin"),
    ];
    for (flag, variable, value) in cases {
        let by_flag = run(&["serve", &format!("{flag}={value}")], &[]);
        let by_variable = run(&["serve"], &[(variable, value)]);
        for (output, name) in [(by_flag, flag), (by_variable, variable)] {
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name}={value}: {told}");
            assert!(told.contains(value), "{name}={value}: the value is not told: {told}");
            assert!(told.contains(name) || told.contains(flag), "{name}={value}: the setting is not named: {told}");
            assert!(output.stdout.is_empty(), "words belong on stderr");
        }
    }
}

#[test]
fn unknown_flags_and_commands_are_refused() {
    for arguments in [&["serve", "--prot", "1"][..], &["sreve"], &["topic", "crate", "t"], &["publish"]] {
        let output = run(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let broker = Broker::start();
    let port = broker.address().port().to_string();
    let output = run(&["serve", "--port", &port], &[]);
    let told = text(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 0), "{told}");
    assert!(told.contains(&port), "{told}");
    assert!(!told.contains("panicked"), "{told}");
    broker.get("/health").expect(200);
}
