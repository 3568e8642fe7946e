//! Storage as bytes and decisions, without files: record batches, the commit log, checkpoint slots. Pure, for any core.
//!
//! `FORMAT.md` beside this crate draws every byte; golden files under `tests/data/` hold every version to it. The log's
//! writer, its opener and the slots' writer are state machines: they say which effects to perform and are told what came of
//! them, so that a simulation drives the very code that could lose data.

mod batch;
mod builder;
mod checkpoint;
mod commit;
mod effect;
mod entry;
mod fields;
mod position;
mod record;
mod recovery;
mod segment;
mod slot;
mod writer;

#[cfg(test)]
mod tests;

pub use batch::{Damage, HEADER_BYTES, RecordBatch, RecordsFrom};
pub use builder::{BatchBuilder, BatchSpace};
pub use checkpoint::{Checkpoint, SlotContent, SlotDamage, Slots, SlotsRefused, choose_slot, decode_slot, encode_slot};
pub use commit::{COMMIT_HEADER_BYTES, CommitHeader};
pub use effect::{Completion, Effect, Failure, FileName, OperationId, SlotName, TopicFile};
pub use entry::{Entry, EntryDamage, GroupProgress, LogMarks, TopicChanged, TopicCreated};
pub use position::{BLOCK_BYTES, LogPosition, SegmentNumber, Sequence};
pub use record::{Record, RecordHeaders};
pub use recovery::{Finding, LogOpener, OpenOutput, OpenRefused, Opened};
pub use segment::{SegmentHeader, SegmentHeaderDamage};
pub use slot::{SLOT_SLICE_BYTES, SlotOutput, SlotWriter};
pub use writer::{LogOutput, LogSettings, LogWriter, NotAdmitted, Segment};
