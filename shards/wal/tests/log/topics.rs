//! Topic segments on the pretend disk: a partition whose records are stored checkpoint by checkpoint and read back.

mod crashes;
mod damage;
mod golden;
mod lives;
mod replay;
mod writing;

use bytes::Bytes;
use ringmain_model::{Message, Offset, PartitionRef, Retention, Storage, TopicConfig, TopicName};
use ringmain_wal::{
    BLOCK_BYTES, BatchBuilder, Chunk, ChunkScan, ChunkScanOutput, Completion, Effect, FileName, PartitionSegments,
    RecordBatch, SegmentsOutput, SegmentsWriter, StoreJob, TopicFile, TopicSegment, decode_chunk, decode_index,
};

use crate::disk::Disk;
use crate::stage::{SHARD, partition};

const BLOCK: u64 = BLOCK_BYTES;
const NOW_US: i64 = 1_700_000_000_000_000;

/// `count` batches of one record each, from `base` on.
fn batches(life: u64, base: u64, count: u64, payload_bytes: usize) -> Vec<RecordBatch> {
    (base..base + count)
        .map(|offset| {
            let mut builder = BatchBuilder::new(partition(life), Offset(offset), 0);
            let payload: Vec<_> = (0..payload_bytes).map(|at| (life * 31 + offset * 7 + at as u64) as u8).collect();
            builder.push(&Message::of(payload), NOW_US + offset as i64);
            builder.finish().unwrap()
        })
        .collect()
}

fn none_of(life: u64) -> PartitionSegments {
    PartitionSegments { partition: partition(life), segments: Vec::new() }
}

fn job(list: &PartitionSegments, batches: Vec<RecordBatch>, segment_bytes_max: u64) -> StoreJob {
    let retention = Retention { max_messages: 10, max_bytes: 1 << 20, max_age_ms: None };
    StoreJob {
        partition: list.partition,
        name: TopicName::new(&format!("topic-{}", list.partition.incarnation.0)).unwrap(),
        config: TopicConfig { storage: Storage::Wal, retention, ack_wait_ms: 30_000, ..TopicConfig::default() },
        last: list.segments.last().cloned(),
        batches,
        segment_bytes_max,
    }
}

/// What a run of the writer did and said last.
struct Ran {
    effects: Vec<Effect>,
    given_up: Vec<TopicFile>,
    said: Option<SegmentsOutput>,
}

/// Does the jobs; `perform` gives `None` for a crash.
fn run(
    writer: &mut SegmentsWriter,
    jobs: Vec<StoreJob>,
    mut perform: impl FnMut(usize, &Effect) -> Option<Completion>,
) -> Ran {
    let (mut out, mut ran) = (Vec::new(), Ran { effects: Vec::new(), given_up: Vec::new(), said: None });
    assert!(writer.begin(jobs, NOW_US, &mut out));
    while !out.is_empty() {
        let output = out.remove(0);
        assert!(ran.said.is_none(), "one thing after another");
        match output {
            SegmentsOutput::GivenUp { file, .. } => ran.given_up.push(file),
            SegmentsOutput::Do { operation, effect } => {
                assert!(out.is_empty() && writer.waits_for(operation) && !writer.is_ready());
                let Some(completion) = perform(ran.effects.len(), &effect) else {
                    ran.effects.push(effect);
                    return ran;
                };
                ran.effects.push(effect);
                writer.completed(operation, &completion, &mut out);
                assert!(!writer.waits_for(operation));
            }
            said => ran.said = Some(said),
        }
    }
    assert!(ran.said.is_some(), "the writer came to no end");
    ran
}

/// Does the jobs on a disk that nothing disturbs.
fn store(disk: &mut Disk, jobs: Vec<StoreJob>) -> (Vec<PartitionSegments>, Vec<Effect>) {
    let mut writer = SegmentsWriter::new(SHARD);
    let ran = run(&mut writer, jobs, |_, effect| Some(disk.perform(effect)));
    assert!(writer.is_ready());
    match ran.said {
        Some(SegmentsOutput::Stored(stored)) => (stored, ran.effects),
        said => panic!("{said:?}"),
    }
}

/// Stores more of one partition and takes in what came of it.
fn store_more(disk: &mut Disk, list: &mut PartitionSegments, batches: Vec<RecordBatch>, bytes_max: u64) -> Vec<Effect> {
    let (mut stored, effects) = store(disk, vec![job(list, batches, bytes_max)]);
    let changed = stored.pop().unwrap();
    assert!(stored.is_empty() && changed.partition == list.partition);
    list.update(changed.segments);
    assert!(list.is_well_formed());
    effects
}

fn read(disk: &mut Disk, file: FileName, position: u64, bytes: u64) -> Bytes {
    match disk.perform(&Effect::Read { file, position, bytes }) {
        Completion::Read(bytes) => bytes,
        completion => panic!("{file:?}: {completion:?}"),
    }
}

fn chunks_of(disk: &mut Disk, partition: PartitionRef, segment: &TopicSegment) -> Vec<Chunk> {
    if !segment.is_sealed() {
        return segment.chunks.clone();
    }
    let index = read(disk, segment.file(partition), segment.file_bytes, segment.index_read_bytes());
    decode_index(partition, segment, &index).unwrap()
}

/// All records that the list names, read as a broker would.
fn read_all(disk: &mut Disk, list: &PartitionSegments) -> Vec<RecordBatch> {
    let mut all = Vec::new();
    for segment in &list.segments {
        for chunk in chunks_of(disk, list.partition, segment) {
            let bytes = read(disk, segment.file(list.partition), chunk.position, chunk.read_bytes());
            all.extend(decode_chunk(list.partition, &chunk, &bytes).unwrap());
        }
    }
    all
}

fn scan(disk: &mut Disk, partition: PartitionRef, segment: &TopicSegment) -> ChunkScanOutput {
    let file = segment.file(partition);
    let bytes = disk.whole(file).map_or(0, |content| content.len() as u64);
    let mut scan = ChunkScan::new(partition, segment, bytes);
    let mut out = Vec::new();
    scan.start(&mut out);
    loop {
        match out.pop().expect("the scan came to no end") {
            ChunkScanOutput::Do { operation, effect } => {
                assert!(out.is_empty() && scan.waits_for(operation));
                scan.completed(operation, &disk.perform(&effect), &mut out);
            }
            said => return said,
        }
    }
}
