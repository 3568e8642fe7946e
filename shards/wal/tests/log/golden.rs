//! Golden files: the bytes of a version may not change, and every later version reads them.

use bytes::Bytes;
use ringmain_model::{Offset, TopicName};
use ringmain_wal::{
    Checkpoint, Doubt, Entry, LogMarks, SegmentHeader, SegmentNumber, Sequence, TopicChanged, decode_slot, encode_slot,
};

use crate::disk::Disk;
use crate::stage::{Log, SHARD, bare_checkpoint, created, open, partition, progress, records, segment};

const SEGMENT: &[u8] = include_bytes!("../data/log-segment-v1.bin");
const SLOT: &[u8] = include_bytes!("../data/checkpoint-slot-v1.bin");
const SLOT_IN_DOUBT: &[u8] = include_bytes!("../data/checkpoint-slot-v2.bin");

/// Every kind of entry that a log holds, in two batches.
fn script() -> Vec<Vec<Entry>> {
    let Entry::TopicCreated(topic) = created(1) else { panic!("the stage makes one") };
    let name = TopicName::new("topic-2").unwrap();
    let Entry::GroupProgress(group) = progress(1, 3) else { panic!("the stage makes one") };
    let changed =
        TopicChanged { incarnation: topic.incarnation, name: topic.name, partitions: 4, config: topic.config };
    let first = vec![created(1), created(2), records(1, 0, 3, 5), Entry::TopicChanged(changed), progress(1, 3)];
    let deleted = Entry::TopicDeleted { incarnation: partition(2).incarnation, name };
    vec![first, vec![deleted, Entry::GroupDeleted { partition: partition(1), group: group.group }, records(1, 3, 1, 0)]]
}

fn write() -> Log {
    let mut log = Log::on(Disk::new(1 << 30), 0x0123_4567_89ab_cdef, None);
    for batch in script() {
        for entry in &batch {
            log.append(entry).unwrap();
        }
        log.end_turn();
    }
    log
}

fn checkpoint() -> Checkpoint {
    let (Entry::TopicCreated(topic), Entry::GroupProgress(group)) = (created(1), progress(1, 3)) else {
        panic!("the stage makes these")
    };
    let marks = LogMarks { partition: partition(1), log_start: Offset(1), log_end: Offset(4) };
    let position = write().writer.durable_position();
    let held = vec![SegmentNumber(5), SegmentNumber(6)];
    Checkpoint { held, topics: vec![topic], marks: vec![marks], groups: vec![group], ..bare_checkpoint(position) }
}

#[test]
fn the_golden_segment_is_written_and_read_for_ever() {
    let mut log = write();
    assert_eq!(log.disk.whole(segment(1)).unwrap(), SEGMENT, "the bytes of version 1 may not change");
    let header = SegmentHeader::decode(SEGMENT).unwrap();
    assert_eq!((header.number, header.epoch, header.shard), (SegmentNumber(1), 0x0123_4567_89ab_cdef, SHARD));
    log.disk.damage(segment(1), |content| content.copy_from_slice(SEGMENT));
    let opening = open(&mut log.disk, None);
    let expected = script()
        .into_iter()
        .zip(1..)
        .flat_map(|(batch, sequence)| batch.into_iter().map(move |entry| (Sequence(sequence), entry)));
    assert_eq!((opening.entries, opening.findings), (expected.collect(), vec![]));
}

#[test]
fn the_golden_slot_is_written_and_read_for_ever() {
    assert_eq!(encode_slot(SHARD, 41, &checkpoint()), SLOT, "the bytes of version 1 may not change");
    let content = decode_slot(SHARD, &Bytes::from_static(SLOT)).unwrap();
    assert_eq!((content.sequence, content.checkpoint), (41, checkpoint()));
}

#[test]
fn the_golden_slot_of_version_2_is_written_and_read_for_ever() {
    let doubtful = Checkpoint { doubt: Doubt::Open, ..checkpoint() };
    assert_eq!(encode_slot(SHARD, 42, &doubtful), SLOT_IN_DOUBT, "the bytes of version 2 may not change");
    let content = decode_slot(SHARD, &Bytes::from_static(SLOT_IN_DOUBT)).unwrap();
    assert_eq!((content.sequence, content.checkpoint), (42, doubtful));
}
