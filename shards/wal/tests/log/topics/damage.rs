//! Damage to topic segments: cut at every block, bytes flipped everywhere. Never a wrong record, and an index can be made again.

use bytes::Bytes;
use ringmain_model::Offset;
use ringmain_wal::{
    Chunk, ChunkScan, ChunkScanOutput, Completion, Failure, FileName, PartitionSegments, RecordBatch, TopicSegment,
    TopicSegmentHeader, decode_chunk, decode_index,
};

use super::{BLOCK, batches, chunks_of, none_of, read, scan, store_more};
use crate::chance::Chance;
use crate::disk::Disk;
use crate::stage::{flip, partition};

/// A partition with two sealed segments and an open one, each of several chunks.
fn stored() -> (Disk, PartitionSegments) {
    let (mut disk, mut list) = (Disk::new(1 << 30), none_of(1));
    for number in 0..11 {
        store_more(&mut disk, &mut list, batches(1, 3 * number, 3, 1300 * (1 + number as usize % 3)), 12 * BLOCK);
    }
    assert!(list.segments.len() == 3 && list.segments[0].is_sealed() && list.segments[1].is_sealed());
    (disk, list)
}

fn batches_of(disk: &mut Disk, file: FileName, chunks: &[Chunk]) -> Vec<Vec<RecordBatch>> {
    let mut all = Vec::new();
    for chunk in chunks {
        let bytes = read(disk, file, chunk.position, chunk.read_bytes());
        all.push(decode_chunk(partition(1), chunk, &bytes).unwrap());
    }
    all
}

/// The scan finds chunks that were written and says what is lost, without an overlap or a gap.
fn check_scan(disk: &mut Disk, segment: &TopicSegment, written: &[Chunk]) -> (Vec<Chunk>, Vec<(Offset, Offset)>) {
    let ChunkScanOutput::Done { chunks, lost } = scan(disk, partition(1), segment) else { panic!("it can be read") };
    assert!(chunks.iter().all(|chunk| written.contains(chunk)));
    let found = chunks.iter().map(|chunk| (chunk.base, chunk.end));
    let mut ranges: Vec<_> = found.chain(lost.iter().copied()).collect();
    ranges.sort();
    let end = ranges.iter().fold(segment.base, |at, (first, end)| {
        assert!(*first == at && end > first, "{ranges:?}");
        *end
    });
    assert_eq!(end, segment.end);
    (chunks, lost)
}

#[test]
fn a_whole_segment_scans_to_its_index() {
    let (mut disk, list) = stored();
    for segment in &list.segments {
        let chunks = chunks_of(&mut disk, list.partition, segment);
        assert!(chunks.len() > 1);
        assert_eq!(check_scan(&mut disk, segment, &chunks), (chunks.clone(), vec![]));
    }
}

#[test]
fn each_flipped_byte_of_an_index_is_seen_and_the_index_is_made_again() {
    let (mut whole, list) = stored();
    let segment = &list.segments[0];
    let file = segment.file(list.partition);
    let chunks = chunks_of(&mut whole, list.partition, segment);
    for at in 0..segment.index_read_bytes() {
        let mut disk = whole.clone();
        flip(&mut disk, file, (segment.file_bytes + at) as usize, 1 << (at % 8));
        let index = read(&mut disk, file, segment.file_bytes, segment.index_read_bytes());
        let decoded = decode_index(list.partition, segment, &index);
        assert_eq!(decoded.is_ok(), at >= u64::from(segment.index_bytes), "filling is of no account");
        if at % 64 == 0 {
            assert_eq!(check_scan(&mut disk, segment, &chunks), (chunks.clone(), vec![]));
        }
    }
    let of_other = read(&mut whole, file, segment.file_bytes, segment.index_read_bytes());
    assert!(decode_index(list.partition, &list.segments[1], &of_other).is_err());
    assert!(decode_index(partition(2), segment, &of_other).is_err());
}

#[test]
fn each_flipped_byte_of_the_header_or_of_a_chunk_is_seen() {
    let (mut whole, list) = stored();
    let segment = &list.segments[1];
    let file = segment.file(list.partition);
    let chunks = chunks_of(&mut whole, list.partition, segment);
    let contents = batches_of(&mut whole, file, &chunks);
    for at in 0..BLOCK as usize {
        let mut disk = whole.clone();
        flip(&mut disk, file, at, 1 << (at % 8));
        assert!(TopicSegmentHeader::decode(&disk.whole(file).unwrap()).is_err());
    }
    for (number, chunk) in chunks.iter().enumerate() {
        let heads = 0..64;
        for at in heads.chain((64..chunk.read_bytes()).step_by(61)) {
            let mut disk = whole.clone();
            flip(&mut disk, file, (chunk.position + at) as usize, 1 << (at % 8));
            let (found, lost) = check_scan(&mut disk, segment, &chunks);
            if at < 64 {
                assert_eq!(lost, [(chunk.base, chunk.end)], "chunk {number}, byte {at}");
                assert_eq!(found.len(), chunks.len() - 1);
            } else {
                assert_eq!((found.len(), lost), (chunks.len(), vec![]), "chunk {number}, byte {at}");
            }
            let bytes = read(&mut disk, file, chunk.position, chunk.read_bytes());
            match decode_chunk(list.partition, chunk, &bytes) {
                Ok(batches) => assert!(at >= u64::from(chunk.bytes) && batches == contents[number]),
                Err(_) => assert!(at < u64::from(chunk.bytes)),
            }
        }
    }
}

#[test]
fn each_cut_has_its_outcome() {
    let (mut whole, list) = stored();
    for segment in &list.segments {
        let file = segment.file(list.partition);
        let chunks = chunks_of(&mut whole, list.partition, segment);
        for end in (0..segment.bytes_on_disk()).step_by(512) {
            let mut disk = whole.clone();
            disk.damage(file, |content| content.truncate(end as usize));
            let (found, _) = check_scan(&mut disk, segment, &chunks);
            let is_there = |chunk: &&Chunk| chunk.position + chunk.read_bytes() <= end;
            assert_eq!(found, chunks.iter().filter(is_there).copied().collect::<Vec<_>>(), "cut at {end}");
            for chunk in &chunks {
                let bytes = read(&mut disk, file, chunk.position, chunk.read_bytes());
                let is_whole = chunk.position + u64::from(chunk.bytes) <= end;
                assert_eq!(decode_chunk(list.partition, chunk, &bytes).is_ok(), is_whole);
            }
            if segment.is_sealed() {
                let index = read(&mut disk, file, segment.file_bytes, segment.index_read_bytes());
                let is_whole = segment.file_bytes + u64::from(segment.index_bytes) <= end;
                assert_eq!(decode_index(list.partition, segment, &index).is_ok(), is_whole);
            }
        }
    }
}

#[test]
fn much_damage_never_gives_a_wrong_record() {
    let (mut whole, list) = stored();
    let segment = &list.segments[0];
    let file = segment.file(list.partition);
    let chunks = chunks_of(&mut whole, list.partition, segment);
    let contents = batches_of(&mut whole, file, &chunks);
    for seed in 0..300 {
        let mut disk = whole.clone();
        disk.damage(file, |content| {
            let mut chance = Chance::of(seed);
            let blocks = content.len() as u64 / BLOCK;
            for _ in 0..1 + chance.below(4) {
                let to = (chance.below(blocks) * BLOCK) as usize;
                let from = (chance.below(blocks) * BLOCK) as usize;
                // A block of zeros, of noise, or of another place.
                match chance.below(3) {
                    0 => content[to..to + BLOCK as usize].fill(0),
                    1 => content[to..to + BLOCK as usize].fill_with(|| chance.number() as u8),
                    _ => content.copy_within(from..from + BLOCK as usize, to),
                }
            }
        });
        let (found, _) = check_scan(&mut disk, segment, &chunks);
        for chunk in found {
            let bytes = read(&mut disk, file, chunk.position, chunk.read_bytes());
            if let Ok(batches) = decode_chunk(list.partition, &chunk, &bytes) {
                let number = chunks.iter().position(|one| *one == chunk).unwrap();
                assert_eq!(batches, contents[number], "seed {seed}");
            }
        }
    }
}

#[test]
fn a_newer_chunk_a_failing_read_and_a_file_that_is_gone_are_told() {
    let (mut disk, list) = stored();
    let segment = &list.segments[0];
    let file = segment.file(list.partition);
    let chunk = chunks_of(&mut disk, list.partition, segment)[1];
    disk.damage(file, |content| {
        let header = &mut content[chunk.position as usize..][..64];
        header[12] = 9;
        let checksum = crc32c::crc32c(&header[4..]);
        header[..4].copy_from_slice(&checksum.to_le_bytes());
    });
    assert_eq!(scan(&mut disk, list.partition, segment), ChunkScanOutput::Newer(9));

    let mut out = Vec::new();
    let mut failing = ChunkScan::new(list.partition, segment, segment.file_bytes);
    failing.start(&mut out);
    let Some(ChunkScanOutput::Do { operation, .. }) = out.pop() else { panic!("it reads") };
    failing.completed(operation, &Completion::Failed(Failure::System(5)), &mut out);
    assert_eq!(out, [ChunkScanOutput::Failed(Failure::System(5))]);

    // The file is shorter than it was said to be.
    let mut out = Vec::new();
    let mut short = ChunkScan::new(list.partition, segment, segment.file_bytes);
    short.start(&mut out);
    let Some(ChunkScanOutput::Do { operation, .. }) = out.pop() else { panic!("it reads") };
    short.completed(operation, &Completion::Read(Bytes::from_static(b"short")), &mut out);
    let nothing = ChunkScanOutput::Done { chunks: vec![], lost: vec![(segment.base, segment.end)] };
    assert_eq!(out.pop(), Some(nothing.clone()));

    disk.lose(file);
    assert_eq!(scan(&mut disk, list.partition, segment), nothing);
}
