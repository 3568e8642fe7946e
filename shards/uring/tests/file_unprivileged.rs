//! A user without privileges and with 8 MiB of lockable memory gets buffers, registered as far as the limit goes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use ringmain_uring::{WriteSync, measure_sync};
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};

use disk::{Disk, NEW, Scratch};

const CHILD: &str = "RINGMAIN_FILES_UNPRIVILEGED";

/// Locked memory is counted for each user, so each run is a user of its own, whom no system has.
fn stranger() -> u32 {
    1_000_000_000 + std::process::id()
}

#[test]
fn buffers_beyond_the_limit_are_not_registered_and_work() {
    if std::env::var_os(CHILD).is_some() {
        return use_buffers();
    }
    // The program may lie where only root can read it, so a copy runs instead.
    let scratch = Scratch::under(&std::env::temp_dir());
    std::fs::set_permissions(&scratch.path, PermissionsExt::from_mode(0o777)).unwrap();
    let copy = scratch.file("copy");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(&copy);
    command.args(["--exact", "buffers_beyond_the_limit_are_not_registered_and_work"]).env(CHILD, &scratch.path);
    if geteuid().is_root() {
        command.uid(stranger()).gid(stranger()).current_dir("/");
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn use_buffers() {
    let directory = std::path::PathBuf::from(std::env::var_os(CHILD).unwrap());
    assert!(!geteuid().is_root());
    let limit = Some(8 << 20);
    setrlimit(Resource::Memlock, Rlimit { current: limit, maximum: limit }).unwrap();
    measure_sync(&directory).unwrap();
    // What does not fit is refused half way, and the half is given back.
    let mut disk = Disk::with(8, 16, 32, 1 << 20);
    assert!(!disk.pool.registered(), "32 MiB cannot be locked");
    let few = disk.ring.buffer_pool(4, 1 << 20).unwrap();
    assert!(few.registered() || geteuid().as_raw() < 1_000_000_000, "4 MiB can be locked by a stranger");
    let file = disk.ring.open_file(&directory.join("file"), NEW).unwrap();
    for pool in [disk.pool.clone(), few] {
        disk.pool = pool;
        assert!(disk.write(file, 0, &[5; 1 << 20], WriteSync::Data).synced);
        assert_eq!(disk.read(file, 0, 1 << 20), vec![5; 1 << 20]);
    }
    let another = disk.ring.buffer_pool(8, 1 << 20).unwrap();
    assert!(!another.registered(), "4 + 8 MiB cannot be locked");
}
