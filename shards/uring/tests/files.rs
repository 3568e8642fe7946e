//! What is written is read back, in each way of syncing, direct and buffered, and operations run side by side.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;
mod stage;

use ringmain_uring::{FileAccess, FileMode, FileOutcome, SyncChoice, WriteSync};

use disk::{BLOCK, BOTH, Disk, NEW, Scratch};
use stage::pattern;

#[test]
fn what_is_written_is_read_back() {
    let scratch = Scratch::new();
    let mut disk = Disk::new();
    for direct in [true, false] {
        for choice in BOTH {
            for sync in [WriteSync::None, WriteSync::Data] {
                let path = scratch.file(&format!("{direct}-{choice:?}-{sync:?}"));
                disk.ring.set_sync_choice(choice);
                let file = disk.ring.open_file(&path, FileMode { access: FileAccess::CreateNew, direct }).unwrap();
                assert_eq!(disk.ring.file_facts(file).unwrap().length_bytes, 0);
                for (index, blocks) in [1_u32, 16, 3].into_iter().enumerate() {
                    let bytes = pattern((blocks * BLOCK) as usize, index as u64);
                    let position = index as u64 * 16 * u64::from(BLOCK);
                    let written = disk.write(file, position, &bytes, sync);
                    assert_eq!((written.bytes, written.error), (blocks * BLOCK, None));
                    assert_eq!(written.synced, sync == WriteSync::Data);
                    assert_eq!(&written.buffer[..bytes.len()], bytes, "the buffer comes back as it was");
                    drop(written);
                    assert_eq!(disk.read(file, position, blocks * BLOCK), bytes);
                }
                let operation = disk.ring.sync(file).unwrap();
                disk.finish(operation).unwrap();
                disk.close(file);
                assert_eq!(std::fs::read(&path).unwrap()[..BLOCK as usize], pattern(BLOCK as usize, 0));
            }
        }
    }
    assert_eq!((disk.ring.files(), disk.ring.file_operations(), disk.unasked()), (0, 0, 0));
    assert_eq!(disk.pool.available(), 16);
}

#[test]
fn a_file_is_found_again_with_its_length() {
    let scratch = Scratch::new();
    let path = scratch.file("again");
    let mut disk = Disk::new();
    let file = disk.ring.open_file(&path, NEW).unwrap();
    let operation = disk.ring.allocate(file, 1 << 20).unwrap();
    disk.finish(operation).unwrap();
    disk.write(file, 8192, &pattern(4096, 5), WriteSync::Data);
    disk.close(file);
    for access in [FileAccess::Read, FileAccess::ReadWrite] {
        let file = disk.ring.open_file(&path, FileMode { access, direct: true }).unwrap();
        assert_eq!(disk.ring.file_facts(file).unwrap().length_bytes, 1 << 20);
        assert_eq!(disk.read(file, 8192, 4096), pattern(4096, 5));
        assert_eq!(disk.read(file, 4096, 4096), [0; 4096], "allocated and never written");
        assert_eq!(disk.read(file, (1 << 20) - 4096, 8192).len(), 4096, "the end of the file");
        let written = disk.write(file, 0, &[7; 4096], WriteSync::Data);
        let expected = match access {
            FileAccess::Read => (0, false, Some(libc::EBADF)),
            _ => (4096, true, None),
        };
        assert_eq!((written.bytes, written.synced, written.error), expected);
        drop(written);
        disk.close(file);
    }
}

#[test]
fn many_writes_at_once_through_a_tiny_queue_stay_linked() {
    let scratch = Scratch::new();
    for submission_entries in [1, 2, 8] {
        let mut disk = Disk::with(submission_entries, submission_entries, 64, BLOCK);
        disk.ring.set_sync_choice(SyncChoice::WriteThenSync);
        let file = disk.ring.open_file(&scratch.file(&submission_entries.to_string()), NEW).unwrap();
        for round in 0..4 {
            let started: Vec<_> = (0..64_u64)
                .map(|block| {
                    let bytes = pattern(BLOCK as usize, block + round);
                    // An odd number of entries between the pairs, so that pairs meet the end of the queue.
                    if block % 3 == 0 {
                        disk.ring.sync(file).unwrap();
                    }
                    disk.start_write(file, block * u64::from(BLOCK), &bytes, WriteSync::Data)
                })
                .collect();
            for operation in started {
                let written = disk.written(operation);
                assert_eq!((written.bytes, written.synced, written.error), (BLOCK, true, None));
            }
            for block in [0, 1, 63] {
                let bytes = pattern(BLOCK as usize, block + round);
                assert_eq!(disk.read(file, block * u64::from(BLOCK), BLOCK), bytes);
            }
        }
        disk.close(file);
        assert_eq!(disk.ring.file_operations(), 0);
    }
}

#[test]
fn a_pool_is_bounded_and_takes_buffers_back() {
    let mut disk = Disk::with(8, 16, 3, 2 * BLOCK);
    let mut taken: Vec<_> = std::iter::from_fn(|| disk.pool.take()).collect();
    assert_eq!((taken.len(), disk.pool.available()), (3, 0));
    for (index, buffer) in taken.iter_mut().enumerate() {
        assert_eq!(buffer.len(), 2 * BLOCK as usize);
        assert_eq!(buffer.as_ptr() as usize % BLOCK as usize, 0);
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer.fill(index as u8 + 1);
    }
    for (index, buffer) in taken.iter().enumerate() {
        assert!(buffer.iter().all(|byte| *byte == index as u8 + 1), "buffers overlap");
    }
    drop(taken);
    assert_eq!(disk.pool.available(), 3);
    for (count, bytes) in [(0, BLOCK), (1, 0), (1, 100), (1, (1 << 30) + BLOCK)] {
        assert!(disk.ring.buffer_pool(count, bytes).is_err());
    }
}

#[test]
fn a_pool_works_with_another_ring_and_after_its_own() {
    let scratch = Scratch::new();
    let mut first = Disk::new();
    let mut second = Disk::new();
    let file = second.ring.open_file(&scratch.file("other"), NEW).unwrap();
    for gone in [false, true] {
        let mut buffer = first.pool.take().unwrap();
        buffer[..4096].copy_from_slice(&pattern(4096, 9));
        if gone {
            first = Disk::new();
        }
        let operation = second.ring.write(file, 0, buffer, 4096, WriteSync::Data).unwrap();
        assert!(second.written(operation).synced);
        let buffer = first.pool.take().unwrap();
        let operation = second.ring.read(file, 0, buffer, 4096).unwrap();
        match second.end(operation) {
            FileOutcome::Read { buffer, read_bytes: 4096, error: None } => {
                assert_eq!(buffer[..4096], pattern(4096, 9));
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
}
