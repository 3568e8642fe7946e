//! Commit batches come back as they went, and each flipped bit is seen; runs on the test thread.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests fail by panicking")]

use bytes::Bytes;
use proptest::prelude::*;

use crate::commit::{COMMIT_HEADER_BYTES, CommitHeader, CommitPlace, OpenBatch, entries};
use crate::entry::Entry;
use crate::entry::tests::entry;
use crate::position::{BLOCK_BYTES, SegmentNumber, Sequence};

const PLACE: CommitPlace = CommitPlace {
    sequence: Sequence(0x0102_0304_0506),
    epoch: 0xfedc_ba98_7654_3210,
    segment: SegmentNumber(9),
    position: 5 * BLOCK_BYTES,
    previous_checksum: 0xdead_beef,
};

fn batch_of(content: &[Entry]) -> Vec<u8> {
    let mut open = OpenBatch::default();
    content.iter().for_each(|entry| open.push(entry));
    open.close(PLACE).parts.concat()
}

/// What the opener does with bytes at a place.
fn read(bytes: &[u8]) -> Option<Vec<Entry>> {
    let header = CommitHeader::read(bytes)?;
    let batch = bytes.get(..header.length as usize)?;
    let is_right = header.is_whole(batch) && header.stands_at(PLACE.segment, PLACE.position);
    is_right.then(|| entries(&Bytes::copy_from_slice(batch), header.count).ok())?
}

proptest! {
    #[test]
    fn batches_come_back_as_they_went(content in prop::collection::vec(entry(), 1..12)) {
        let bytes = batch_of(&content);
        prop_assert_eq!(bytes.len() as u64 % BLOCK_BYTES, 0);
        let header = CommitHeader::read(&bytes).unwrap();
        prop_assert_eq!((header.sequence, header.epoch, header.segment), (PLACE.sequence, PLACE.epoch, PLACE.segment));
        prop_assert_eq!((header.previous_checksum, header.block), (PLACE.previous_checksum, 5));
        prop_assert!(bytes[header.length as usize..].iter().all(|byte| *byte == 0));
        prop_assert_eq!(read(&bytes), Some(content));
    }

    #[test]
    fn each_flipped_bit_is_seen(content in prop::collection::vec(entry(), 1..3), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut bytes = batch_of(&content);
        let length = CommitHeader::read(&bytes).unwrap().length as usize;
        bytes[at.index(length)] ^= 1_u8 << bit;
        prop_assert_eq!(read(&bytes), None);
    }

    #[test]
    fn any_bytes_are_a_batch_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0_u32..4) {
        let _ = read(&bytes);
        let _ = entries(&Bytes::from(bytes), count);
    }

    #[test]
    fn lengths_under_a_right_checksum_cannot_break_the_reader(
        content in prop::collection::vec(entry(), 1..4),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let bytes = batch_of(&content);
        let header = CommitHeader::read(&bytes).unwrap();
        let mut batch = bytes[..header.length as usize].to_vec();
        let at = COMMIT_HEADER_BYTES + at.index(batch.len() - COMMIT_HEADER_BYTES);
        batch[at] = value;
        if let Ok(read) = entries(&Bytes::from(batch), header.count) {
            prop_assert_eq!(read.len(), content.len());
        }
    }
}
