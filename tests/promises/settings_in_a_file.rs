//! Promise: settings may stand in a file, a line for each flag; flags and the environment win over it, and mistakes in it are told.

use crate::broker::{Broker, Folder, Setup, program};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

/// How many messages of ten the broker keeps: its retention, seen from outside.
fn kept(broker: &Broker) -> u64 {
    broker.create_topic("t");
    broker.publish_numbers("t", 0..10);
    broker.stats("t")["message_count"].as_u64().unwrap()
}

fn file(folder: &Folder, text: &str) -> PathBuf {
    let path = folder.path().join("ringmain.toml");
    fs::write(&path, text).unwrap();
    path
}

const FILE: &str = "# how this machine is set up\nretention = 3\nheartbeat_ms = \"1000\"\ndirect_io = true\n";

#[test]
fn the_file_is_read() {
    let folder = Folder::new();
    let path = file(&folder, FILE);
    assert_eq!(kept(&Setup::new().flag("--config", path.display()).start()), 3);
    assert_eq!(kept(&Setup::new().variable("RINGMAIN_CONFIG", path.display()).start()), 3);
}

#[test]
fn all_others_win_over_the_file() {
    let folder = Folder::new();
    let path = file(&folder, FILE);
    let with_file = || Setup::new().flag("--config", path.display());
    assert_eq!(kept(&with_file().settings_file("MAX_MESSAGE_RETENTION=5\n").start()), 5);
    assert_eq!(kept(&with_file().variable("MAX_MESSAGE_RETENTION", 6).start()), 6);
    assert_eq!(kept(&with_file().flag("--retention", 7).start()), 7);
}

/// What a broker says that will not start with such a file.
fn refusal(text: &str) -> String {
    let folder = Folder::new();
    let path = file(&folder, text);
    let path = path.to_str().unwrap();
    let output = program(&folder, &[]).args(["serve", "--config", path]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_file_that_cannot_be_meant_is_refused_with_the_reason() {
    for (text, words) in [
        ("retention = 0\n", &["retention in", "=0", "choose a number"][..]),
        ("retenton = 5\n", &["retenton in", "no such setting"]),
        ("retention = \n", &["ringmain.toml", "no TOML", "line 1"]),
        ("retention = [1]\n", &["retention", "neither a text nor a number"]),
    ] {
        let told = refusal(text);
        assert!(words.iter().all(|word| told.contains(word)), "{text}: {told}");
    }
    let folder = Folder::new();
    let output = program(&folder, &[]).args(["serve", "--config", "nowhere.toml"]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && told.contains("--config=nowhere.toml: cannot read it"), "{told}");
}
