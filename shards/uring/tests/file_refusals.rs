//! What cannot be is refused before the kernel is asked, with the buffer given back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;

use std::path::Path;

use ringmain_uring::{BufferPool, Error, FileAccess, FileId, FileMode, OperationId, Refusal, Refused, Ring, WriteSync};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use disk::{Disk, NEW, Scratch};

/// Why a write and a read of this range are refused; both must agree.
fn refusal(ring: &mut Ring, pool: &BufferPool, file: FileId, position: u64, length: u32) -> Refusal {
    let before = pool.available();
    let write = ring.write(file, position, pool.take().unwrap(), length, WriteSync::Data).unwrap_err();
    let Refused { reason, buffer } = ring.read(file, position, pool.take().unwrap(), length).unwrap_err();
    assert_eq!(write.reason.to_string(), reason.to_string());
    drop((write, buffer));
    assert_eq!(pool.available(), before);
    reason
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let scratch = Scratch::new();
    let Disk { mut ring, pool, .. } = Disk::new();
    for direct in [true, false] {
        let path = scratch.file(&direct.to_string());
        let file = ring.open_file(&path, FileMode { access: FileAccess::CreateNew, direct }).unwrap();
        let facts = ring.file_facts(file).unwrap();
        let block = facts.block_bytes;
        for length in [0, 64 * 1024 + block, u32::MAX] {
            let reason = refusal(&mut ring, &pool, file, 0, length);
            assert!(matches!(reason, Refusal::Length), "{reason}");
        }
        // The last is what the kernel takes for the current position.
        for position in [i64::MAX as u64 - 10, 1 << 63, u64::MAX] {
            let reason = refusal(&mut ring, &pool, file, position, block);
            assert!(matches!(reason, Refusal::Position), "{reason}");
        }
        if facts.direct {
            for (position, length) in [(1, block), (u64::from(block / 2), block), (0, block - 1), (0, block + 1)] {
                let reason = refusal(&mut ring, &pool, file, position, length);
                assert!(matches!(reason, Refusal::Alignment { block_bytes } if block_bytes == block), "{reason}");
            }
        }
        for bytes in [0, 1 << 63, u64::MAX] {
            assert!(matches!(ring.allocate(file, bytes), Err(Refusal::Length)));
        }
    }
    assert_eq!(ring.file_operations(), 0);
}

#[test]
fn a_buffered_file_takes_any_range() {
    let scratch = Scratch::new();
    let mut disk = Disk::new();
    let mode = FileMode { access: FileAccess::CreateNew, direct: false };
    let file = disk.ring.open_file(&scratch.file("odd"), mode).unwrap();
    let facts = disk.ring.file_facts(file).unwrap();
    assert_eq!((facts.direct, facts.block_bytes), (false, 4096));
    assert!(disk.write(file, 3, b"odd", WriteSync::Data).synced);
    assert_eq!(disk.read(file, 0, 100), b"\0\0\0odd");
}

#[test]
fn a_closed_file_is_nobody() {
    let scratch = Scratch::new();
    let mut disk = Disk::new();
    let mut old = Vec::new();
    for round in 0..20 {
        let file = disk.ring.open_file(&scratch.file(&round.to_string()), NEW).unwrap();
        assert!(!old.contains(&file), "an id came twice");
        disk.close(file);
        old.push(file);
    }
    let file = disk.ring.open_file(&scratch.file("now"), NEW).unwrap();
    for stale in old {
        let reason = refusal(&mut disk.ring, &disk.pool, stale, 0, 4096);
        assert!(matches!(reason, Refusal::UnknownFile));
        assert!(matches!(disk.ring.sync(stale), Err(Refusal::UnknownFile)));
        assert!(matches!(disk.ring.allocate(stale, 1), Err(Refusal::UnknownFile)));
        assert!(matches!(disk.ring.close_file(stale), Err(Refusal::UnknownFile)));
        assert_eq!(disk.ring.file_facts(stale), None);
    }
    assert!(disk.write(file, 0, &[1; 4096], WriteSync::Data).synced);
}

#[test]
fn closing_waits_for_what_is_under_way_and_takes_nothing_new() {
    let scratch = Scratch::new();
    let mut disk = Disk::new();
    let file = disk.ring.open_file(&scratch.file("closing"), NEW).unwrap();
    let write = disk.start_write(file, 0, &[1; 4096], WriteSync::Data);
    let close = disk.ring.close_file(file).unwrap();
    assert!(matches!(disk.ring.close_file(file), Err(Refusal::UnknownFile)));
    assert!(matches!(disk.ring.sync(file), Err(Refusal::UnknownFile)));
    assert_eq!(disk.ring.files(), 1);
    disk.finish(close).unwrap();
    assert_eq!((disk.ring.files(), disk.unasked()), (0, 1), "the write was told before");
    assert!(disk.written(write).synced);
}

#[test]
fn operations_are_bounded() {
    let scratch = Scratch::new();
    let mut disk = Disk::new();
    let file = disk.ring.open_file(&scratch.file("many"), NEW).unwrap();
    let started: Vec<OperationId> = std::iter::from_fn(|| disk.ring.sync(file).ok()).take(5000).collect();
    assert_eq!((started.len(), disk.ring.file_operations()), (4096, 4096));
    assert!(matches!(disk.ring.sync(file), Err(Refusal::Full)));
    assert!(matches!(disk.ring.close_file(file), Err(Refusal::Full)));
    assert!(matches!(disk.ring.unlink(Path::new("/nowhere")), Err(Refusal::Full)));
    assert!(matches!(refusal(&mut disk.ring, &disk.pool, file, 0, 4096), Refusal::Full));
    for operation in started {
        disk.finish(operation).unwrap();
    }
    disk.close(file);
}

#[test]
fn only_regular_files_are_opened() {
    let scratch = Scratch::new();
    let mut ring = Disk::new().ring;
    let pipe = scratch.file("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let refused = |ring: &mut Ring, path: &Path, access| match ring
        .open_file(path, FileMode { access, direct: true })
        .unwrap_err()
    {
        Error::System { what: "open", source } => source.kind(),
        other => panic!("unexpected: {other}"),
    };
    for path in [&pipe, &scratch.path] {
        assert_eq!(refused(&mut ring, path, FileAccess::Read), std::io::ErrorKind::InvalidInput);
        assert_eq!(refused(&mut ring, path, FileAccess::CreateNew), std::io::ErrorKind::AlreadyExists);
    }
    assert_eq!(refused(&mut ring, &scratch.file("none"), FileAccess::ReadWrite), std::io::ErrorKind::NotFound);
    assert_eq!(ring.files(), 0);
}
