//! A user without privileges and with 8 MiB of lockable memory can make and use rings.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, geteuid, setrlimit};

use stage::{Stage, small};

/// Owned by nobody on any Linux.
const NOBODY: u32 = 65_534;

const CHILD: &str = "RINGMAIN_UNPRIVILEGED";

#[test]
fn a_user_without_privileges_can_make_rings() {
    if std::env::var_os(CHILD).is_some() {
        return use_rings();
    }
    // The program may lie where only root can read it, so a copy runs instead.
    let mut copy = std::env::temp_dir();
    copy.push(format!("ringmain-unprivileged-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(&copy);
    command.args(["--exact", "a_user_without_privileges_can_make_rings"]).env(CHILD, "1");
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    let output = command.output();
    std::fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn use_rings() {
    assert!(!geteuid().is_root());
    let limit = Some(8 << 20);
    let limit = Rlimit { current: limit, maximum: limit };
    setrlimit(Resource::Memlock, limit).unwrap();
    // One ring of the default size for each of some cores, all in use at once.
    let mut stages: Vec<_> = (0..4).map(|_| Stage::new(&ringmain_uring::RingConfig::default())).collect();
    stages.push(Stage::new(&small()));
    for stage in &mut stages {
        let (mut peer, socket) = stage.pair();
        peer.write_all(b"unprivileged").unwrap();
        assert_eq!(stage.receive(socket, 12), b"unprivileged");
    }
}
