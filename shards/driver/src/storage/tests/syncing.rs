//! A sync is left out exactly when everything written to the file is known to be durable.

use bytes::Bytes;
use ringmain_wal::{Completion, Effect, FileName};

use crate::storage::files::FileKey;

use super::stage::{SMALL, Stage, pattern, segment};

fn write(file: FileName, position: u64, length: usize) -> Effect {
    Effect::Write { file, position, parts: vec![pattern(length, 1)] }
}

fn prepared() -> Stage {
    let mut stage = Stage::new(SMALL);
    assert_eq!(stage.perform(Effect::Allocate { file: segment(1), bytes: 65_536 }), Completion::Done);
    stage
}

fn is_durable(stage: &Stage, name: FileName) -> bool {
    stage.disk.is_durable(FileKey { index: 0, name })
}

#[test]
fn a_commit_that_fits_a_buffer_has_its_sync_answered_at_once() {
    let mut stage = prepared();
    let sync = stage.start(Effect::Sync { file: segment(1) });
    assert_eq!(stage.ended(sync), None, "nothing is known of a new file");
    assert_eq!(stage.end(sync), Completion::Done);
    for block in 0..4 {
        assert_eq!(stage.perform(write(segment(1), block * 4096, 4096)), Completion::Written(4096));
        let sync = stage.start(Effect::Sync { file: segment(1) });
        assert_eq!(stage.ended(sync), Some(Completion::Done));
    }
    // A name is not the file: what is known stays with the file.
    let to = FileName::Quarantined(ringmain_wal::SegmentNumber(1));
    assert_eq!(stage.perform(Effect::Rename { from: segment(1), to }), Completion::Done);
    let sync = stage.start(Effect::Sync { file: to });
    assert_eq!(stage.ended(sync), Some(Completion::Done));
}

#[test]
fn what_is_written_in_several_slices_is_synced() {
    let mut stage = prepared();
    stage.perform(Effect::Sync { file: segment(1) });
    assert_eq!(stage.perform(write(segment(1), 0, 16_384)), Completion::Written(16_384));
    let sync = stage.start(Effect::Sync { file: segment(1) });
    assert_eq!(stage.ended(sync), None);
    assert_eq!(stage.end(sync), Completion::Done);
    assert!(is_durable(&stage, segment(1)));
}

#[test]
fn a_durable_write_says_nothing_of_an_earlier_one() {
    let mut stage = prepared();
    stage.perform(Effect::Sync { file: segment(1) });
    stage.perform(write(segment(1), 0, 16_384));
    stage.perform(write(segment(1), 16_384, 4096));
    assert!(!is_durable(&stage, segment(1)));
}

#[test]
fn a_sync_does_not_cover_what_runs_beside_it() {
    let mut stage = prepared();
    stage.perform(Effect::Sync { file: segment(1) });
    // A write that has not ended is in no sync, durable as it will be.
    let writing = stage.start(write(segment(1), 0, 4096));
    let sync = stage.start(Effect::Sync { file: segment(1) });
    assert_eq!(stage.ended(sync), None);
    assert_eq!((stage.end(sync), stage.end(writing)), (Completion::Done, Completion::Written(4096)));
    assert!(!is_durable(&stage, segment(1)));

    stage.perform(write(segment(1), 0, 16_384));
    let sync = stage.start(Effect::Sync { file: segment(1) });
    let writing = stage.start(write(segment(1), 16_384, 16_384));
    assert_eq!((stage.end(sync), stage.end(writing)), (Completion::Done, Completion::Written(16_384)));
    assert!(!is_durable(&stage, segment(1)));
}

#[test]
fn other_files_than_segments_are_synced_and_so_is_what_was_closed_meanwhile() {
    let mut stage = prepared();
    let slot = FileName::Slot(ringmain_wal::SlotName::A);
    stage.perform(Effect::Allocate { file: slot, bytes: 8192 });
    stage.perform(Effect::Sync { file: slot });
    stage.perform(write(slot, 0, 4096));
    assert!(!is_durable(&stage, slot));

    stage.perform(Effect::Sync { file: segment(1) });
    assert!(is_durable(&stage, segment(1)));
    for number in 2..10 {
        stage.perform(Effect::Allocate { file: segment(number), bytes: 4096 });
    }
    assert!(!is_durable(&stage, segment(1)), "it was closed");
    let sync = stage.start(Effect::Sync { file: segment(1) });
    assert_eq!(stage.ended(sync), None);
    assert_eq!(stage.end(sync), Completion::Done);
}

#[test]
fn nothing_to_write_is_written_at_once() {
    let mut stage = prepared();
    let empty = Effect::Write { file: segment(1), position: 0, parts: vec![Bytes::new()] };
    assert_eq!(stage.perform(empty), Completion::Written(0));
}
