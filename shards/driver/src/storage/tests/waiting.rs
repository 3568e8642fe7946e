//! Effects whose file is not open yet wait for it, in the order in which they were asked for, and others go past them.

use ringmain_wal::{Completion, Effect, Failure, FileName, OperationId, SegmentNumber};

use super::stage::{SMALL, Stage, pattern, segment};

/// What the system says of a name that nobody has (ENOENT), and of one that somebody has (EEXIST).
const NONE: Completion = Completion::Failed(Failure::System(2));
const EXISTS: Completion = Completion::Failed(Failure::System(17));

/// A disk on which files of one block are, none of which is open.
fn with_closed_files(count: u64) -> Stage {
    let stage = Stage::new(SMALL);
    for number in 0..count {
        let name = crate::storage::names::text_of(segment(number));
        std::fs::write(stage.scratch.path().join(name), pattern(4096, number as u8)).unwrap();
    }
    stage
}

fn read(number: u64) -> Effect {
    Effect::Read { file: segment(number), position: 0, bytes: 4096 }
}

fn has(number: u64) -> Completion {
    Completion::Read(pattern(4096, number as u8))
}

#[test]
fn nothing_is_opened_by_the_core_itself() {
    let mut stage = with_closed_files(1);
    let reading = stage.start(read(0));
    assert_eq!((stage.ended(reading), stage.disk.open_files()), (None, 0), "the ring is asked first");
    assert_eq!((stage.end(reading), stage.disk.open_files()), (has(0), 1));
}

#[test]
fn a_name_is_taken_away_after_those_who_asked_for_it_before() {
    let mut stage = with_closed_files(1);
    let before: Vec<_> = (0..3).map(|_| stage.start(read(0))).collect();
    let unlink = stage.start(Effect::Unlink { file: segment(0) });
    for reading in before {
        assert_eq!(stage.end(reading), has(0));
    }
    assert_eq!(stage.end(unlink), Completion::Done);
    assert_eq!((stage.perform(read(0)), stage.disk.open_files()), (NONE, 0));
}

#[test]
fn a_name_that_is_taken_away_is_opened_by_nobody_meanwhile() {
    let mut stage = with_closed_files(2);
    let unlink = stage.start(Effect::Unlink { file: segment(0) });
    let late = stage.start(read(0));
    let other = stage.start(read(1));
    let again = stage.start(Effect::Allocate { file: segment(0), bytes: 8192 });
    assert_eq!((stage.end(other), stage.end(unlink)), (has(1), Completion::Done));
    assert_eq!((stage.end(late), stage.end(again)), (NONE, Completion::Done), "in the order of asking");
    assert_eq!(stage.scratch.contents()[0].1, [0; 8192]);
}

#[test]
fn a_file_that_is_renamed_is_found_under_its_new_name_alone() {
    let mut stage = with_closed_files(2);
    let (from, to) = (segment(0), FileName::Quarantined(SegmentNumber(1)));
    let before = stage.start(read(0));
    let rename = stage.start(Effect::Rename { from, to });
    assert_eq!((stage.end(before), stage.end(rename)), (has(0), Completion::Done));
    assert_eq!(stage.perform(Effect::Rename { from: to, to: from }), Completion::Done);
    // While a name changes nobody opens it, and so nobody finds what it was.
    let rename = stage.start(Effect::Rename { from, to });
    let late = stage.start(Effect::Read { file: to, position: 0, bytes: 4096 });
    assert_eq!((stage.end(rename), stage.end(late)), (Completion::Done, has(0)));
    assert_eq!(stage.perform(read(0)), NONE);
    // Over another one, which is open.
    assert_eq!(stage.perform(read(1)), has(1));
    assert_eq!(stage.perform(Effect::Rename { from: to, to: segment(1) }), Completion::Done);
    assert_eq!(stage.perform(read(1)), has(0));
}

#[test]
fn all_who_wait_for_a_file_that_is_not_there_are_told() {
    let mut stage = Stage::new(SMALL);
    let write = || Effect::Write { file: segment(9), position: 0, parts: vec![pattern(4096, 1)] };
    let effects = [read(9), write(), Effect::Sync { file: segment(9) }, read(9), Effect::Unlink { file: segment(9) }];
    let started: Vec<_> = effects.into_iter().map(|effect| stage.start(effect)).collect();
    for operation in started {
        assert_eq!(stage.end(operation), NONE);
    }
    assert_eq!(stage.scratch.contents(), []);
    assert_eq!(stage.perform(Effect::Allocate { file: segment(9), bytes: 4096 }), Completion::Done);
}

#[test]
fn a_file_is_made_once_and_not_under_the_hands_of_a_reader() {
    let mut stage = with_closed_files(1);
    let reading = stage.start(read(0));
    let making: Vec<_> = (0..2).map(|_| stage.start(Effect::Allocate { file: segment(0), bytes: 8192 })).collect();
    assert_eq!(stage.end(reading), has(0));
    for operation in making {
        assert_eq!(stage.end(operation), EXISTS);
    }
    let making: Vec<_> = (0..2).map(|_| stage.start(Effect::Allocate { file: segment(5), bytes: 8192 })).collect();
    let made: Vec<_> = making.into_iter().map(|operation| stage.end(operation)).collect();
    assert_eq!(made, [Completion::Done, EXISTS]);
    assert_eq!(stage.perform(read(0)), has(0), "what was there is left alone");
}

#[test]
fn many_files_are_opened_side_by_side_and_few_stay_open() {
    let mut stage = with_closed_files(200);
    for _ in 0..3 {
        let started: Vec<OperationId> = (0..200).map(|number| stage.start(read(number))).collect();
        for (number, operation) in (0..).zip(started) {
            assert_eq!(stage.end(operation), has(number));
        }
        // All of them were in use at once. The next open closes those that are idle.
        assert_eq!(stage.perform(Effect::SyncDirectory), Completion::Done);
        stage.perform(Effect::Allocate { file: segment(999), bytes: 4096 });
        assert!(stage.disk.open_files() <= 4);
        assert_eq!(stage.perform(Effect::Unlink { file: segment(999) }), Completion::Done);
    }
}

#[test]
fn writes_of_odd_lengths_wait_for_the_page_cache_side_by_side() {
    let mut stage = with_closed_files(1);
    let odd = |position: u64| Effect::Write { file: segment(0), position, parts: vec![pattern(1000, 5)] };
    let even = Effect::Write { file: segment(0), position: 8192, parts: vec![pattern(8192, 6)] };
    let started = [odd(0), even, odd(1000), odd(2000)].map(|effect| stage.start(effect));
    for (operation, bytes) in started.into_iter().zip([1000, 8192, 1000, 1000]) {
        assert_eq!(stage.end(operation), Completion::Written(bytes));
    }
    let old = pattern(4096, 0).slice(3000..);
    let odd = [pattern(1000, 5), pattern(1000, 5), pattern(1000, 5), old].concat();
    let expected = [&odd[..], &[0; 4096], &pattern(8192, 6)].concat();
    assert_eq!(stage.scratch.contents()[0].1, expected);
}
