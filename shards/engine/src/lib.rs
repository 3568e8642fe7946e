//! What a shard decides, on the core that owns it: topics, publishes, reads, retention, interest. No I/O, no clock.
//!
//! [`Shard::handle`] takes one [`Event`] and the time, and leaves [`Effect`]s for the driver to perform. It is synchronous and
//! depends on nothing but its arguments, so that a simulation replays from a seed.

mod acked;
mod ages;
mod cache;
mod checkpoint;
mod command;
mod dead_letters;
mod group;
mod group_command;
mod groups;
mod ids;
mod image;
mod loads;
mod log;
mod log_turn;
mod opening;
mod orders;
mod parked;
mod publish;
mod publish_all;
mod read;
mod replay;
mod shard;
mod shard_log;
mod storing;
mod topics;

#[cfg(test)]
mod tests;

pub use command::{
    AnswerWhen, Command, Effect, Event, Interest, Now, Origin, Page, PlacementChange, Reply, StorageNews, TopicStats,
};
pub use group_command::{
    Assigned, Assignment, DeadLetter, GroupAction, GroupStart, GroupStats, MemberNews, Nack, Progress, SeekTo,
};
pub use opening::{
    OpenedShard, OpeningOutput, OpeningReport, ShardOpener, StorageSettings, StorageState, StorageStats,
};
pub use orders::{Order, reconcile};
pub use ringmain_wal::{BatchBuilder, Record, RecordBatch, TopicCreated};
pub use shard::{Shard, ShardSettings, ShardTotals};
