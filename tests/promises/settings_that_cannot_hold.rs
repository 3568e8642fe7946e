//! Promise: settings that each look possible and cannot hold together, or cannot be read, refuse to start.

use crate::broker::{Folder, Setup, program};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Output;

fn serve(arguments: &[&str], variables: &[(&str, &OsStr)]) -> Output {
    let folder = Folder::new();
    let mut command = program(&folder, &["timeout", "--signal=KILL", "30"]);
    command.args(["serve", "--port", "0"]).args(arguments).envs(variables.iter().copied()).output().unwrap()
}

#[track_caller]
fn expect_refusal(output: &Output, names: &[&str]) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(names.iter().all(|name| told.contains(name)) && !told.contains("panicked"), "{names:?}: {told}");
}

#[test]
fn memory_that_is_too_little_for_its_shards() {
    for (memory, shards) in [("1048576", "64"), ("4194303", "1"), ("8388607", "2"), ("0", "1")] {
        let by_flag = serve(&["--memory-bytes", memory, "--shards", shards], &[]);
        expect_refusal(&by_flag, &["--memory-bytes", memory]);
        let by_variable = serve(&["--shards", shards], &[("RINGMAIN_MEMORY_BYTES", OsStr::new(memory))]);
        expect_refusal(&by_variable, &["RINGMAIN_MEMORY_BYTES", memory]);
    }
    // The least that is taken is enough for messages of the usual largest size.
    let broker = Setup::new().flag("--shards", 2).flag("--memory-bytes", 2 * (4 << 20)).start();
    for number in 0..4 {
        let topic = format!("t{number}");
        broker.create_topic_of(&topic, 1);
        broker.publish_many(&topic, &vec![b'x'; 1_000_000], 3);
    }
}

#[test]
fn memory_that_is_too_little_for_the_largest_message() {
    // Such messages were refused for ever as if the memory were used up for the moment.
    let output = serve(&["--memory-bytes", "8388608", "--shards", "1", "--max-message-bytes", "8388608"], &[]);
    expect_refusal(&output, &["--memory-bytes", "8388608", "33554432"]);
    let setup = Setup::new().flag("--shards", 1).flag("--max-message-bytes", 8 << 20).flag("--memory-bytes", 32 << 20);
    let broker = setup.start();
    broker.create_topic_of("t", 1);
    for _ in 0..4 {
        broker.request("POST", "/topics/t/publish", &[], &vec![b'x'; 8 << 20]).expect(202);
    }
}

#[test]
fn a_variable_that_is_no_text() {
    let names =
        ["RINGMAIN_CORES", "SERVER_PORT", "RINGMAIN_SHARDS", "RINGMAIN_BIND", "RINGMAIN_MEMORY_BYTES", "LOG_LEVEL"];
    for name in names {
        // The flag that sets the port would hide the variable.
        let folder = Folder::new();
        let mut command = program(&folder, &["timeout", "--signal=KILL", "30"]);
        let output = command.arg("serve").env(name, OsStr::from_bytes(b"\xff1")).output().unwrap();
        expect_refusal(&output, &[name]);
    }
}
