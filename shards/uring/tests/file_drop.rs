//! A ring can be dropped at every point of operations on files: buffers, descriptors and paths are free again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;
mod stage;

use std::time::Duration;

use ringmain_uring::WriteSync;

use disk::{BOTH, Disk, NEW, Scratch};
use stage::descriptors;

/// One of everything, several times, through a queue that holds two.
fn busy(scratch: &Scratch, round: usize) -> Disk {
    let mut disk = Disk::with(2, 4, 24, 64 * 1024);
    disk.ring.set_sync_choice(BOTH[round % 2]);
    let directory = disk.ring.open_directory(&scratch.path).unwrap();
    for number in 0..4_u64 {
        let path = scratch.file(&format!("{round}-{number}"));
        let file = disk.ring.open_file(&path, NEW).unwrap();
        for part in 0..3 {
            disk.start_write(file, part * 64 * 1024, &[number as u8; 64 * 1024], WriteSync::Data);
        }
        disk.ring.allocate(file, 4 << 20).unwrap();
        disk.ring.set_length(file, 1 << 20).unwrap();
        disk.ring.sync(file).unwrap();
        let buffer = disk.pool.take().unwrap();
        disk.ring.read(file, 0, buffer, 4096).unwrap();
        if number % 2 == 0 {
            disk.ring.close_file(file).unwrap();
        }
        disk.ring.sync_directory(&directory).unwrap();
        disk.ring.rename(&path, &scratch.file(&format!("{round}-renamed-{number}"))).unwrap();
        disk.ring.unlink(&scratch.file("nobody")).unwrap();
        disk.ring.start_open(&scratch.file(&format!("{round}-opened-{number}")), NEW).unwrap();
        disk.ring.start_open(&scratch.file("nobody"), NEW).unwrap();
    }
    disk
}

#[test]
fn a_ring_is_dropped_at_every_point() {
    let scratch = Scratch::new();
    let before = descriptors();
    for round in 0..60 {
        let mut disk = busy(&scratch, round);
        let operations = disk.ring.file_operations();
        assert_eq!(operations, 4 * 12 + 2);
        let mut told = 0;
        // As many events as the round has number; in the first none, and not even a turn.
        while told < round.min(operations) {
            disk.ring.turn(Some(Duration::from_millis(50))).unwrap();
            while told < round
                && let Some(event) = disk.ring.next_event()
            {
                drop(event);
                told += 1;
            }
        }
        let pool = disk.pool.clone();
        drop(disk);
        assert_eq!(pool.available(), 24, "a buffer is still held in round {round}");
        assert_eq!(descriptors(), before, "a descriptor is still open in round {round}");
    }
}
