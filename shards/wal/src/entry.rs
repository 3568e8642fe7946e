//! What a commit batch holds: records, topics, progress. Values made on the owner's core and read back at a start.

mod decode;
mod encode;
#[cfg(test)]
pub(crate) mod tests;

use ringmain_model::{GroupName, Incarnation, Message, MessageId, Offset, PartitionRef, TopicConfig, TopicName};

use crate::batch::{HEADER_BYTES, RecordBatch};
use crate::record;
use crate::topic::PartitionSegments;

pub(crate) use decode::{config, decode};
pub(crate) use encode::{CONFIG_BYTES, encode, put_config, put_segments};

/// Bytes before an entry's content; see `FORMAT.md`.
pub(crate) const ENTRY_FIXED_BYTES: usize = 8;

pub(crate) const KIND_RECORDS: u8 = 1;
pub(crate) const KIND_TOPIC_CREATED: u8 = 2;
pub(crate) const KIND_TOPIC_CHANGED: u8 = 3;
pub(crate) const KIND_TOPIC_DELETED: u8 = 4;
pub(crate) const KIND_GROUP_PROGRESS: u8 = 5;
pub(crate) const KIND_GROUP_DELETED: u8 = 6;
pub(crate) const KIND_LOG_MARKS: u8 = 7;
pub(crate) const KIND_PARTITION_SEGMENTS: u8 = 8;
pub(crate) const KIND_KNOWN_MESSAGES: u8 = 9;
pub(crate) const KIND_SET_ASIDE: u8 = 10;
pub(crate) const KIND_CLOCK: u8 = 11;
pub(crate) const KIND_GROUP_PROGRESS_BITS: u8 = 13;
pub(crate) const KIND_PARTITION_AGES: u8 = 12;
pub(crate) const KIND_PARTITION_SEGMENTS_WITH_GAPS: u8 = 14;

/// Bytes of one known message.
pub(crate) const KNOWN_MESSAGE_BYTES: usize = 40;

/// One entry of the log or of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Records of one partition.
    Records(RecordBatch),
    /// A topic's life begins.
    TopicCreated(TopicCreated),
    /// A topic has other settings.
    TopicChanged(TopicChanged),
    /// A topic's life ends.
    TopicDeleted {
        /// The life.
        incarnation: Incarnation,
        /// Its name.
        name: TopicName,
    },
    /// Where a group stands; the last one of a group counts.
    GroupProgress(GroupProgress),
    /// A group ends.
    GroupDeleted {
        /// Its partition.
        partition: PartitionRef,
        /// Its name.
        group: GroupName,
    },
    /// Where a partition's log starts and ends: in checkpoints, and before progress that went along with the start.
    LogMarks(LogMarks),
    /// Where a partition's records stand that have left the log. In checkpoints only.
    PartitionSegments(PartitionSegments),
    /// Messages of a partition that were named by their publishers. In checkpoints only.
    KnownMessages(KnownMessages),
    /// A partition that damage has cut, so that nobody knows which offsets are free: it is read only. In checkpoints only.
    SetAside(PartitionRef),
    /// How the age clock stood to the wall clock.
    Clock(ClockAnchor),
    /// When the records of a partition came. In checkpoints only.
    PartitionAges(PartitionAges),
}

/// The start of a topic's life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicCreated {
    /// The life.
    pub incarnation: Incarnation,
    /// The topic's name.
    pub name: TopicName,
    /// When it was made, microseconds since the Unix epoch.
    pub created_us: i64,
    /// Partitions, at least 1.
    pub partitions: u32,
    /// Its settings.
    pub config: TopicConfig,
}

/// A topic's new settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicChanged {
    /// The life.
    pub incarnation: Incarnation,
    /// The topic's name.
    pub name: TopicName,
    /// Partitions, at least 1.
    pub partitions: u32,
    /// Its settings.
    pub config: TopicConfig,
}

/// All that is stored of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupProgress {
    /// Its partition.
    pub partition: PartitionRef,
    /// Its name.
    pub group: GroupName,
    /// How often it was made to seek.
    pub epoch: u64,
    /// The lowest offset that is not acknowledged.
    pub committed: Offset,
    /// Acknowledged ranges above it, first and end, in order and apart from each other.
    pub acked: Vec<(Offset, Offset)>,
    /// How often messages were given out that are not acknowledged, by offset.
    pub attempts: Vec<(Offset, u32)>,
}

impl GroupProgress {
    /// Up to where the partition's records must have come when this was written: groups know of nothing that is not there.
    #[must_use]
    pub fn log_end_min(&self) -> Offset {
        let after_acked = self.acked.last().map_or(self.committed, |(_, end)| *end);
        let after_given = self.attempts.last().map_or(self.committed, |(offset, _)| offset.plus(1));
        after_acked.max(after_given)
    }

    /// Whether ranges and attempts keep their order.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let mut end = self.committed;
        let ranges_rise = self.acked.iter().all(|(first, range_end)| {
            let rises = *first > end && range_end > first;
            end = *range_end;
            rises
        });
        let attempts_rise = self.attempts.windows(2).all(|pair| pair[0].0 < pair[1].0);
        ranges_rise && attempts_rise && self.attempts.first().is_none_or(|(offset, _)| *offset >= self.committed)
    }
}

/// Where a partition's log starts and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogMarks {
    /// The partition.
    pub partition: PartitionRef,
    /// First offset kept.
    pub log_start: Offset,
    /// The offset that the next record gets.
    pub log_end: Offset,
}

/// One moment of two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockAnchor {
    /// The age clock, milliseconds: it goes on with the monotonic clock and never back.
    pub age_ms: u64,
    /// The wall clock, microseconds since the Unix epoch.
    pub unix_us: i64,
}

/// When the records of a partition came, in steps of the age clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionAges {
    /// The partition.
    pub partition: PartitionRef,
    /// Records below are known.
    pub end: Offset,
    /// When the last of them came, milliseconds of the age clock.
    pub newest_ms: u64,
    /// What is below each offset had come by that time; both rise.
    pub samples: Vec<(Offset, u64)>,
}

impl PartitionAges {
    /// Whether offsets and times rise.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        self.samples.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1)
    }
}

/// A message that was named by its publisher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownMessage {
    /// Its name and what it was.
    pub id: MessageId,
    /// Its offset.
    pub offset: Offset,
    /// When it was taken, microseconds since the Unix epoch.
    pub time_us: i64,
}

/// Messages of one partition that were named by their publishers, so that repeats are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownMessages {
    /// The partition.
    pub partition: PartitionRef,
    /// The messages, by offset.
    pub messages: Vec<KnownMessage>,
}

impl KnownMessages {
    /// Whether the offsets rise.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        self.messages.windows(2).all(|pair| pair[0].offset < pair[1].offset)
    }
}

/// Why bytes are no entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EntryDamage {
    /// Lengths, order or names cannot be.
    #[error("an entry is malformed")]
    Malformed,
    /// A kind, or a version of a record batch, that this program does not know.
    #[error("an entry was written by a newer program")]
    Newer,
}

/// Which entries the last allocated segment admits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryClass {
    /// It adds messages: refused while only the reserve is left.
    Records,
    /// It settles what was given out: a half of the reserve is not for it, so that a delete still finds room.
    Progress,
    /// It frees or configures.
    Upkeep,
}

impl Entry {
    pub(crate) fn class(&self) -> EntryClass {
        match self {
            Self::Records(_) => EntryClass::Records,
            Self::GroupProgress(_) => EntryClass::Progress,
            _ => EntryClass::Upkeep,
        }
    }

    /// Bytes that it takes in the log.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        encode::encoded_bytes(self)
    }

    /// Bytes that an entry of records takes beside the records.
    pub const RECORDS_OVERHEAD_BYTES: usize = ENTRY_FIXED_BYTES + HEADER_BYTES;

    /// Bytes to reserve in the log for one more message: in a record batch that is open, or in one that begins with it.
    #[must_use]
    pub fn bytes_to_reserve(message: &Message, begins_batch: bool) -> usize {
        let beginning = if begins_batch { Self::RECORDS_OVERHEAD_BYTES } else { 0 };
        beginning + record::encoded_bytes(message)
    }

    /// The partition that it is about, if it is about one.
    #[must_use]
    pub fn partition(&self) -> Option<PartitionRef> {
        match self {
            Self::Records(batch) => Some(batch.partition()),
            Self::GroupProgress(progress) => Some(progress.partition),
            Self::GroupDeleted { partition, .. } => Some(*partition),
            Self::LogMarks(marks) => Some(marks.partition),
            Self::PartitionSegments(segments) => Some(segments.partition),
            Self::KnownMessages(known) => Some(known.partition),
            Self::SetAside(partition) => Some(*partition),
            Self::PartitionAges(ages) => Some(ages.partition),
            Self::TopicCreated(_) | Self::TopicChanged(_) | Self::TopicDeleted { .. } | Self::Clock(_) => None,
        }
    }
}
