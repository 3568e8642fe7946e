//! A lock file keeps a second process out and tells it who is in.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use ringmain_uring::{LockHeld, lock_exclusive};

use disk::Scratch;

const CHILD: &str = "RINGMAIN_LOCK_FILE";

/// Whom the refusal names.
fn holder(path: &Path) -> Option<u32> {
    let error = lock_exclusive(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    let held = error.get_ref().unwrap().downcast_ref::<LockHeld>().unwrap();
    assert_eq!(held.path, path);
    match held.process {
        Some(process) => assert!(text.ends_with(&format!("locked by process {process}")), "{text}"),
        None => assert!(text.ends_with("locked by another process"), "{text}"),
    }
    held.process
}

#[test]
fn a_second_process_is_refused_by_name() {
    if let Some(path) = std::env::var_os(CHILD) {
        let holder = holder(Path::new(&path));
        assert_eq!(holder, Some(std::os::unix::process::parent_id()));
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.file("lock");
    let guard = lock_exclusive(&path).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_second_process_is_refused_by_name"])
        .env(CHILD, &path)
        .status()
        .unwrap();
    assert!(status.success());
    drop(guard);
    drop(lock_exclusive(&path).unwrap());
}

#[test]
fn the_same_process_is_refused_too_and_nonsense_names_nobody() {
    let scratch = Scratch::new();
    let path = scratch.file("lock");
    // What a longer-named process of the past has left must not show through.
    std::fs::write(&path, "99999999999999999999 and more\n").unwrap();
    let guard = lock_exclusive(&path).unwrap();
    assert_eq!(holder(&path), Some(std::process::id()));
    for nonsense in [&b""[..], b"nobody", b"\xff\xfe", b"-1", &[b'1'; 1000]] {
        std::fs::write(&path, nonsense).unwrap();
        assert_eq!(holder(&path), None);
    }
    drop(guard);
    drop(lock_exclusive(&path).unwrap());
    assert_eq!(lock_exclusive(&scratch.file("none/lock")).unwrap_err().kind(), ErrorKind::NotFound);
}
