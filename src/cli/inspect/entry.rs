//! Entries of the log and of checkpoints as people and programs read them; on the main thread.

use std::fmt;

use jiff::Timestamp;
use ringmain_model::{Offset, PartitionRef, TopicConfig};
use ringmain_wal::{
    Entry, GroupProgress, LogMarks, PartitionSegments, RecordBatch, TopicCreated, TopicSegment, TopicSegmentHeader,
};
use serde::Serialize;

/// A partition: its topic's life as sixteen hexadecimal digits, and its number.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PartitionView {
    incarnation: String,
    partition: u32,
}

impl From<PartitionRef> for PartitionView {
    fn from(partition: PartitionRef) -> Self {
        Self { incarnation: partition.incarnation.to_string(), partition: partition.partition }
    }
}

impl fmt::Display for PartitionView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "topic {} partition {}", self.incarnation, self.partition)
    }
}

/// What a topic is told when it is made.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ConfigView {
    storage: &'static str,
    max_messages: u64,
    max_bytes: u64,
    ack_wait_ms: u64,
    max_age_ms: Option<u64>,
    max_deliver: Option<u32>,
    dead_letter: Option<String>,
}

impl From<&TopicConfig> for ConfigView {
    fn from(config: &TopicConfig) -> Self {
        Self {
            storage: config.storage.as_str(),
            max_messages: config.retention.max_messages,
            max_bytes: config.retention.max_bytes,
            ack_wait_ms: config.ack_wait_ms,
            max_age_ms: config.retention.max_age_ms,
            max_deliver: config.max_deliver,
            dead_letter: config.dead_letter.as_ref().map(|name| name.as_str().to_owned()),
        }
    }
}

impl fmt::Display for ConfigView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { storage, max_messages, max_bytes, ack_wait_ms, .. } = self;
        write!(
            formatter,
            "storage {storage}, at most {max_messages} messages and {max_bytes} bytes, acknowledgement wait {ack_wait_ms} ms"
        )?;
        self.max_age_ms.map_or(Ok(()), |age| write!(formatter, ", kept {age} ms"))?;
        self.max_deliver.map_or(Ok(()), |times| write!(formatter, ", given out {times} times at most"))?;
        self.dead_letter.as_ref().map_or(Ok(()), |name| write!(formatter, ", dead letters to {name:?}"))
    }
}

/// Offsets that are acknowledged above the committed one.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RangeView {
    first: u64,
    end: u64,
}

/// How often a message was given out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AttemptView {
    offset: u64,
    count: u32,
}

/// A file of a partition as a checkpoint names it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StoredView {
    first_offset: u64,
    end_offset: u64,
    record_bytes: u64,
    file_bytes: u64,
    index_bytes: u32,
    sealed: bool,
    chunk_count: usize,
    first_time_us: i64,
    last_time_us: i64,
}

impl From<&TopicSegment> for StoredView {
    fn from(segment: &TopicSegment) -> Self {
        Self {
            first_offset: segment.base.0,
            end_offset: segment.end.0,
            record_bytes: segment.record_bytes,
            file_bytes: segment.file_bytes,
            index_bytes: segment.index_bytes,
            sealed: segment.is_sealed(),
            chunk_count: segment.chunks.len(),
            first_time_us: segment.first_time_us,
            last_time_us: segment.last_time_us,
        }
    }
}

/// What a file of a partition says of itself.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TopicHeaderView {
    #[serde(flatten)]
    partition: PartitionView,
    topic: String,
    shard: u16,
    first_offset: u64,
    created_us: i64,
    #[serde(flatten)]
    config: ConfigView,
}

impl From<&TopicSegmentHeader> for TopicHeaderView {
    fn from(header: &TopicSegmentHeader) -> Self {
        Self {
            partition: header.partition.into(),
            topic: header.name.as_str().to_owned(),
            shard: header.shard.0,
            first_offset: header.base.0,
            created_us: header.created_us,
            config: (&header.config).into(),
        }
    }
}

impl fmt::Display for TopicHeaderView {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition, topic, shard, first_offset, created_us, config } = self;
        write!(to, "{partition} {topic:?} of shard {shard}, from offset {first_offset} on, {config}, ")?;
        write!(to, "made {}, checksum ok", time(*created_us))
    }
}

/// One entry.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum EntryView {
    Records {
        #[serde(flatten)]
        partition: PartitionView,
        first_offset: u64,
        last_offset: u64,
        count: u32,
        bytes: u64,
        first_time_us: i64,
        last_time_us: i64,
    },
    TopicCreated {
        incarnation: String,
        topic: String,
        created_us: i64,
        partitions: u32,
        #[serde(flatten)]
        config: ConfigView,
    },
    TopicChanged {
        incarnation: String,
        topic: String,
        partitions: u32,
        #[serde(flatten)]
        config: ConfigView,
    },
    TopicDeleted {
        incarnation: String,
        topic: String,
    },
    GroupProgress {
        #[serde(flatten)]
        partition: PartitionView,
        group: String,
        epoch: u64,
        committed: u64,
        acked: Vec<RangeView>,
        attempts: Vec<AttemptView>,
    },
    GroupDeleted {
        #[serde(flatten)]
        partition: PartitionView,
        group: String,
    },
    LogMarks {
        #[serde(flatten)]
        partition: PartitionView,
        log_start: u64,
        log_end: u64,
    },
    PartitionSegments {
        #[serde(flatten)]
        partition: PartitionView,
        segments: Vec<StoredView>,
    },
    Clock {
        age_ms: u64,
        unix_us: i64,
    },
    PartitionAges {
        #[serde(flatten)]
        partition: PartitionView,
        end_offset: u64,
        newest_ms: u64,
        samples: usize,
    },
    SetAside {
        #[serde(flatten)]
        partition: PartitionView,
    },
    KnownMessages {
        #[serde(flatten)]
        partition: PartitionView,
        count: usize,
        first_offset: Option<u64>,
        last_offset: Option<u64>,
    },
}

impl From<&RecordBatch> for EntryView {
    fn from(batch: &RecordBatch) -> Self {
        let first = (batch.base(), batch.base_time_us());
        // Offsets may have gaps, so the count does not tell the last one.
        let last = batch.records().last().map_or(first, |record| (record.offset, record.time_us));
        Self::Records {
            partition: batch.partition().into(),
            first_offset: first.0.0,
            last_offset: last.0.0,
            count: batch.count(),
            bytes: batch.bytes().len() as u64,
            first_time_us: first.1,
            last_time_us: last.1,
        }
    }
}

impl From<&TopicCreated> for EntryView {
    fn from(topic: &TopicCreated) -> Self {
        Self::TopicCreated {
            incarnation: topic.incarnation.to_string(),
            topic: topic.name.as_str().to_owned(),
            created_us: topic.created_us,
            partitions: topic.partitions,
            config: (&topic.config).into(),
        }
    }
}

impl From<&GroupProgress> for EntryView {
    fn from(progress: &GroupProgress) -> Self {
        let range = |(first, end): &(Offset, Offset)| RangeView { first: first.0, end: end.0 };
        let attempts = progress.attempts.iter();
        Self::GroupProgress {
            partition: progress.partition.into(),
            group: progress.group.as_str().to_owned(),
            epoch: progress.epoch,
            committed: progress.committed.0,
            acked: progress.acked.iter().map(range).collect(),
            attempts: attempts.map(|(offset, count)| AttemptView { offset: offset.0, count: *count }).collect(),
        }
    }
}

impl From<&LogMarks> for EntryView {
    fn from(marks: &LogMarks) -> Self {
        Self::LogMarks { partition: marks.partition.into(), log_start: marks.log_start.0, log_end: marks.log_end.0 }
    }
}

impl From<&PartitionSegments> for EntryView {
    fn from(stored: &PartitionSegments) -> Self {
        let segments = stored.segments.iter().map(Into::into).collect();
        Self::PartitionSegments { partition: stored.partition.into(), segments }
    }
}

impl From<&Entry> for EntryView {
    fn from(entry: &Entry) -> Self {
        match entry {
            Entry::Records(batch) => batch.into(),
            Entry::TopicCreated(topic) => topic.into(),
            Entry::TopicChanged(topic) => Self::TopicChanged {
                incarnation: topic.incarnation.to_string(),
                topic: topic.name.as_str().to_owned(),
                partitions: topic.partitions,
                config: (&topic.config).into(),
            },
            Entry::TopicDeleted { incarnation, name } => {
                Self::TopicDeleted { incarnation: incarnation.to_string(), topic: name.as_str().to_owned() }
            }
            Entry::GroupProgress(progress) => progress.into(),
            Entry::GroupDeleted { partition, group } => {
                Self::GroupDeleted { partition: (*partition).into(), group: group.as_str().to_owned() }
            }
            Entry::LogMarks(marks) => marks.into(),
            Entry::PartitionSegments(stored) => stored.into(),
            Entry::SetAside(partition) => Self::SetAside { partition: (*partition).into() },
            Entry::Clock(anchor) => Self::Clock { age_ms: anchor.age_ms, unix_us: anchor.unix_us },
            Entry::PartitionAges(ages) => Self::PartitionAges {
                partition: ages.partition.into(),
                end_offset: ages.end.0,
                newest_ms: ages.newest_ms,
                samples: ages.samples.len(),
            },
            Entry::KnownMessages(known) => Self::KnownMessages {
                partition: known.partition.into(),
                count: known.messages.len(),
                first_offset: known.messages.first().map(|message| message.offset.0),
                last_offset: known.messages.last().map(|message| message.offset.0),
            },
        }
    }
}

/// A time as people read it; one that no calendar knows stays a number.
pub(super) fn time(microseconds: i64) -> String {
    Timestamp::from_microsecond(microseconds).map_or_else(|_| format!("{microseconds} us"), |time| time.to_string())
}

impl fmt::Display for EntryView {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records { partition, first_offset, last_offset, count, bytes, first_time_us, last_time_us } => {
                write!(to, "records         {partition}, offsets {first_offset} to {last_offset}, count {count}, ")?;
                write!(to, "{bytes} bytes, {} to {}", time(*first_time_us), time(*last_time_us))
            }
            // Names are quoted with control characters escaped, because a terminal would obey those.
            Self::TopicCreated { incarnation, topic, created_us, partitions, config } => {
                write!(to, "topic created   topic {incarnation} {topic:?}, partitions {partitions}, {config}, ")?;
                write!(to, "created {}", time(*created_us))
            }
            Self::TopicChanged { incarnation, topic, partitions, config } => {
                write!(to, "topic changed   topic {incarnation} {topic:?}, partitions {partitions}, {config}")
            }
            Self::TopicDeleted { incarnation, topic } => {
                write!(to, "topic deleted   topic {incarnation} {topic:?}")
            }
            Self::GroupProgress { partition, group, epoch, committed, acked, attempts } => {
                write!(to, "group progress  {partition}, group {group:?}, epoch {epoch}, committed {committed}")?;
                acked.iter().try_for_each(|range| write!(to, ", acknowledged {} to {}", range.first, range.end - 1))?;
                let given = |one: &AttemptView| format!("{} given out {} times", one.offset, one.count);
                attempts.iter().try_for_each(|attempt| write!(to, ", {}", given(attempt)))
            }
            Self::GroupDeleted { partition, group } => write!(to, "group deleted   {partition}, group {group:?}"),
            Self::LogMarks { partition, log_start, log_end } => {
                write!(to, "log marks       {partition}, starts at {log_start}, ends before {log_end}")
            }
            Self::Clock { age_ms, unix_us } => write!(to, "clock           age {age_ms} ms at {}", time(*unix_us)),
            Self::PartitionAges { partition, samples, .. } => {
                write!(to, "ages            {partition}, {samples} samples")
            }
            Self::SetAside { partition } => write!(to, "set aside       {partition}"),
            Self::KnownMessages { partition, count, .. } => {
                write!(to, "message ids     {partition}, {count} remembered")
            }
            Self::PartitionSegments { partition, segments } => {
                write!(to, "topic segments  {partition}, files {}", segments.len())?;
                segments.iter().try_for_each(|one| {
                    let state = if one.sealed { "sealed" } else { "growing" };
                    let StoredView { first_offset, end_offset, record_bytes, file_bytes, .. } = one;
                    write!(to, "\n                        offsets {first_offset} to {}", end_offset.saturating_sub(1))?;
                    write!(to, ", {record_bytes} bytes of records in {file_bytes}, {state}")
                })
            }
        }
    }
}
