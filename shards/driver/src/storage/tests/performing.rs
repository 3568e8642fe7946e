//! Effects do the same to a folder by the ring as they do blocking, whatever their size, number and order.

use proptest::prelude::*;
use ringmain_model::{Incarnation, Offset, PartitionRef};
use ringmain_wal::{Completion, Effect, Failure, FileName, SlotName, TopicFile};

use crate::storage::blocking::BlockingFolder;
use crate::storage::disk::DiskSettings;

use super::stage::{SMALL, Scratch, Stage, pattern, segment};

fn topic(base: u64) -> FileName {
    let partition = PartitionRef { incarnation: Incarnation(7), partition: 0 };
    FileName::Topic(TopicFile { partition, base: Offset(base) })
}

#[test]
fn a_long_write_in_odd_parts_is_read_back_from_anywhere() {
    for direct in [true, false] {
        let mut stage = Stage::new(DiskSettings { direct, ..SMALL });
        let bytes = pattern(1 << 20, 3);
        assert_eq!(stage.perform(Effect::Allocate { file: topic(0), bytes: 2 << 20 }), Completion::Done);
        let cuts = [0, 1, 4095, 4095, 70_000, 1 << 20];
        let parts = cuts.windows(2).map(|cut| bytes.slice(cut[0]..cut[1])).collect();
        let write = Effect::Write { file: topic(0), position: 8192, parts };
        assert_eq!(stage.perform(write), Completion::Written(1 << 20));
        let mut read = |position: u64, bytes: u64| stage.perform(Effect::Read { file: topic(0), position, bytes });
        assert_eq!(read(8192, 1 << 20), Completion::Read(bytes.clone()));
        assert_eq!(read(8195, 5), Completion::Read(bytes.slice(3..8)));
        assert_eq!(read(12_287, 20_000), Completion::Read(bytes.slice(4095..24_095)));
        let Completion::Read(all) = read(0, 1 << 40) else { panic!("no read") };
        assert_eq!(all.len(), 2 << 20, "a read ends with the file");
        assert_eq!(read((2 << 20) - 10, 100), Completion::Read(vec![0; 10].into()));
        assert_eq!(read(2 << 20, 100), Completion::Read(Vec::new().into()));
        assert_eq!(read(0, 0), Completion::Read(Vec::new().into()));
    }
}

#[test]
fn what_is_no_whole_block_is_written_all_the_same() {
    let mut stage = Stage::new(SMALL);
    stage.perform(Effect::Allocate { file: topic(0), bytes: 4096 });
    for (position, length) in [(0, 5000), (5000, 1), (5001, 20_000)] {
        let write = Effect::Write { file: topic(0), position, parts: vec![pattern(length, 9)] };
        assert_eq!(stage.perform(write), Completion::Written(length as u64));
    }
    let expected = [pattern(5000, 9), pattern(1, 9), pattern(20_000, 9)].concat();
    assert_eq!(stage.scratch.contents()[0].1, expected);
}

#[test]
fn a_file_without_room_is_not_left_behind() {
    let mut stage = Stage::new(SMALL);
    // More than any file system gives one file; nothing is reserved on the way to that answer.
    let failed = stage.perform(Effect::Allocate { file: segment(1), bytes: 1 << 62 });
    assert!(matches!(failed, Completion::Failed(_)), "{failed:?}");
    assert_eq!(stage.scratch.contents(), []);
    assert_eq!(stage.perform(Effect::Allocate { file: segment(1), bytes: 4096 }), Completion::Done, "the name is free");
    let again = stage.perform(Effect::Allocate { file: segment(1), bytes: 8192 });
    assert!(matches!(again, Completion::Failed(Failure::System(_))), "{again:?}");
    assert_eq!(stage.scratch.contents()[0].1.len(), 4096, "what was there is left alone");
}

#[test]
fn more_files_than_may_be_open_are_used_in_turn() {
    let mut stage = Stage::new(SMALL);
    for number in 0..20 {
        stage.perform(Effect::Allocate { file: segment(number), bytes: 4096 });
        let parts = vec![pattern(4096, number as u8)];
        stage.perform(Effect::Write { file: segment(number), position: 0, parts });
        assert!(stage.disk.open_files() <= 4);
    }
    for number in (0..20).rev() {
        let read = stage.perform(Effect::Read { file: segment(number), position: 0, bytes: 4096 });
        assert_eq!(read, Completion::Read(pattern(4096, number as u8)));
        assert!(stage.disk.open_files() <= 4);
    }
}

#[test]
fn a_commit_goes_past_reads_that_want_all_buffers() {
    let mut stage = Stage::new(SMALL);
    for number in 1..3 {
        stage.perform(Effect::Allocate { file: segment(number), bytes: 1 << 20 });
    }
    let read = Effect::Read { file: segment(1), position: 0, bytes: 1 << 20 };
    let reads: Vec<_> = (0..8).map(|_| stage.start(read.clone())).collect();
    let before = stage.in_flight();
    let write = stage.start(Effect::Write { file: segment(2), position: 0, parts: vec![pattern(4096, 1)] });
    assert_eq!((before, stage.in_flight()), (3, 4), "the commit has the buffer that reads may not take");
    assert_eq!(stage.end(write), Completion::Written(4096));
    for read in reads {
        assert_eq!(stage.end(read), Completion::Read(vec![0; 1 << 20].into()));
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Allocate(u64, u64),
    Write(u64, u64, usize),
    Read(u64, u64, u64),
    Sync(u64),
    SyncDirectory,
    Rename(u64, u64),
    Unlink(u64),
}

fn any_deed() -> impl Strategy<Value = Deed> {
    let file = || 0..6_u64;
    let position = || prop_oneof![Just(0), 0..20_u64, (0..20_u64).prop_map(|block| block * 4096), 0..90_000_u64];
    let length = || prop_oneof![(0..20_usize).prop_map(|blocks| blocks * 4096), 0..70_000_usize];
    prop_oneof![
        (file(), 1..100_000_u64).prop_map(|(file, bytes)| Deed::Allocate(file, bytes)),
        (file(), position(), length()).prop_map(|(file, position, length)| Deed::Write(file, position, length)),
        (file(), position(), 0..200_000_u64).prop_map(|(file, position, bytes)| Deed::Read(file, position, bytes)),
        file().prop_map(Deed::Sync),
        Just(Deed::SyncDirectory),
        (file(), file()).prop_map(|(from, to)| Deed::Rename(from, to)),
        file().prop_map(Deed::Unlink),
    ]
}

fn name(file: u64) -> FileName {
    match file {
        0 => FileName::Slot(SlotName::A),
        1 | 2 => segment(file),
        _ => topic(file),
    }
}

fn effect(deed: &Deed, seed: u8) -> Effect {
    match *deed {
        Deed::Allocate(file, bytes) => Effect::Allocate { file: name(file), bytes },
        Deed::Write(file, position, length) => {
            let bytes = pattern(length, seed);
            let parts = vec![bytes.slice(..length / 3), bytes.slice(length / 3..)];
            Effect::Write { file: name(file), position, parts }
        }
        Deed::Read(file, position, bytes) => Effect::Read { file: name(file), position, bytes },
        Deed::Sync(file) => Effect::Sync { file: name(file) },
        Deed::SyncDirectory => Effect::SyncDirectory,
        Deed::Rename(from, to) => Effect::Rename { from: name(from), to: name(to) },
        Deed::Unlink(file) => Effect::Unlink { file: name(file) },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_ring_does_what_blocking_does(deeds in proptest::collection::vec(any_deed(), 1..40), direct in any::<bool>()) {
        let mut stage = Stage::new(DiskSettings { direct, ..SMALL });
        let scratch = Scratch::new();
        let mut blocking = BlockingFolder::new(scratch.path().to_owned());
        for (deed, seed) in deeds.iter().zip(0..) {
            let effect = effect(deed, seed);
            prop_assert_eq!(stage.perform(effect.clone()), blocking.perform(&effect), "{:?}", deed);
        }
        prop_assert_eq!(stage.scratch.contents(), scratch.contents());
    }
}
