//! The vocabulary of the broker, used by every crate on any core: ids, names, offsets, configurations, limits, errors.
//!
//! | word | means |
//! |---|---|
//! | topic | a named channel |
//! | partition | an ordered part of a topic: one log |
//! | shard | a share of the topics with one commit log, run by one core |
//! | message / record | what a client sends / the same in a batch, with its offset |
//! | record batch | records of one partition together: the unit of log, lane, fetch |
//! | incarnation | 64 random bits of one life of a topic |
//! | offset | position of a record in a partition, counted from 0 |
//! | log start, log end | first offset kept; the offset that the next record gets |
//! | durable offset | everything below it is synced on this node |
//! | high-water mark | everything below it is visible to consumers |
//! | cursor | the next offset that a reader reads |
//! | group | a consumer with several members: a stored place, what they hold, what they have acknowledged |
//! | committed offset | the lowest offset of a group that is not acknowledged |
//! | lag | high-water mark − committed offset |
//! | epoch | the time between two seeks of a group |
//!
//! All ends are exclusive.

mod config;
mod error;
mod group;
mod id;
pub mod limit;
mod message;
mod name;
mod offset;
mod token;

#[cfg(test)]
mod tests;

pub use config::{Retention, Storage, TopicConfig, TopicPatch};
pub use error::{Refusal, RefusalKind};
pub use group::{GroupName, GroupNameError};
pub use id::{CoreId, Incarnation, PartitionRef, ShardId};
pub use message::{Message, MessageId};
pub use name::{NameError, TopicName};
pub use offset::{DurableOffset, HighWaterMark, LogEnd, LogStart, Offset};
pub use token::{MarkedPosition, Position, ResumeToken, TokenError, TopicMark};
