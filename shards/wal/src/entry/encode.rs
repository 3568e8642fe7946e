//! Entries to bytes. Pure, on the core that owns the log.

use bytes::Bytes;
use ringmain_model::{PartitionRef, Storage, TopicConfig};

use crate::entry::{
    ENTRY_FIXED_BYTES, Entry, GroupProgress, KIND_CLOCK, KIND_GROUP_DELETED, KIND_GROUP_PROGRESS,
    KIND_GROUP_PROGRESS_BITS, KIND_KNOWN_MESSAGES, KIND_LOG_MARKS, KIND_PARTITION_AGES, KIND_PARTITION_SEGMENTS,
    KIND_PARTITION_SEGMENTS_WITH_GAPS, KIND_RECORDS, KIND_SET_ASIDE, KIND_TOPIC_CHANGED, KIND_TOPIC_CREATED,
    KIND_TOPIC_DELETED, KNOWN_MESSAGE_BYTES, PartitionAges,
};
use crate::fields::{length32, put_text};
use crate::topic::TopicSegment;

pub(crate) const CONFIG_BYTES: usize = 32;
const PARTITION_BYTES: usize = 12;

/// Bytes that an entry takes.
pub(crate) fn encoded_bytes(entry: &Entry) -> usize {
    let content = match entry {
        Entry::Records(batch) => batch.bytes().len(),
        Entry::TopicCreated(topic) => 8 + 8 + 4 + config_bytes(&topic.config) + 2 + topic.name.as_str().len(),
        Entry::TopicChanged(topic) => 8 + 4 + config_bytes(&topic.config) + 2 + topic.name.as_str().len(),
        Entry::TopicDeleted { name, .. } => 8 + 2 + name.as_str().len(),
        Entry::GroupProgress(progress) => {
            let ranges = bitmap_bytes(progress).unwrap_or(progress.acked.len() * 16);
            let attempts = progress.attempts.len() * 12;
            PARTITION_BYTES + 8 + 8 + 4 + 4 + ranges + attempts + 2 + progress.group.as_str().len()
        }
        Entry::GroupDeleted { group, .. } => PARTITION_BYTES + 2 + group.as_str().len(),
        Entry::LogMarks(_) => PARTITION_BYTES + 8 + 8,
        Entry::SetAside(_) => PARTITION_BYTES,
        Entry::Clock(_) => 8 + 8,
        Entry::PartitionAges(ages) => PARTITION_BYTES + 8 + 8 + 4 + 16 * ages.samples.len(),
        Entry::KnownMessages(known) => PARTITION_BYTES + 4 + KNOWN_MESSAGE_BYTES * known.messages.len(),
        Entry::PartitionSegments(one) => return segments_bytes(&one.segments),
    };
    ENTRY_FIXED_BYTES + content
}

/// Appends an entry to `out`. A record batch is not copied: its bytes come back, and belong right after `out`.
#[must_use]
pub(crate) fn encode(entry: &Entry, out: &mut Vec<u8>) -> Option<Bytes> {
    let kind = match entry {
        Entry::Records(_) => KIND_RECORDS,
        Entry::TopicCreated(_) => KIND_TOPIC_CREATED,
        Entry::TopicChanged(_) => KIND_TOPIC_CHANGED,
        Entry::TopicDeleted { .. } => KIND_TOPIC_DELETED,
        Entry::GroupProgress(progress) if bitmap_bytes(progress).is_some() => KIND_GROUP_PROGRESS_BITS,
        Entry::GroupProgress(_) => KIND_GROUP_PROGRESS,
        Entry::GroupDeleted { .. } => KIND_GROUP_DELETED,
        Entry::LogMarks(_) => KIND_LOG_MARKS,
        Entry::KnownMessages(_) => KIND_KNOWN_MESSAGES,
        Entry::SetAside(_) => KIND_SET_ASIDE,
        Entry::Clock(_) => KIND_CLOCK,
        Entry::PartitionAges(_) => KIND_PARTITION_AGES,
        Entry::PartitionSegments(one) => {
            put_segments(out, one.partition, &one.segments, one.has_gap());
            return None;
        }
    };
    out.extend_from_slice(&length32(encoded_bytes(entry)).to_le_bytes());
    out.extend_from_slice(&[kind, 0, 0, 0]);
    match entry {
        Entry::Records(batch) => return Some(batch.bytes().clone()),
        Entry::TopicCreated(topic) => {
            out.extend_from_slice(&topic.incarnation.0.to_le_bytes());
            out.extend_from_slice(&topic.created_us.to_le_bytes());
            out.extend_from_slice(&topic.partitions.to_le_bytes());
            put_config(out, &topic.config);
            put_text(out, topic.name.as_str());
        }
        Entry::TopicChanged(topic) => {
            out.extend_from_slice(&topic.incarnation.0.to_le_bytes());
            out.extend_from_slice(&topic.partitions.to_le_bytes());
            put_config(out, &topic.config);
            put_text(out, topic.name.as_str());
        }
        Entry::TopicDeleted { incarnation, name } => {
            out.extend_from_slice(&incarnation.0.to_le_bytes());
            put_text(out, name.as_str());
        }
        Entry::GroupProgress(progress) => match bitmap_bytes(progress) {
            Some(bytes) => put_progress_bits(out, progress, bytes),
            None => put_progress(out, progress),
        },
        Entry::GroupDeleted { partition, group } => {
            put_partition(out, *partition);
            put_text(out, group.as_str());
        }
        Entry::LogMarks(marks) => {
            put_partition(out, marks.partition);
            out.extend_from_slice(&marks.log_start.0.to_le_bytes());
            out.extend_from_slice(&marks.log_end.0.to_le_bytes());
        }
        Entry::SetAside(partition) => put_partition(out, *partition),
        Entry::Clock(anchor) => {
            out.extend_from_slice(&anchor.age_ms.to_le_bytes());
            out.extend_from_slice(&anchor.unix_us.to_le_bytes());
        }
        Entry::PartitionAges(ages) => put_ages(out, ages),
        Entry::KnownMessages(known) => {
            put_partition(out, known.partition);
            out.extend_from_slice(&length32(known.messages.len()).to_le_bytes());
            for message in &known.messages {
                out.extend_from_slice(&message.id.name);
                out.extend_from_slice(&message.id.content.to_le_bytes());
                out.extend_from_slice(&message.offset.0.to_le_bytes());
                out.extend_from_slice(&message.time_us.to_le_bytes());
            }
        }
        Entry::PartitionSegments(_) => {}
    }
    None
}

/// A few ranges stay ranges: a person reads them more easily.
const BITMAP_RANGES_MIN: usize = 8;

/// Bytes of the acknowledged offsets as bits, one for each offset from the committed one to the end of the last range, if that is
/// less than the ranges take.
fn bitmap_bytes(progress: &GroupProgress) -> Option<usize> {
    let (_, end) = progress.acked.last()?;
    let bytes = usize::try_from(end.since(progress.committed).div_ceil(8)).ok()?;
    (progress.acked.len() >= BITMAP_RANGES_MIN && bytes < 16 * progress.acked.len() && progress.is_well_formed())
        .then_some(bytes)
}

fn put_progress_bits(out: &mut Vec<u8>, progress: &GroupProgress, bytes: usize) {
    put_partition(out, progress.partition);
    out.extend_from_slice(&progress.epoch.to_le_bytes());
    out.extend_from_slice(&progress.committed.0.to_le_bytes());
    out.extend_from_slice(&length32(bytes).to_le_bytes());
    out.extend_from_slice(&length32(progress.attempts.len()).to_le_bytes());
    let start = out.len();
    out.resize(start + bytes, 0);
    for (first, end) in &progress.acked {
        for offset in first.0..end.0 {
            let at = usize::try_from(offset - progress.committed.0).unwrap_or(usize::MAX);
            if let Some(byte) = out.get_mut(start + at / 8) {
                *byte |= 1 << (at % 8);
            }
        }
    }
    for (offset, attempts) in &progress.attempts {
        out.extend_from_slice(&offset.0.to_le_bytes());
        out.extend_from_slice(&attempts.to_le_bytes());
    }
    put_text(out, progress.group.as_str());
}

fn put_progress(out: &mut Vec<u8>, progress: &GroupProgress) {
    put_partition(out, progress.partition);
    out.extend_from_slice(&progress.epoch.to_le_bytes());
    out.extend_from_slice(&progress.committed.0.to_le_bytes());
    out.extend_from_slice(&length32(progress.acked.len()).to_le_bytes());
    out.extend_from_slice(&length32(progress.attempts.len()).to_le_bytes());
    for (first, end) in &progress.acked {
        out.extend_from_slice(&first.0.to_le_bytes());
        out.extend_from_slice(&end.0.to_le_bytes());
    }
    for (offset, attempts) in &progress.attempts {
        out.extend_from_slice(&offset.0.to_le_bytes());
        out.extend_from_slice(&attempts.to_le_bytes());
    }
    put_text(out, progress.group.as_str());
}

fn segments_bytes(segments: &[TopicSegment]) -> usize {
    let content: usize = segments.iter().map(TopicSegment::encoded_bytes).sum();
    ENTRY_FIXED_BYTES + PARTITION_BYTES + 4 + content
}

/// Appends an entry of these segments, so that a long list can be put into several. `has_gap` is that of the whole list.
pub(crate) fn put_segments(out: &mut Vec<u8>, partition: PartitionRef, segments: &[TopicSegment], has_gap: bool) {
    let kind = if has_gap { KIND_PARTITION_SEGMENTS_WITH_GAPS } else { KIND_PARTITION_SEGMENTS };
    out.extend_from_slice(&length32(segments_bytes(segments)).to_le_bytes());
    out.extend_from_slice(&[kind, 0, 0, 0]);
    put_partition(out, partition);
    out.extend_from_slice(&length32(segments.len()).to_le_bytes());
    for segment in segments {
        segment.put(out);
    }
}

fn put_ages(out: &mut Vec<u8>, ages: &PartitionAges) {
    put_partition(out, ages.partition);
    out.extend_from_slice(&ages.end.0.to_le_bytes());
    out.extend_from_slice(&ages.newest_ms.to_le_bytes());
    out.extend_from_slice(&length32(ages.samples.len()).to_le_bytes());
    for (offset, came_ms) in &ages.samples {
        out.extend_from_slice(&offset.0.to_le_bytes());
        out.extend_from_slice(&came_ms.to_le_bytes());
    }
}

fn put_partition(out: &mut Vec<u8>, partition: PartitionRef) {
    out.extend_from_slice(&partition.incarnation.0.to_le_bytes());
    out.extend_from_slice(&partition.partition.to_le_bytes());
}

/// Whether the short form of a configuration says all.
fn is_short(config: &TopicConfig) -> bool {
    config.retention.max_age_ms.is_none() && config.max_deliver.is_none() && config.dead_letter.is_none()
}

fn config_bytes(config: &TopicConfig) -> usize {
    let name = config.dead_letter.as_ref().map_or(0, |name| name.as_str().len());
    if is_short(config) { CONFIG_BYTES } else { CONFIG_BYTES + 8 + 4 + 2 + name }
}

pub(crate) fn put_config(out: &mut Vec<u8>, config: &TopicConfig) {
    let storage = match config.storage {
        Storage::Memory => 0,
        Storage::Wal => 1,
    };
    let form = u8::from(!is_short(config));
    out.extend_from_slice(&[storage, form, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&config.retention.max_messages.to_le_bytes());
    out.extend_from_slice(&config.retention.max_bytes.to_le_bytes());
    out.extend_from_slice(&config.ack_wait_ms.to_le_bytes());
    if !is_short(config) {
        out.extend_from_slice(&config.retention.max_age_ms.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&config.max_deliver.unwrap_or(0).to_le_bytes());
        put_text(out, config.dead_letter.as_ref().map_or("", |name| name.as_str()));
    }
}
