//! Files are opened and made through the ring, with the same facts as by a blocking open, and no descriptor is lost on the way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;
mod stage;

use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use ringmain_uring::{FileAccess, FileMode, OpenedFile, Refusal, WriteSync};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use disk::{Disk, NEW, Scratch, in_child};
use stage::descriptors;

fn open(disk: &mut Disk, path: &Path, access: FileAccess, direct: bool) -> io::Result<OpenedFile> {
    let operation = disk.ring.start_open(path, FileMode { access, direct }).unwrap();
    disk.opened(operation)
}

#[test]
fn a_file_that_exists_is_opened_with_what_is_known_of_it() {
    let scratch = Scratch::new();
    let path = scratch.file("there");
    std::fs::write(&path, [7; 12_288]).unwrap();
    let mut disk = Disk::new();
    for direct in [true, false] {
        let known = disk.ring.open_file(&path, FileMode { access: FileAccess::ReadWrite, direct }).unwrap();
        let expected = disk.ring.file_facts(known).unwrap();
        for access in [FileAccess::Read, FileAccess::ReadWrite] {
            let opened = open(&mut disk, &path, access, direct).unwrap();
            assert_eq!(opened.facts, expected, "as a blocking open tells");
            assert_eq!(disk.ring.file_facts(opened.id), Some(expected));
            assert_eq!(opened.facts.length_bytes, 12_288);
            assert!(direct || (!opened.facts.direct && opened.facts.block_bytes == 4096));
            assert_eq!(disk.read(opened.id, 4096, 16_384), [7; 8192]);
            let written = disk.write(opened.id, 0, &[7; 4096], WriteSync::Data);
            assert_eq!(written.error.is_none(), access == FileAccess::ReadWrite);
            disk.close(opened.id);
            assert_eq!(disk.ring.file_facts(opened.id), None);
        }
        disk.close(known);
    }
    assert_eq!((disk.ring.files(), disk.ring.file_operations()), (0, 0));
}

#[test]
fn a_new_file_is_its_owners_and_is_made_only_once() {
    let scratch = Scratch::new();
    let path = scratch.file("new");
    let mut disk = Disk::new();
    let opened = open(&mut disk, &path, FileAccess::CreateNew, true).unwrap();
    assert_eq!(opened.facts.length_bytes, 0);
    assert!(disk.write(opened.id, 0, &[1; 8192], WriteSync::Data).synced);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let again = open(&mut disk, &path, FileAccess::CreateNew, true).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), [1; 8192], "what was there is left alone");
    // Of many that want to make one file, one does.
    let path = scratch.file("wanted");
    let started: Vec<_> = (0..20).map(|_| disk.ring.start_open(&path, NEW).unwrap()).collect();
    let made = started.into_iter().filter_map(|operation| disk.opened(operation).ok()).count();
    assert_eq!((made, disk.ring.files()), (1, 2));
}

#[test]
fn what_cannot_be_opened_leaves_nothing_behind() {
    if !in_child("what_cannot_be_opened_leaves_nothing_behind") {
        return;
    }
    let scratch = Scratch::new();
    let pipe = scratch.file("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut disk = Disk::new();
    let before = descriptors();
    for access in [FileAccess::Read, FileAccess::ReadWrite] {
        let none = open(&mut disk, &scratch.file("none"), access, true).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotFound);
        assert_eq!(open(&mut disk, &pipe, access, true).unwrap_err().kind(), ErrorKind::InvalidInput);
        let below = open(&mut disk, &scratch.file("none/file"), access, true).unwrap_err();
        assert_eq!(below.kind(), ErrorKind::NotFound);
    }
    assert_eq!(open(&mut disk, &scratch.path, FileAccess::Read, true).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(open(&mut disk, &scratch.path, FileAccess::ReadWrite, true).is_err());
    let below = open(&mut disk, &scratch.file("none/file"), FileAccess::CreateNew, true).unwrap_err();
    assert_eq!(below.kind(), ErrorKind::NotFound);
    assert!(matches!(disk.ring.start_open(Path::new("a\0b"), NEW), Err(Refusal::Path)));
    assert_eq!((disk.ring.files(), disk.ring.file_operations()), (0, 0));
    assert_eq!(std::fs::read_dir(&scratch.path).unwrap().count(), 1);
    assert_eq!(descriptors(), before);
}

#[test]
fn a_file_in_memory_is_not_direct() {
    let memory = Path::new("/dev/shm");
    assert!(memory.is_dir(), "a directory in memory is needed at {}", memory.display());
    let scratch = Scratch::under(memory);
    let mut disk = Disk::new();
    for name in ["first", "second"] {
        let opened = open(&mut disk, &scratch.file(name), FileAccess::CreateNew, true).unwrap();
        assert!(!opened.facts.direct);
        assert!(disk.write(opened.id, 1, b"odd", WriteSync::Data).synced);
    }
}

#[test]
fn opens_are_bounded_like_everything() {
    let scratch = Scratch::new();
    let mut disk = Disk::new();
    let path = scratch.file("none");
    let mode = FileMode { access: FileAccess::ReadWrite, direct: true };
    let started: Vec<_> = std::iter::from_fn(|| disk.ring.start_open(&path, mode).ok()).take(5000).collect();
    assert_eq!(started.len(), 4096);
    assert!(matches!(disk.ring.start_open(&path, mode), Err(Refusal::Full)));
    for operation in started {
        assert_eq!(disk.opened(operation).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_ring_dropped_with_opens_in_flight_loses_no_descriptor() {
    if !in_child("a_ring_dropped_with_opens_in_flight_loses_no_descriptor") {
        return;
    }
    let scratch = Scratch::new();
    let there = scratch.file("there");
    std::fs::write(&there, b"x").unwrap();
    let before = descriptors();
    for round in 0..200_u32 {
        let mut disk = Disk::with(2, 4, 1, 4096);
        for number in 0..8 {
            let mode = FileMode { access: FileAccess::ReadWrite, direct: number % 2 == 0 };
            disk.ring.start_open(&there, mode).unwrap();
            disk.ring.start_open(&scratch.file(&format!("{round}-{number}")), NEW).unwrap();
        }
        // As many turns as the round has number, so that it is dropped before, between and after both steps.
        for _ in 0..round % 12 {
            disk.turn(Duration::ZERO);
        }
        drop(disk);
        assert_eq!(descriptors(), before, "a descriptor is still open in round {round}");
    }
}

#[test]
fn a_length_is_set() {
    let scratch = Scratch::new();
    let path = scratch.file("long");
    let mut disk = Disk::new();
    let opened = open(&mut disk, &path, FileAccess::CreateNew, true).unwrap();
    for bytes in [1 << 20, 4096, 0] {
        let operation = disk.ring.set_length(opened.id, bytes).unwrap();
        disk.finish(operation).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    }
    assert!(matches!(disk.ring.set_length(opened.id, 1 << 63), Err(Refusal::Length)));
    let operation = disk.ring.set_length(opened.id, i64::MAX as u64).unwrap();
    assert!(disk.finish(operation).is_err(), "no disk is that long");
}
