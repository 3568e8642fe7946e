//! Promise: a data directory belongs to one process, keeps its number of shards whatever the number of cores, and one that cannot be used is
//! refused by name with the cure. It needs no privileges.

use crate::broker::{Broker, Folder};
use crate::stored_directory::{DataDirectory, expect_refusal, serve, serve_by};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

const TOPICS: usize = 12;

fn write(broker: &Broker) {
    for topic in 0..TOPICS {
        let topic = format!("t{topic}");
        broker.create_logged_topic(&topic);
        broker.publish_numbers(&topic, 0..5);
        broker.group_post(&topic, "g", "fetch", json!({ "max": 3, "from_offset": 0 }));
        broker.group_post(&topic, "g", "ack", json!({ "offsets": [0, 1] }));
    }
}

/// Panics unless all topics have messages up to `count`; adds one to each.
#[track_caller]
fn expect_and_add(broker: &Broker, count: u64) {
    for topic in 0..TOPICS {
        let topic = format!("t{topic}");
        let everything = broker.everything(&topic, 0);
        let expected: Vec<_> = (0..count).map(|number| (number, number.to_string().into_bytes())).collect();
        assert_eq!(everything.messages, expected, "{topic}");
        assert_eq!(broker.group(&topic, "g")["committed_offset"], 2, "{topic}");
        broker.publish_numbers(&topic, count..count + 1);
    }
}

fn shards(data: &DataDirectory, count: &str, cores: &str) -> Vec<String> {
    let path = data.path().display().to_string();
    let words = ["--storage", "wal", "--wal-dir", &path, "--shards", count, "--cores", cores];
    words.map(str::to_owned).to_vec()
}

#[test]
fn a_second_process_is_refused() {
    let data = DataDirectory::new();
    let broker = data.start();
    broker.create_logged_topic("t");
    let told = data.expect_refusal();
    let names = [data.path().display().to_string(), broker.process_id().to_string()];
    assert!(names.iter().all(|name| told.contains(name)), "{names:?}: {told}");
    broker.publish_numbers("t", 0..3);
    let process = broker.process_id();
    drop(broker);
    // A killed one keeps nobody out.
    let broker = data.start();
    assert_ne!(broker.process_id(), process);
    assert_eq!(broker.everything("t", 0).offsets(), [0, 1, 2]);
}

#[test]
fn shards_stay_and_cores_may_change() {
    let data = DataDirectory::new();
    write(&data.setup().flag("--shards", 4).flag("--cores", 4).start());
    let mut count = 5;
    for cores in ["2", "1", "3", "4"] {
        let broker = data.setup().variable("RINGMAIN_SHARDS", 4).variable("RINGMAIN_CORES", cores).start();
        expect_and_add(&broker, count);
        count += 1;
    }
    // The directory says how many it has, whatever the number of cores.
    for cores in ["2", "1"] {
        // The test's own environment may set the number.
        let broker = data.setup().by(&["env", "-u", "RINGMAIN_SHARDS"]).variable("RINGMAIN_CORES", cores).start();
        expect_and_add(&broker, count);
        count += 1;
    }
    for other in ["1", "2", "5", "8"] {
        let before = data.contents();
        let told = expect_refusal(&serve(&shards(&data, other, "2"), &[]));
        assert!(told.contains("SHARDS") && told.contains(other) && told.contains('4'), "{told}");
        let path = data.path().display().to_string();
        let by_variable = ["--storage", "wal", "--wal-dir", &path].map(str::to_owned);
        let told = expect_refusal(&serve(&by_variable, &[("RINGMAIN_SHARDS", other)]));
        assert!(told.contains("RINGMAIN_SHARDS") && told.contains(other) && told.contains('4'), "{told}");
        assert!(told.contains(&path), "{told}");
        assert!(data.contents().keys().eq(before.keys()));
    }
    expect_and_add(&data.setup().flag("--shards", 4).start(), count);
}

#[test]
fn a_directory_that_cannot_be_is_refused() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    fs::write(&file, b"mine").unwrap();
    let below = file.join("data");
    let long = folder.path().join("n".repeat(300));
    let dangling = folder.path().join("dangling");
    symlink("/nowhere/at/all", &dangling).unwrap();
    for path in [&file, &below, &long, Path::new("/proc/ringmain"), &dangling] {
        let data = DataDirectory::at(path);
        let told = data.expect_refusal();
        assert!(told.contains(&path.display().to_string()), "{told}");
        assert!(told.contains("--wal-dir") || told.contains("WAL_DIR"), "no cure: {told}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_directory_is_made_with_its_parents() {
    let folder = Folder::new();
    let data = DataDirectory::at(&folder.path().join("some/where/below"));
    assert_eq!(data.try_start(), Ok(()));
    assert!(data.path().is_dir());
}

/// Makes the broker run as a user without any privileges, who may lock 8 MiB of memory as on most systems. The binary is copied to
/// where that user may run it.
fn as_nobody(folder: &Folder) -> [String; 3] {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test becomes another user, which only root can: run it as root, or leave it out with --skip unprivileged"
    );
    let binary = folder.path().join("ringmain");
    fs::copy(env!("CARGO_BIN_EXE_ringmain"), &binary).unwrap();
    let turn = "exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs";
    let script = format!("ulimit -l 8192 && {turn} '{}' \"$@\"", binary.display());
    ["sh".to_owned(), "-c".to_owned(), script]
}

/// A folder that everybody may enter, and in it one that is that user's own.
fn place_for_nobody() -> Folder {
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(65534), Some(65534)).unwrap();
    folder
}

#[test]
fn an_unprivileged_user_stores_durably() {
    let folder = place_for_nobody();
    let words = as_nobody(&folder);
    let nobody: Vec<&str> = words.iter().map(String::as_str).collect();
    let data = DataDirectory::at(&folder.path().join("own/data"));
    for round in 0..3 {
        let broker = data.setup().flag("--shards", 2).by(&nobody).start();
        let status = fs::read_to_string(format!("/proc/{}/status", broker.process_id())).unwrap();
        assert!(status.contains("Uid:\t65534"), "{status}");
        if round == 0 {
            write(&broker);
        }
        expect_and_add(&broker, 5 + round);
    }
    // What is not theirs is refused by name.
    let others = folder.path().join("others");
    fs::create_dir(&others).unwrap();
    fs::set_permissions(&others, fs::Permissions::from_mode(0o700)).unwrap();
    let denied = |path: PathBuf| {
        let words = ["--storage", "wal", "--wal-dir", &path.display().to_string()].map(str::to_owned);
        let told = expect_refusal(&serve_by(&nobody, &words, &[]));
        assert!(told.contains(&path.display().to_string()) && told.to_lowercase().contains("permission"), "{told}");
    };
    denied(others.clone());
    denied(others.join("data"));
    // Written by root before: the files are not theirs.
    let data = DataDirectory::at(&folder.path().join("own/by-root"));
    data.start().create_logged_topic("t");
    let told = expect_refusal(&serve_by(&nobody, &data.arguments(), &[]));
    assert!(told.contains(&data.path().display().to_string()), "{told}");
}
