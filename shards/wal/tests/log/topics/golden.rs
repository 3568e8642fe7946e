//! Golden files of topic segments: the bytes of version 1 may not change, and every later version reads them.

use bytes::Bytes;
use ringmain_wal::{
    Checkpoint, FileName, LogPosition, PartitionSegments, TopicSegmentHeader, decode_slot, encode_slot,
};

use super::{BLOCK, NOW_US, batches, none_of, read_all, store_more};
use crate::disk::Disk;
use crate::stage::{SHARD, bare_checkpoint, partition};

const SEALED: &[u8] = include_bytes!("../../data/topic-segment-v1.bin");
const SLOT: &[u8] = include_bytes!("../../data/checkpoint-slot-segments-v1.bin");

/// A partition with one sealed segment of two chunks and an open one.
fn stored() -> (Disk, PartitionSegments) {
    let (mut disk, mut list) = (Disk::new(1 << 30), none_of(1));
    store_more(&mut disk, &mut list, batches(1, 5, 2, 40), 3 * BLOCK);
    store_more(&mut disk, &mut list, batches(1, 7, 1, 3), 3 * BLOCK);
    store_more(&mut disk, &mut list, batches(1, 8, 1, 0), 3 * BLOCK);
    (disk, list)
}

fn checkpoint() -> Checkpoint {
    Checkpoint { segments: vec![stored().1], ..bare_checkpoint(LogPosition::START) }
}

fn first_file() -> FileName {
    stored().1.segments[0].file(partition(1))
}

#[test]
fn the_golden_topic_segment_is_written_and_read_for_ever() {
    let (mut disk, list) = stored();
    assert_eq!(disk.whole(first_file()).unwrap(), SEALED, "the bytes of version 1 may not change");
    disk.damage(first_file(), |content| content.copy_from_slice(SEALED));
    let expected = [batches(1, 5, 2, 40), batches(1, 7, 1, 3), batches(1, 8, 1, 0)].concat();
    assert_eq!(read_all(&mut disk, &list), expected);
    let header = TopicSegmentHeader::decode(SEALED).unwrap();
    assert_eq!((header.partition, header.base.0, header.shard), (partition(1), 5, SHARD));
    assert_eq!((header.name.as_str(), header.created_us), ("topic-1", NOW_US));
}

#[test]
fn the_golden_slot_with_segments_is_written_and_read_for_ever() {
    assert_eq!(encode_slot(SHARD, 41, &checkpoint()), SLOT, "the bytes of version 1 may not change");
    let content = decode_slot(SHARD, &Bytes::from_static(SLOT)).unwrap();
    assert_eq!((content.sequence, content.checkpoint), (41, checkpoint()));
}
