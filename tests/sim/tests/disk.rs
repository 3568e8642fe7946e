//! The pretend disk keeps what was synced, and of the rest what chance leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use bytes::Bytes;
use ringmain_sim::{Chance, Disk, SECTOR_BYTES};
use ringmain_wal::{Completion, Effect, Failure, FileName, SegmentNumber};

const FILE: FileName = FileName::Segment(SegmentNumber(1));
const OTHER: FileName = FileName::Segment(SegmentNumber(2));
const BLOCK: usize = 4096;

fn write(file: FileName, position: u64, byte: u8) -> Effect {
    Effect::Write { file, position, parts: vec![Bytes::from(vec![byte; BLOCK])] }
}

/// A disk with one durable file of two blocks of ones.
fn disk() -> Disk {
    let mut disk = Disk::new(1 << 20);
    for effect in [
        Effect::Allocate { file: FILE, bytes: 2 * BLOCK as u64 },
        write(FILE, 0, 1),
        write(FILE, BLOCK as u64, 1),
        Effect::Sync { file: FILE },
        Effect::SyncDirectory,
    ] {
        assert!(!matches!(disk.perform(&effect), Completion::Failed(_)));
    }
    disk
}

#[test]
fn what_was_synced_stays_and_the_rest_tears_at_sectors() {
    let mut torn = 0;
    for seed in 0..50 {
        let (mut disk, mut chance) = (disk(), Chance::of(seed));
        disk.perform(&write(FILE, 0, 2));
        disk.lose_power(&mut chance);
        let content = disk.whole(FILE).unwrap();
        assert!(content[BLOCK..].iter().all(|byte| *byte == 1), "what was synced stays");
        let sectors: Vec<_> = content[..BLOCK].chunks(SECTOR_BYTES).collect();
        assert!(sectors.iter().all(|sector| sector.iter().all(|byte| *byte == sector[0])), "a sector is whole");
        torn += usize::from(sectors.iter().any(|sector| sector[0] == 1) && sectors.iter().any(|sector| sector[0] == 2));
    }
    assert!(torn > 10);
}

#[test]
fn names_are_durable_after_a_sync_of_the_directory() {
    let (mut gone, mut kept) = (0, 0);
    for seed in 0..50 {
        let (mut disk, mut chance) = (disk(), Chance::of(seed));
        disk.perform(&Effect::Rename { from: FILE, to: OTHER });
        assert!(disk.whole(OTHER).is_some());
        disk.lose_power(&mut chance);
        gone += usize::from(disk.whole(OTHER).is_none() && disk.whole(FILE).is_some());
        kept += usize::from(disk.whole(OTHER).is_some() && disk.whole(FILE).is_none());
    }
    assert!(gone > 5 && kept > 5 && gone + kept == 50);
    let mut disk = disk();
    disk.perform(&Effect::Unlink { file: FILE });
    disk.perform(&Effect::SyncDirectory);
    disk.lose_power(&mut Chance::of(0));
    assert_eq!(disk.whole(FILE), None);
}

#[test]
fn a_full_disk_refuses_what_grows_and_an_unlink_gives_room() {
    let mut disk = disk();
    disk.capacity = disk.used();
    let grown = Effect::Allocate { file: OTHER, bytes: BLOCK as u64 };
    assert_eq!(disk.perform(&grown), Completion::Failed(Failure::NoSpace));
    assert_eq!(disk.perform(&write(FILE, 0, 3)), Completion::Written(BLOCK as u64), "what is allocated can be written");
    disk.perform(&Effect::Unlink { file: FILE });
    assert_eq!(disk.perform(&grown), Completion::Done);
}

#[test]
fn what_a_failed_sync_has_forgotten_is_not_there_for_the_next_process() {
    let mut forgotten = 0;
    for seed in 0..50 {
        let (mut disk, mut chance) = (disk(), Chance::of(seed));
        disk.perform(&write(FILE, 0, 2));
        disk.fail_sync(FILE, &mut chance);
        assert!(disk.whole(FILE).unwrap()[..BLOCK].iter().all(|byte| *byte == 2), "this process sees what it wrote");
        disk.perform(&Effect::Sync { file: FILE });
        disk.end_process();
        forgotten += usize::from(disk.whole(FILE).unwrap()[..BLOCK].contains(&1));
    }
    assert!(forgotten > 5);
}
