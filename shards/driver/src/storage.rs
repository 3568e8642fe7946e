//! A broker's data directory: how it is laid out, opened at a start, and worked on by each core's ring.
//!
//! Decisions are the shards' ([`ringmain_engine::Shard`]); here file effects are carried out and nothing is chosen. Before any ring
//! exists an opener's effects are carried out blocking (`blocking`), afterwards by the ring of the owner's core (`disk`).

mod blocking;
mod description;
mod directory;
mod disk;
mod files;
mod job;
mod names;
mod news;
mod opening;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use ringmain_uring::SyncChoice;

pub(crate) use directory::DataDirectory;
pub use directory::DirectoryError;
pub(crate) use disk::{Disk, DiskSettings, Done};
pub(crate) use news::tell_news;
pub(crate) use opening::{open_shards, tell};

/// How a broker's data directory is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageConfig {
    /// Where it is; made if it is not there.
    pub directory: PathBuf,
    /// Whether somebody asked for the number of shards by name: then a directory of another number is refused, and else that
    /// of the directory counts.
    pub shards_given: bool,
    /// Bytes of a topic's segment before the next one begins.
    pub topic_segment_bytes: u64,
    /// Bytes that one message may have: the log's first segments hold it.
    pub message_bytes_max: usize,
    /// Segments that one partition keeps.
    pub topic_segments_max: u64,
    /// Go past the page cache where the file system can.
    pub direct: bool,
    /// How writes of the log become durable; measured at the start when `None`.
    pub sync: Option<SyncChoice>,
}
