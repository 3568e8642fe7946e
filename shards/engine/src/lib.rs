//! What a shard decides, on the core that owns it: topics, publishes, reads, retention, interest. No I/O, no clock.
//!
//! [`Shard::handle`] takes one [`Event`] and the time, and leaves [`Effect`]s for the driver to perform. It is synchronous and
//! depends on nothing but its arguments, so that a simulation replays from a seed.

mod acked;
mod checkpoint;
mod command;
mod group;
mod group_stored;
mod groups;
mod log;
mod opening;
mod publish;
mod read;
mod replay;
mod shard;
mod shard_log;
mod topics;

#[cfg(test)]
mod tests;

pub use command::{
    AnswerWhen, Assigned, Assignment, Command, Effect, Event, GroupAction, GroupStart, GroupStats, Interest,
    MemberNews, Nack, Now, Origin, Page, PlacementChange, Progress, Reply, SeekTo, TopicStats,
};
pub use opening::{
    OpenedShard, OpeningOutput, OpeningReport, ShardOpener, StorageSettings, StorageState, StorageStats,
};
pub use ringmain_wal::{Record, RecordBatch};
pub use shard::{Shard, ShardSettings};
