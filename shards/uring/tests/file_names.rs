//! Names: rename, unlink and directory sync go through the ring, and an unlinked file works until it is closed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;

use std::io::ErrorKind;
use std::path::Path;

use ringmain_uring::{Error, Refusal, WriteSync};

use disk::{Disk, NEW, Scratch};

#[test]
fn a_file_is_renamed_over_another_and_the_directory_synced() {
    let scratch = Scratch::new();
    let mut disk = Disk::new();
    let (from, to) = (scratch.file("new"), scratch.file("slot"));
    std::fs::write(&to, b"old").unwrap();
    let file = disk.ring.open_file(&from, NEW).unwrap();
    disk.write(file, 0, &[b'n'; 4096], WriteSync::Data);
    let operation = disk.ring.rename(&from, &to).unwrap();
    disk.finish(operation).unwrap();
    let directory = disk.ring.open_directory(&scratch.path).unwrap();
    let operation = disk.ring.sync_directory(&directory).unwrap();
    disk.finish(operation).unwrap();
    assert!(!from.exists());
    assert_eq!(std::fs::read(&to).unwrap(), [b'n'; 4096]);
    let operation = disk.ring.rename(&from, &to).unwrap();
    assert_eq!(disk.finish(operation).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn an_unlinked_file_works_until_it_is_closed() {
    let scratch = Scratch::new();
    let path = scratch.file("gone");
    let mut disk = Disk::new();
    let file = disk.ring.open_file(&path, NEW).unwrap();
    let operation = disk.ring.unlink(&path).unwrap();
    disk.finish(operation).unwrap();
    assert!(!path.exists());
    assert!(disk.write(file, 4096, &[3; 8192], WriteSync::Data).synced);
    assert_eq!(disk.read(file, 4096, 8192), [3; 8192]);
    disk.close(file);
    let operation = disk.ring.unlink(&path).unwrap();
    assert_eq!(disk.finish(operation).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn paths_that_cannot_be_are_refused() {
    let scratch = Scratch::new();
    let mut disk = Disk::new();
    let zero = Path::new("a\0b");
    assert!(matches!(disk.ring.unlink(zero), Err(Refusal::Path)));
    assert!(matches!(disk.ring.rename(zero, Path::new("b")), Err(Refusal::Path)));
    assert!(matches!(disk.ring.rename(Path::new("b"), zero), Err(Refusal::Path)));
    std::fs::write(scratch.file("file"), b"").unwrap();
    for path in [scratch.file("none"), scratch.file("file"), zero.to_owned()] {
        assert!(matches!(disk.ring.open_directory(&path), Err(Error::System { what: "open", .. })));
    }
    assert_eq!(disk.ring.file_operations(), 0);
}
