//! Replay above topic segments: a partition's records may come from anywhere at or below where the checkpoint saw its end.

use ringmain_model::Offset;
use ringmain_wal::{Checkpoint, Entry, Finding, LogMarks, LogPosition, RecordBatch};

use super::{batches, none_of, store_more};
use crate::disk::Disk;
use crate::stage::{Log, bare_checkpoint, created, open, partition};

fn commit(log: &mut Log, batches: &[RecordBatch]) {
    for batch in batches {
        log.commit(&Entry::Records(batch.clone()));
    }
}

fn checkpoint_at(disk: &mut Disk, position: LogPosition) -> Checkpoint {
    let Entry::TopicCreated(topic) = created(1) else { panic!("the stage makes one") };
    let mut list = none_of(1);
    store_more(disk, &mut list, batches(1, 0, 4, 10), 1 << 20);
    let marks = LogMarks { partition: partition(1), log_start: Offset(0), log_end: Offset(6) };
    Checkpoint { topics: vec![topic], marks: vec![marks], segments: vec![list], ..bare_checkpoint(position) }
}

#[test]
fn a_small_tail_that_was_copied_to_the_head_of_the_log_is_replayed() {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    log.commit(&created(1));
    commit(&mut log, &batches(1, 0, 6, 10));
    let checkpoint = checkpoint_at(&mut log.disk, log.writer.durable_position());
    // New records may come before the copy of the tail.
    let replayed = [batches(1, 6, 1, 10), batches(1, 4, 2, 10), batches(1, 7, 1, 10)].concat();
    commit(&mut log, &replayed);
    let opening = open(&mut log.disk, Some(&checkpoint));
    let found: Vec<_> = opening.entries.into_iter().map(|(_, entry)| entry).collect();
    assert_eq!(found, replayed.into_iter().map(Entry::Records).collect::<Vec<_>>());
    assert_eq!(opening.findings, []);
}

#[test]
fn records_that_begin_above_the_end_of_the_checkpoint_are_withheld() {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    log.commit(&created(1));
    let checkpoint = checkpoint_at(&mut log.disk, log.writer.durable_position());
    commit(&mut log, &batches(1, 7, 1, 10));
    let opening = open(&mut log.disk, Some(&checkpoint));
    let finding = Finding::Quarantined { partition: partition(1), awaited: Some(Offset(6)), found: Offset(7) };
    assert_eq!((opening.entries, opening.findings), (vec![], vec![finding]));
}
