//! Decides how record batches are cut into chunks, and chunks into segments. Pure, on the core that owns the shard.

use std::collections::VecDeque;

use bytes::Bytes;
use ringmain_model::{PartitionRef, ShardId, TopicConfig, TopicName};

use crate::batch::RecordBatch;
use crate::effect::FileName;
use crate::position::{BLOCK_BYTES, whole_blocks};
use crate::topic::{
    CHUNK_BYTES_MAX, CHUNK_HEADER_BYTES, Chunk, PartitionSegments, TOPIC_SEGMENT_BYTES_MAX, TopicSegment,
    TopicSegmentHeader, chunk, index,
};

/// Records of one partition that are to leave the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreJob {
    /// Whose records.
    pub partition: PartitionRef,
    /// Name of the topic, for the headers of new files.
    pub name: TopicName,
    /// Settings of the topic, for the headers of new files.
    pub config: TopicConfig,
    /// The partition's last segment, as the newest checkpoint that was written names it; `None` when there is none.
    pub last: Option<TopicSegment>,
    /// The records, in order, from where `last` ends or later on: behind a gap a new file begins. Best
    /// [`CHUNK_BYTES_MIN`](crate::CHUNK_BYTES_MIN) and more; with none, nothing is done.
    pub batches: Vec<RecordBatch>,
    /// A segment is sealed before a chunk would make it larger than this; a single chunk always fits. At most
    /// [`TOPIC_SEGMENT_BYTES_MAX`] counts.
    pub segment_bytes_max: u64,
}

/// Something to write, in whole blocks.
#[derive(Debug)]
pub(super) enum Piece {
    Header(TopicSegmentHeader),
    Chunk { chunk: Chunk, batches: Vec<RecordBatch> },
    Index { segment: TopicSegment, chunks: Vec<Chunk> },
}

impl Piece {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Header(_) => BLOCK_BYTES,
            Self::Chunk { chunk, .. } => chunk.read_bytes(),
            Self::Index { segment, .. } => segment.index_read_bytes(),
        }
    }

    /// Appends its bytes to a gathered write. This is where checksums are made: for one write at a time, so that a large
    /// checkpoint does not hold up the core.
    pub(super) fn put(self, partition: PartitionRef, parts: &mut Vec<Bytes>) {
        match self {
            Self::Header(header) => parts.push(Bytes::from(header.encode())),
            Self::Chunk { chunk, batches } => chunk::put(partition, chunk, &batches, parts),
            Self::Index { segment, chunks } => parts.push(Bytes::from(index::encode(partition, &segment, &chunks))),
        }
    }
}

/// What is to be written to one file, from `position` on without a gap.
#[derive(Debug)]
pub(super) struct FilePlan {
    pub(super) partition: PartitionRef,
    pub(super) file: FileName,
    /// Size of a file that has to be made.
    pub(super) allocate: Option<u64>,
    pub(super) position: u64,
    pub(super) pieces: VecDeque<Piece>,
}

/// A segment that is being planned.
struct Draft {
    plan: FilePlan,
    segment: TopicSegment,
}

impl Draft {
    fn appended(partition: PartitionRef, segment: TopicSegment) -> Self {
        let (file, position) = (segment.file(partition), segment.file_bytes);
        Self { plan: FilePlan { partition, file, allocate: None, position, pieces: VecDeque::new() }, segment }
    }

    fn created(header: TopicSegmentHeader) -> Self {
        let segment = TopicSegment {
            base: header.base,
            end: header.base,
            record_bytes: 0,
            first_time_us: i64::MAX,
            last_time_us: i64::MIN,
            file_bytes: BLOCK_BYTES,
            index_bytes: 0,
            chunks: Vec::new(),
        };
        let partition = header.partition;
        let (file, pieces) = (segment.file(partition), VecDeque::from([Piece::Header(header)]));
        Self { plan: FilePlan { partition, file, allocate: Some(0), position: 0, pieces }, segment }
    }

    fn add(&mut self, batches: Vec<RecordBatch>) {
        let segment = &mut self.segment;
        let times = || batches.iter().map(RecordBatch::base_time_us);
        let chunk = Chunk {
            base: segment.end,
            end: batches.last().map_or(segment.end, RecordBatch::end),
            position: segment.file_bytes,
            bytes: chunk_bytes(&batches),
            first_time_us: times().min().unwrap_or(0),
            last_time_us: times().max().unwrap_or(0),
        };
        segment.end = chunk.end;
        segment.record_bytes += u64::from(chunk.bytes - CHUNK_HEADER_BYTES);
        segment.first_time_us = segment.first_time_us.min(chunk.first_time_us);
        segment.last_time_us = segment.last_time_us.max(chunk.last_time_us);
        segment.file_bytes += chunk.read_bytes();
        segment.chunks.push(chunk);
        self.plan.pieces.push_back(Piece::Chunk { chunk, batches });
    }

    fn seal(&mut self) {
        let chunks = std::mem::take(&mut self.segment.chunks);
        self.segment.index_bytes = index::bytes_for(chunks.len());
        self.plan.pieces.push_back(Piece::Index { segment: self.segment.clone(), chunks });
    }

    fn finish(mut self, files: &mut VecDeque<FilePlan>, segments: &mut Vec<TopicSegment>) {
        self.plan.allocate = self.plan.allocate.map(|_| self.segment.bytes_on_disk());
        files.push_back(self.plan);
        segments.push(self.segment);
    }
}

/// Adds what the job does to `files`; gives the segments that it makes or changes.
///
/// # Panics
/// When the job's batches are not its partition's or out of order, or its last segment cannot be: written down, that
/// would be records lost, and it is our own fault.
pub(super) fn plan(shard: ShardId, job: StoreJob, now_us: i64, files: &mut VecDeque<FilePlan>) -> PartitionSegments {
    let StoreJob { partition, ref name, ref config, last, batches, segment_bytes_max } = job;
    check(partition, last.as_ref(), &batches);
    let bytes_max = segment_bytes_max.min(TOPIC_SEGMENT_BYTES_MAX);
    let mut segments = Vec::new();
    let mut draft = last.filter(|last| !last.is_sealed()).map(|last| Draft::appended(partition, last));
    for batches in runs(batches).into_iter().flat_map(cut) {
        let room = whole_blocks(u64::from(chunk_bytes(&batches)));
        let base = batches[0].base();
        let is_full = |draft: &mut Draft| {
            let is_beyond = draft.segment.file_bytes.saturating_add(room) > bytes_max;
            !draft.segment.chunks.is_empty() && (is_beyond || draft.segment.end != base)
        };
        if let Some(mut full) = draft.take_if(is_full) {
            full.seal();
            full.finish(files, &mut segments);
        }
        let mut open = draft.take().unwrap_or_else(|| {
            Draft::created(TopicSegmentHeader {
                partition,
                base,
                shard,
                created_us: now_us,
                name: name.clone(),
                config: config.clone(),
            })
        });
        open.add(batches);
        draft = Some(open);
    }
    if let Some(draft) = draft.filter(|draft| !draft.plan.pieces.is_empty()) {
        draft.finish(files, &mut segments);
    }
    PartitionSegments { partition, segments }
}

fn check(partition: PartitionRef, last: Option<&TopicSegment>, batches: &[RecordBatch]) {
    assert!(last.is_none_or(TopicSegment::is_well_formed), "the last segment of a partition has content");
    let mut next = last.map(|last| last.end);
    for batch in batches {
        let goes_on = next.is_none_or(|next| next <= batch.base());
        assert!(goes_on && batch.partition() == partition, "a topic segment's records go on in order");
        next = Some(batch.end());
    }
}

fn chunk_bytes(batches: &[RecordBatch]) -> u32 {
    let content: usize = batches.iter().map(|batch| batch.bytes().len()).sum();
    u32::try_from(content).unwrap_or(u32::MAX).saturating_add(CHUNK_HEADER_BYTES)
}

/// Divides where offsets are missing: those records are lost, and no file has a gap inside.
fn runs(batches: Vec<RecordBatch>) -> Vec<Vec<RecordBatch>> {
    let mut runs: Vec<Vec<RecordBatch>> = Vec::new();
    for batch in batches {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| last.end() == batch.base()) => run.push(batch),
            _ => runs.push(vec![batch]),
        }
    }
    runs
}

/// Cuts into chunks of about the same size, so that no small rest is left.
fn cut(batches: Vec<RecordBatch>) -> Vec<Vec<RecordBatch>> {
    let bytes_max = CHUNK_BYTES_MAX as usize;
    let mut left: usize = batches.iter().map(|batch| batch.bytes().len()).sum();
    let (mut chunks, mut chunk, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut wanted = share(left, bytes_max);
    for batch in batches {
        let length = batch.bytes().len();
        if bytes > 0 && (bytes >= wanted || bytes + length > bytes_max) {
            chunks.push(std::mem::take(&mut chunk));
            left -= std::mem::take(&mut bytes);
            wanted = share(left, bytes_max);
        }
        bytes += length;
        chunk.push(batch);
    }
    if !chunk.is_empty() {
        chunks.push(chunk);
    }
    chunks
}

fn share(bytes: usize, bytes_max: usize) -> usize {
    bytes.div_ceil(bytes.div_ceil(bytes_max).max(1))
}
