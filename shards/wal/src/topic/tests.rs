//! Topic segments in bytes: they come back as they went, and damage is seen; runs on the test thread.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests fail by panicking")]

use bytes::Bytes;
use proptest::prelude::*;
use ringmain_model::{Incarnation, Message, Offset, PartitionRef, Retention, ShardId, Storage, TopicConfig, TopicName};

use crate::batch::RecordBatch;
use crate::entry::tests::{config, partition, topic_name};
use crate::position::{BLOCK_BYTES, LogPosition};
use crate::topic::{
    CHUNK_HEADER_BYTES, Chunk, ChunkDamage, IndexDamage, PartitionSegments, TopicHeaderDamage, TopicSegment,
    TopicSegmentHeader, chunk, decode_chunk, decode_index, index,
};
use crate::{BatchBuilder, Checkpoint, SlotDamage, decode_slot, encode_slot};

const OWNER: PartitionRef = PartitionRef { incarnation: Incarnation(7), partition: 2 };

/// Chunks from `base` on, by their counts of records, bytes to spare, and times.
fn chunks_from(mut base: u64, shapes: &[(u64, u32, i64, u32)]) -> Vec<Chunk> {
    let mut position = BLOCK_BYTES;
    let mut chunks = Vec::new();
    for (count, spare, first, span) in shapes {
        let chunk = Chunk {
            base: Offset(base),
            end: Offset(base + count),
            position,
            bytes: CHUNK_HEADER_BYTES + 64 + 16 * (*count as u32) + spare,
            first_time_us: *first,
            last_time_us: first + i64::from(*span),
        };
        base = chunk.end.0;
        position += chunk.read_bytes();
        chunks.push(chunk);
    }
    chunks
}

fn segment_of(chunks: Vec<Chunk>, is_sealed: bool) -> TopicSegment {
    let last = chunks.last().unwrap();
    TopicSegment {
        base: chunks[0].base,
        end: last.end,
        record_bytes: chunks.iter().map(|chunk| u64::from(chunk.bytes - CHUNK_HEADER_BYTES)).sum(),
        first_time_us: chunks.iter().map(|chunk| chunk.first_time_us).min().unwrap(),
        last_time_us: chunks.iter().map(|chunk| chunk.last_time_us).max().unwrap(),
        file_bytes: last.position + last.read_bytes(),
        index_bytes: if is_sealed { index::bytes_for(chunks.len()) } else { 0 },
        chunks: if is_sealed { Vec::new() } else { chunks },
    }
}

fn shapes() -> impl Strategy<Value = Vec<(u64, u32, i64, u32)>> {
    prop::collection::vec((1_u64..1000, 0_u32..1 << 20, 0_i64..1 << 50, any::<u32>()), 1..8)
}

pub(crate) fn partition_segments() -> impl Strategy<Value = PartitionSegments> {
    (partition(), 0_u64..1 << 50, prop::collection::vec(shapes(), 1..6), any::<bool>()).prop_map(
        |(partition, mut base, lists, last_is_sealed)| {
            let count = lists.len();
            let segments = lists.iter().zip(1..).map(|(shapes, number)| {
                let segment = segment_of(chunks_from(base, shapes), number < count || last_is_sealed);
                base = segment.end.0;
                segment
            });
            PartitionSegments { partition, segments: segments.collect() }
        },
    )
}

fn batch(base: u64, count: u64, payload_bytes: usize, time_us: i64) -> RecordBatch {
    let mut builder = BatchBuilder::new(OWNER, Offset(base), 0);
    for index in 0..count {
        builder.push(&Message::of(vec![(base + index) as u8; payload_bytes]), time_us);
    }
    builder.finish().unwrap()
}

fn chunk_of(batches: &[RecordBatch]) -> (Chunk, Bytes) {
    let content: usize = batches.iter().map(|batch| batch.bytes().len()).sum();
    let chunk = Chunk {
        base: batches[0].base(),
        end: batches.last().unwrap().end(),
        position: 3 * BLOCK_BYTES,
        bytes: CHUNK_HEADER_BYTES + content as u32,
        first_time_us: batches.iter().map(RecordBatch::base_time_us).min().unwrap(),
        last_time_us: batches.iter().map(RecordBatch::base_time_us).max().unwrap(),
    };
    let mut parts = Vec::new();
    chunk::put(OWNER, chunk, batches, &mut parts);
    (chunk, Bytes::from(parts.concat()))
}

fn header() -> TopicSegmentHeader {
    TopicSegmentHeader {
        partition: OWNER,
        base: Offset(77),
        shard: ShardId(3),
        created_us: -5,
        name: TopicName::new("orders").unwrap(),
        config: TopicConfig {
            storage: Storage::Wal,
            retention: Retention { max_messages: 1, max_bytes: 2, max_age_ms: None },
            ack_wait_ms: 3,
            ..TopicConfig::default()
        },
    }
}

proptest! {
    #[test]
    fn headers_come_back_as_they_went(
        partition in partition(), base in any::<u64>(), shard in any::<u16>(), created_us in any::<i64>(),
        name in topic_name(), config in config(),
    ) {
        let header = TopicSegmentHeader {
            partition, base: Offset(base), shard: ShardId(shard), created_us, name, config
        };
        prop_assert_eq!(TopicSegmentHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn an_index_comes_back_as_it_went(shapes in shapes(), base in 0_u64..1 << 50) {
        let chunks = chunks_from(base, &shapes);
        let segment = segment_of(chunks.clone(), true);
        let bytes = Bytes::from(index::encode(OWNER, &segment, &chunks));
        prop_assert_eq!(bytes.len() as u64, segment.index_read_bytes());
        prop_assert_eq!(decode_index(OWNER, &segment, &bytes), Ok(chunks));
        let other = TopicSegment { record_bytes: segment.record_bytes + 1, ..segment };
        prop_assert_eq!(decode_index(OWNER, &other, &bytes), Err(IndexDamage::Other));
    }

    #[test]
    fn a_chunk_comes_back_as_it_went(
        base in 0_u64..1 << 50,
        shapes in prop::collection::vec((1_u64..5, 0_usize..3000, any::<i64>()), 1..6),
    ) {
        let mut next = base;
        let batches: Vec<_> = shapes.into_iter().map(|(count, bytes, time)| {
            let one = batch(next, count, bytes, time);
            next = one.end().0;
            one
        }).collect();
        let (chunk, bytes) = chunk_of(&batches);
        prop_assert_eq!(bytes.len() as u64, chunk.read_bytes());
        prop_assert_eq!(decode_chunk(OWNER, &chunk, &bytes), Ok(batches));
    }

    #[test]
    fn any_bytes_are_content_or_an_error(
        noise in prop::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>(), value in any::<u8>(),
    ) {
        let noise = Bytes::from(noise);
        let chunks = chunks_from(5, &[(3, 7, 100, 4), (9, 5000, 90, 4)]);
        let segment = segment_of(chunks.clone(), true);
        prop_assert!(decode_index(OWNER, &segment, &noise).is_err());
        prop_assert!(decode_chunk(OWNER, &chunks[0], &noise).is_err());
        prop_assert!(TopicSegmentHeader::decode(&noise).is_err());
        // Content that cannot be, under a right checksum.
        let mut bytes = index::encode(OWNER, &segment, &chunks);
        let length = segment.index_bytes as usize;
        bytes[12 + at.index(length - 12)] = value;
        let checksum = crc32c::crc32c(&bytes[12..length]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        // Times of one chunk may change without a sum that shows it; places and offsets may not.
        if let Ok(found) = decode_index(OWNER, &segment, &Bytes::from(bytes)) {
            let places = |chunks: &[Chunk]| -> Vec<_> {
                chunks.iter().map(|chunk| (chunk.base, chunk.position, chunk.read_bytes())).collect()
            };
            prop_assert_eq!(places(&found).first().copied(), places(&chunks).first().copied());
        }
    }

    #[test]
    fn a_slot_keeps_its_segments(
        lists in prop::collection::btree_map(any::<u64>(), partition_segments(), 0..5),
    ) {
        let segments = lists.into_iter().map(|(life, list)| {
            let partition = PartitionRef { incarnation: Incarnation(life), ..list.partition };
            PartitionSegments { partition, ..list }
        });
        let checkpoint = Checkpoint { segments: segments.collect(), ..Checkpoint::at(LogPosition::START) };
        let slot = Bytes::from(encode_slot(ShardId(0), 1, &checkpoint));
        prop_assert_eq!(decode_slot(ShardId(0), &slot).unwrap().checkpoint, checkpoint);
    }
}

#[test]
fn a_long_list_of_segments_takes_several_entries_and_comes_back_as_one() {
    let list = |life: u64, count: u64| {
        let segments = (0..count).map(|base| segment_of(chunks_from(base, &[(1, 0, 1, 1)]), base + 1 < count));
        let partition = PartitionRef { incarnation: Incarnation(life), partition: 0 };
        PartitionSegments { partition, segments: segments.collect() }
    };
    let segments = vec![list(1, 4096), list(2, 9000), list(3, 1)];
    let checkpoint = Checkpoint { segments, ..Checkpoint::at(LogPosition::START) };
    let slot = encode_slot(ShardId(0), 1, &checkpoint);
    assert_eq!(u32::from_le_bytes(slot[68..72].try_into().unwrap()), 1 + 3 + 1);
    assert_eq!(decode_slot(ShardId(0), &Bytes::from(slot)).unwrap().checkpoint, checkpoint);
    // The same partition once more, out of its order.
    let twice = Checkpoint { segments: vec![list(1, 2), list(1, 2)], ..Checkpoint::at(LogPosition::START) };
    let slot = Bytes::from(encode_slot(ShardId(0), 1, &twice));
    assert_eq!(decode_slot(ShardId(0), &slot), Err(SlotDamage::Damaged));
}

#[test]
fn a_gap_between_segments_comes_back_and_has_a_kind_of_its_own() {
    let list = |second: u64| {
        let first = segment_of(chunks_from(5, &[(3, 7, 100, 4)]), true);
        let segments = vec![first, segment_of(chunks_from(second, &[(1, 0, 1, 1)]), false)];
        PartitionSegments { partition: OWNER, segments }
    };
    for (second, kind) in [(8, 8), (11, 14)] {
        let checkpoint = Checkpoint { segments: vec![list(second)], ..Checkpoint::at(LogPosition::START) };
        let slot = encode_slot(ShardId(0), 1, &checkpoint);
        assert_eq!((slot[76], checkpoint.segments[0].has_gap()), (kind, kind == 14));
        assert_eq!(decode_slot(ShardId(0), &Bytes::from(slot.clone())).unwrap().checkpoint, checkpoint);
        // A gap under the kind that says that there is none.
        let mut other = slot;
        other[76] = 8;
        let end = u64::from_le_bytes(other[16..24].try_into().unwrap()) as usize;
        let checksum = crc32c::crc32c(&other[12..end]);
        other[8..12].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(decode_slot(ShardId(0), &Bytes::from(other)).is_ok(), kind == 8);
    }
}

#[test]
fn segments_that_cannot_be_are_not_well_formed() {
    let shapes = [(3, 7, 100, 4), (9, 5000, 90, 4)];
    let (sealed, open) = (segment_of(chunks_from(5, &shapes), true), segment_of(chunks_from(17, &shapes), false));
    let of = |segments: &[&TopicSegment]| PartitionSegments {
        partition: OWNER,
        segments: segments.iter().map(|segment| (*segment).clone()).collect(),
    };
    assert!(of(&[&sealed, &open]).is_well_formed());
    assert!(
        !of(&[]).is_well_formed() && !of(&[&open, &sealed]).is_well_formed() && !of(&[&open, &open]).is_well_formed()
    );
    let changes: [fn(&mut TopicSegment); 9] = [
        |one| one.end = Offset(30),
        |one| one.base = Offset(16),
        |one| one.file_bytes += 1,
        |one| one.file_bytes += BLOCK_BYTES,
        |one| one.record_bytes += 1,
        |one| one.first_time_us += 1,
        |one| one.last_time_us -= 1,
        |one| one.index_bytes = 112,
        |one| one.chunks[1].position += BLOCK_BYTES,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut changed = open.clone();
        change(&mut changed);
        assert!(!of(&[&sealed, &changed]).is_well_formed(), "change {number}");
    }
    let longer = TopicSegment { end: Offset(18), ..sealed };
    assert!(!of(&[&longer, &open]).is_well_formed());
}

#[test]
fn each_flipped_bit_and_each_cut_of_a_header_is_seen() {
    let block = header().encode();
    for at in 0..block.len() {
        for bit in 0..8 {
            let mut damaged = block.clone();
            damaged[at] ^= 1 << bit;
            assert_eq!(TopicSegmentHeader::decode(&damaged), Err(TopicHeaderDamage::Damaged), "byte {at} bit {bit}");
        }
        assert_eq!(TopicSegmentHeader::decode(&block[..at]), Err(TopicHeaderDamage::Damaged), "cut at {at}");
    }
}

#[test]
fn each_flipped_bit_and_each_cut_of_a_chunk_is_seen() {
    let batches = [batch(5, 3, 20, 100), batch(8, 1, 0, 90)];
    let (chunk, bytes) = chunk_of(&batches);
    for at in 0..chunk.bytes as usize {
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << bit;
            let expected = if at < 64 { ChunkDamage::Header } else { ChunkDamage::Content };
            assert_eq!(decode_chunk(OWNER, &chunk, &Bytes::from(damaged)), Err(expected), "byte {at} bit {bit}");
        }
        assert_eq!(decode_chunk(OWNER, &chunk, &bytes.slice(..at)), Err(ChunkDamage::Short), "cut at {at}");
    }
}

#[test]
fn each_flipped_bit_and_each_cut_of_an_index_is_seen() {
    let chunks = chunks_from(5, &[(3, 7, 100, 4), (9, 5000, 90, 4)]);
    let segment = segment_of(chunks.clone(), true);
    let bytes = Bytes::from(index::encode(OWNER, &segment, &chunks));
    for at in 0..segment.index_bytes as usize {
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << bit;
            let damage = decode_index(OWNER, &segment, &Bytes::from(damaged));
            assert_eq!(damage, Err(IndexDamage::Damaged), "byte {at} bit {bit}");
        }
        assert_eq!(decode_index(OWNER, &segment, &bytes.slice(..at)), Err(IndexDamage::Damaged), "cut at {at}");
    }
}

#[test]
fn batches_that_do_not_belong_are_not_given_under_right_checksums() {
    let wrong = [
        vec![batch(5, 3, 20, 100), batch(9, 1, 0, 100)],
        vec![batch(5, 3, 20, 100), batch(7, 2, 0, 100)],
        vec![batch(6, 3, 20, 100)],
    ];
    for batches in wrong {
        let (chunk, _) = chunk_of(&batches);
        let claimed = Chunk { base: Offset(5), ..chunk };
        let mut parts = Vec::new();
        chunk::put(OWNER, claimed, &batches, &mut parts);
        let bytes = Bytes::from(parts.concat());
        assert_eq!(decode_chunk(OWNER, &claimed, &bytes), Err(ChunkDamage::Order));
    }
    let (chunk, bytes) = chunk_of(&[batch(5, 3, 20, 100)]);
    let elsewhere = Chunk { position: 4 * BLOCK_BYTES, ..chunk };
    assert_eq!(decode_chunk(OWNER, &elsewhere, &bytes), Err(ChunkDamage::Other));
    let other = PartitionRef { partition: 3, ..OWNER };
    assert_eq!(decode_chunk(other, &chunk, &bytes), Err(ChunkDamage::Other));
}

#[test]
fn a_newer_version_is_told_from_damage() {
    let mut block = header().encode();
    block[12] = 2;
    let checksum = crc32c::crc32c(&block[12..]);
    block[8..12].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(TopicSegmentHeader::decode(&block), Err(TopicHeaderDamage::Newer(2)));

    let (chunk, bytes) = chunk_of(&[batch(5, 3, 20, 100)]);
    let mut bytes = bytes.to_vec();
    bytes[12] = 2;
    let checksum = crc32c::crc32c(&bytes[4..64]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(decode_chunk(OWNER, &chunk, &Bytes::from(bytes)), Err(ChunkDamage::Newer(2)));

    let chunks = chunks_from(5, &[(3, 7, 100, 4)]);
    let segment = segment_of(chunks.clone(), true);
    let mut bytes = index::encode(OWNER, &segment, &chunks);
    bytes[12] = 2;
    let checksum = crc32c::crc32c(&bytes[12..segment.index_bytes as usize]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(decode_index(OWNER, &segment, &Bytes::from(bytes)), Err(IndexDamage::Newer(2)));
}
