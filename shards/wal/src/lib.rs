//! Storage as bytes and decisions, without files: batches, log, checkpoints, topic segments. Pure, for any core.
//!
//! `FORMAT.md` beside this crate draws every byte; golden files under `tests/data/` hold every version to it. The log's
//! writer and its opener, the writers of slots and of topic segments, and what makes an index again are state machines: they
//! say which effects to perform and are told what came of them, so that a simulation drives the very code that could lose data.

mod batch;
mod builder;
mod checkpoint;
mod commit;
mod effect;
mod entry;
mod fields;
mod header;
mod position;
mod record;
mod recovery;
mod segment;
mod slot;
mod topic;
mod writer;

#[cfg(test)]
mod tests;

pub use batch::{Damage, HEADER_BYTES, RecordBatch, RecordsFrom};
pub use builder::{BatchBuilder, BatchSize, BatchSpace};
pub use checkpoint::{
    Checkpoint, Doubt, SlotContent, SlotDamage, Slots, SlotsRefused, choose_slot, decode_slot, encode_slot,
};
pub use commit::{COMMIT_HEADER_BYTES, CommitHeader};
pub use effect::{Completion, Effect, Failure, FileName, OperationId, SlotName, TopicFile};
pub use entry::{
    ClockAnchor, Entry, EntryDamage, GroupProgress, KnownMessage, KnownMessages, LogMarks, PartitionAges, TopicChanged,
    TopicCreated,
};
pub use header::HeaderDamage;
pub use position::{BLOCK_BYTES, LogPosition, SegmentNumber, Sequence};
pub use record::{Record, RecordHeaders};
pub use recovery::{Finding, LogOpener, OpenOutput, OpenRefused, Opened};
pub use segment::SegmentHeader;
pub use slot::{SLOT_SLICE_BYTES, SlotOutput, SlotWriter};
pub use topic::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNK_HEADER_BYTES, Chunk, ChunkDamage, ChunkScan, ChunkScanOutput, IndexDamage,
    PartitionSegments, SegmentsOutput, SegmentsWriter, StoreJob, TOPIC_SEGMENT_BYTES_MAX, TOPIC_WRITE_BYTES_MAX,
    TopicSegment, TopicSegmentHeader, decode_chunk, decode_index,
};
pub use writer::{LogOutput, LogSettings, LogWriter, NotAdmitted, Segment};
