//! The last two chunks of a topic segment and its index cut at every byte, zeroed from every byte, each byte flipped: what was not
//! touched is read as it was written, and what was touched is told.

use bytes::Bytes;
use ringmain_wal::{
    Chunk, ChunkScanOutput, FileName, PartitionSegments, RecordBatch, TopicSegment, decode_chunk, decode_index,
};

use super::{BLOCK, batches, chunks_of, none_of, read, scan, store_more};
use crate::disk::Disk;

/// Bytes of a chunk's header, which is all of it that a scan looks at.
const HEADER: u64 = 64;

/// A segment with its chunks and what is in them, as it was written.
struct Written {
    disk: Disk,
    list: PartitionSegments,
    segment: TopicSegment,
    file: FileName,
    content: Bytes,
    chunks: Vec<Chunk>,
    records: Vec<Vec<RecordBatch>>,
}

impl Written {
    /// A sealed segment and an open one.
    fn both() -> [Self; 2] {
        let (mut disk, mut list) = (Disk::new(1 << 30), none_of(1));
        for number in 0..8 {
            store_more(&mut disk, &mut list, batches(1, 3 * number, 3, 700 * (1 + number as usize % 3)), 6 * BLOCK);
        }
        let (last, before) = (list.segments.len() - 1, list.segments.len() - 2);
        assert!(list.segments[before].is_sealed() && !list.segments[last].is_sealed());
        [before, last].map(|number| Self::of(disk.clone(), list.clone(), number))
    }

    fn of(mut disk: Disk, list: PartitionSegments, number: usize) -> Self {
        let segment = list.segments[number].clone();
        let file = segment.file(list.partition);
        let chunks = chunks_of(&mut disk, list.partition, &segment);
        assert!(chunks.len() > 1);
        let records = chunks.iter().map(|chunk| {
            let bytes = read(&mut disk, file, chunk.position, chunk.read_bytes());
            decode_chunk(list.partition, chunk, &bytes).unwrap()
        });
        let records = records.collect();
        let content = disk.whole(file).unwrap();
        Self { disk, list, segment, file, content, chunks, records }
    }

    /// Where the last two chunks begin.
    fn start(&self) -> usize {
        self.chunks[self.chunks.len() - 2].position as usize
    }

    /// Damages the file, and compares each part of it with what it was: only what is as it was written is taken for that.
    fn check(&self, what: &str, damage: impl Fn(&mut Vec<u8>)) {
        let mut disk = self.disk.clone();
        disk.damage(self.file, damage);
        let now = disk.whole(self.file).unwrap();
        let is_same = |from: u64, bytes: u64| {
            let range = from as usize..(from + bytes) as usize;
            now.get(range.clone()) == self.content.get(range)
        };
        let ChunkScanOutput::Done { chunks: found, .. } = scan(&mut disk, self.list.partition, &self.segment) else {
            panic!("{what}: it can be read")
        };
        for (chunk, records) in self.chunks.iter().zip(&self.records) {
            // A chunk that is cut is none, even when what is missing is only filling.
            let is_there = chunk.position + chunk.read_bytes() <= now.len() as u64;
            assert_eq!(found.contains(chunk), is_there && is_same(chunk.position, HEADER), "{what}: {chunk:?}");
            let bytes = read(&mut disk, self.file, chunk.position, chunk.read_bytes());
            let decoded = decode_chunk(self.list.partition, chunk, &bytes).ok();
            let is_whole = is_same(chunk.position, chunk.bytes.into());
            assert_eq!(decoded.as_ref(), is_whole.then_some(records), "{what}: {chunk:?}");
        }
        assert!(found.iter().all(|chunk| self.chunks.contains(chunk)), "{what}: never written");
        if self.segment.is_sealed() {
            let index = read(&mut disk, self.file, self.segment.file_bytes, self.segment.index_read_bytes());
            let decoded = decode_index(self.list.partition, &self.segment, &index).ok();
            let is_whole = is_same(self.segment.file_bytes, self.segment.index_bytes.into());
            assert_eq!(decoded.as_ref(), is_whole.then_some(&self.chunks), "{what}: the index");
        }
    }
}

#[test]
fn cut_at_every_byte() {
    for written in Written::both() {
        for end in written.start()..written.content.len() {
            written.check(&format!("cut at {end}"), |content| content.truncate(end));
        }
    }
}

#[test]
fn zeroed_from_every_byte() {
    for written in Written::both() {
        for from in written.start()..written.content.len() {
            written.check(&format!("zeros from {from}"), |content| content[from..].fill(0));
        }
    }
}

#[test]
fn each_byte_flipped() {
    for written in Written::both() {
        for at in written.start()..written.content.len() {
            written.check(&format!("a flip at {at}"), |content| content[at] ^= 1 << (at % 8));
        }
    }
}
