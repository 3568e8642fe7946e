//! What one core tells of itself when it is asked: the parts of which lists and metrics are summed.

use ringmain_engine::{ShardTotals, StorageState, StorageStats, TopicStats};
use ringmain_model::{CoreId, ShardId, TopicName};

/// Counts of one core since the start; plain numbers that only this core changes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CoreCounters {
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Times that accepting paused because descriptors or connections ran out.
    pub accept_pauses: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes that the kernel took for sending.
    pub sent_bytes: u64,
    /// Requests refused because a lane was full.
    pub lane_busy: u64,
    /// Batches not pushed because a lane was full; readers fetch them.
    pub lane_holes: u64,
    /// Connections cut because the peer took no byte for the write timeout.
    pub write_stalls: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Times that the kernel's completion queue overflowed.
    pub completion_overflows: u64,
    /// Messages that connections took, of any topic, by [`crate::Protocol::index`].
    pub delivered: [u64; 2],
}

/// A topic as seen by the connections of one core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicOnCore {
    /// Its name.
    pub name: TopicName,
    /// Messages that this core's connections took, by [`crate::Protocol::index`].
    pub delivered: [u64; 2],
    /// Messages that this core's subscribers were made to miss because they were too slow.
    pub dropped: u64,
    /// This core's subscribers and group members, likewise by protocol.
    pub subscribers: [u64; 2],
}

/// How a shard's storage stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardStorage {
    /// Which shard.
    pub shard: ShardId,
    /// Whether it takes what is to be stored.
    pub state: StorageState,
    /// Its counts since the start.
    pub stats: StorageStats,
}

/// Topics whose names follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NameRange {
    /// They come after this text; from the first one when `None`.
    pub(crate) after: Option<Box<str>>,
    /// The last of them; all that follow when `None`.
    pub(crate) until: Option<TopicName>,
}

/// One core's report.
#[derive(Clone, Debug)]
pub struct CoreReport {
    /// Which core.
    pub core: CoreId,
    /// Its counters.
    pub counters: CoreCounters,
    /// How many topics it knows, reported now or not.
    pub topics_known: u64,
    /// Its subscribers and group members of any topic, by [`crate::Protocol::index`].
    pub subscribers: [u64; 2],
    /// Its shards with what their topics amount to.
    pub totals: Vec<(ShardId, ShardTotals)>,
    /// Partitions that it runs, of the topics that it reports.
    pub topics: Vec<TopicStats>,
    /// The topics that it reports, by name, as its connections see them.
    pub on_core: Vec<TopicOnCore>,
    /// The last name that all cores report this time; `None` when no topic follows.
    pub until: Option<TopicName>,
    /// The storage of its shards; empty without a data directory.
    pub storage: Vec<ShardStorage>,
}
