//! Bytes to entries; the bytes may be anything. Pure, on the core that opens the log.

use bytes::Bytes;
use ringmain_model::{
    GroupName, Incarnation, MessageId, Offset, PartitionRef, Retention, Storage, TopicConfig, TopicName,
};

use crate::batch::{Damage, RecordBatch};
use crate::entry::{
    ClockAnchor, ENTRY_FIXED_BYTES, Entry, EntryDamage, GroupProgress, KIND_CLOCK, KIND_GROUP_DELETED,
    KIND_GROUP_PROGRESS, KIND_GROUP_PROGRESS_BITS, KIND_KNOWN_MESSAGES, KIND_LOG_MARKS, KIND_PARTITION_AGES,
    KIND_PARTITION_SEGMENTS, KIND_PARTITION_SEGMENTS_WITH_GAPS, KIND_RECORDS, KIND_SET_ASIDE, KIND_TOPIC_CHANGED,
    KIND_TOPIC_CREATED, KIND_TOPIC_DELETED, KNOWN_MESSAGE_BYTES, KnownMessage, KnownMessages, LogMarks, PartitionAges,
    TopicChanged, TopicCreated,
};
use crate::fields::Fields;
use crate::topic::{PartitionSegments, SEGMENT_FIXED_BYTES, TopicSegment};

/// The entry at the start of `bytes`, and how many bytes it takes. The checksum around it has been checked, so bytes that
/// do not fit are damage and never "not yet".
pub(crate) fn decode(bytes: &Bytes) -> Result<(Entry, usize), EntryDamage> {
    let malformed = EntryDamage::Malformed;
    let mut fixed = Fields::of(bytes);
    let length = fixed.u32().and_then(|length| usize::try_from(length).ok()).ok_or(malformed)?;
    let kind = fixed.u8().ok_or(malformed)?;
    fixed.zeros(3).ok_or(malformed)?;
    if length < ENTRY_FIXED_BYTES || length > bytes.len() {
        return Err(malformed);
    }
    let content = bytes.slice(ENTRY_FIXED_BYTES..length);
    let mut fields = Fields::of(&content);
    let entry = match kind {
        KIND_RECORDS => return records(&content).map(|batch| (Entry::Records(batch), length)),
        KIND_TOPIC_CREATED => topic_created(&mut fields).map(Entry::TopicCreated),
        KIND_TOPIC_CHANGED => topic_changed(&mut fields).map(Entry::TopicChanged),
        KIND_TOPIC_DELETED => topic_deleted(&mut fields),
        KIND_GROUP_PROGRESS => progress(&mut fields).map(Entry::GroupProgress),
        KIND_GROUP_PROGRESS_BITS => progress_bits(&mut fields).map(Entry::GroupProgress),
        KIND_GROUP_DELETED => group_deleted(&mut fields),
        KIND_LOG_MARKS => log_marks(&mut fields).map(Entry::LogMarks),
        KIND_SET_ASIDE => partition(&mut fields).map(Entry::SetAside),
        KIND_CLOCK => clock(&mut fields).map(Entry::Clock),
        KIND_PARTITION_AGES => ages(&mut fields).map(Entry::PartitionAges),
        KIND_KNOWN_MESSAGES => known_messages(&mut fields).map(Entry::KnownMessages),
        KIND_PARTITION_SEGMENTS => {
            segments(&mut fields).filter(|segments| !segments.has_gap()).map(Entry::PartitionSegments)
        }
        KIND_PARTITION_SEGMENTS_WITH_GAPS => segments(&mut fields).map(Entry::PartitionSegments),
        _ => return Err(EntryDamage::Newer),
    };
    entry.filter(|_| fields.is_empty()).map(|entry| (entry, length)).ok_or(malformed)
}

fn records(content: &Bytes) -> Result<RecordBatch, EntryDamage> {
    match RecordBatch::decode(content) {
        Ok(Some((batch, length))) if length == content.len() => Ok(batch),
        Err(Damage::Version(_)) => Err(EntryDamage::Newer),
        _ => Err(EntryDamage::Malformed),
    }
}

fn topic_created(fields: &mut Fields<'_>) -> Option<TopicCreated> {
    let incarnation = Incarnation(fields.u64()?);
    let created_us = fields.i64()?;
    let partitions = fields.u32().filter(|partitions| *partitions > 0)?;
    let config = config(fields)?;
    Some(TopicCreated { incarnation, name: topic_name(fields)?, created_us, partitions, config })
}

fn topic_changed(fields: &mut Fields<'_>) -> Option<TopicChanged> {
    let incarnation = Incarnation(fields.u64()?);
    let partitions = fields.u32().filter(|partitions| *partitions > 0)?;
    let config = config(fields)?;
    Some(TopicChanged { incarnation, name: topic_name(fields)?, partitions, config })
}

fn topic_deleted(fields: &mut Fields<'_>) -> Option<Entry> {
    Some(Entry::TopicDeleted { incarnation: Incarnation(fields.u64()?), name: topic_name(fields)? })
}

fn progress(fields: &mut Fields<'_>) -> Option<GroupProgress> {
    let partition = partition(fields)?;
    let epoch = fields.u64()?;
    let committed = Offset(fields.u64()?);
    let ranges = usize::try_from(fields.u32()?).ok()?;
    let attempt_count = usize::try_from(fields.u32()?).ok()?;
    // A count that cannot fit must not make us set memory aside.
    if ranges > fields.left() / 16 || attempt_count > fields.left() / 12 {
        return None;
    }
    let mut acked = Vec::with_capacity(ranges);
    for _ in 0..ranges {
        acked.push((Offset(fields.u64()?), Offset(fields.u64()?)));
    }
    let mut attempts = Vec::with_capacity(attempt_count);
    for _ in 0..attempt_count {
        attempts.push((Offset(fields.u64()?), fields.u32()?));
    }
    let group = group_name(fields)?;
    let progress = GroupProgress { partition, group, epoch, committed, acked, attempts };
    progress.is_well_formed().then_some(progress)
}

/// Progress whose acknowledged offsets are bits: a 1 for each, from the committed offset on, which has a 0.
fn progress_bits(fields: &mut Fields<'_>) -> Option<GroupProgress> {
    let (partition, epoch, committed) = (partition(fields)?, fields.u64()?, Offset(fields.u64()?));
    let bitmap_bytes = usize::try_from(fields.u32()?).ok()?;
    let attempt_count = usize::try_from(fields.u32()?).ok()?;
    let bits = fields.take(bitmap_bytes)?;
    let mut acked: Vec<(Offset, Offset)> = Vec::new();
    for at in (0..bits.len() * 8).filter(|at| bits[at / 8] & 1 << (at % 8) != 0) {
        let offset = Offset(committed.0.checked_add(at as u64)?);
        match acked.last_mut() {
            Some((_, end)) if *end == offset => *end = offset.plus(1),
            _ => acked.push((offset, offset.plus(1))),
        }
    }
    if attempt_count > fields.left() / 12 {
        return None;
    }
    let mut attempts = Vec::with_capacity(attempt_count);
    for _ in 0..attempt_count {
        attempts.push((Offset(fields.u64()?), fields.u32()?));
    }
    let progress = GroupProgress { partition, group: group_name(fields)?, epoch, committed, acked, attempts };
    progress.is_well_formed().then_some(progress)
}

fn group_deleted(fields: &mut Fields<'_>) -> Option<Entry> {
    Some(Entry::GroupDeleted { partition: partition(fields)?, group: group_name(fields)? })
}

fn log_marks(fields: &mut Fields<'_>) -> Option<LogMarks> {
    let partition = partition(fields)?;
    let (log_start, log_end) = (Offset(fields.u64()?), Offset(fields.u64()?));
    (log_start <= log_end).then_some(LogMarks { partition, log_start, log_end })
}

fn segments(fields: &mut Fields<'_>) -> Option<PartitionSegments> {
    let partition = partition(fields)?;
    let count = usize::try_from(fields.u32()?).ok().filter(|count| *count <= fields.left() / SEGMENT_FIXED_BYTES)?;
    let mut segments = Vec::with_capacity(count);
    for _ in 0..count {
        segments.push(TopicSegment::take(fields)?);
    }
    let segments = PartitionSegments { partition, segments };
    segments.is_well_formed().then_some(segments)
}

fn partition(fields: &mut Fields<'_>) -> Option<PartitionRef> {
    Some(PartitionRef { incarnation: Incarnation(fields.u64()?), partition: fields.u32()? })
}

pub(crate) fn config(fields: &mut Fields<'_>) -> Option<TopicConfig> {
    let storage = match fields.u8()? {
        0 => Storage::Memory,
        1 => Storage::Wal,
        _ => return None,
    };
    let form = fields.u8().filter(|form| *form <= 1)?;
    fields.zeros(6)?;
    let (max_messages, max_bytes, ack_wait_ms) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let mut retention = Retention { max_messages, max_bytes, max_age_ms: None };
    let (mut max_deliver, mut dead_letter) = (None, None);
    if form == 1 {
        retention.max_age_ms = Some(fields.u64()?).filter(|age| *age > 0);
        max_deliver = Some(fields.u32()?).filter(|times| *times > 0);
        dead_letter = match fields.text()? {
            "" => None,
            name => Some(TopicName::new(name).ok()?),
        };
    }
    Some(TopicConfig { storage, retention, ack_wait_ms, max_deliver, dead_letter })
}

fn clock(fields: &mut Fields<'_>) -> Option<ClockAnchor> {
    Some(ClockAnchor { age_ms: fields.u64()?, unix_us: fields.i64()? })
}

fn ages(fields: &mut Fields<'_>) -> Option<PartitionAges> {
    let (partition, end, newest_ms) = (partition(fields)?, Offset(fields.u64()?), fields.u64()?);
    let count = usize::try_from(fields.u32()?).ok().filter(|count| *count <= fields.left() / 16)?;
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        samples.push((Offset(fields.u64()?), fields.u64()?));
    }
    let ages = PartitionAges { partition, end, newest_ms, samples };
    ages.is_well_formed().then_some(ages)
}

fn known_messages(fields: &mut Fields<'_>) -> Option<KnownMessages> {
    let partition = partition(fields)?;
    let count = usize::try_from(fields.u32()?).ok().filter(|count| *count <= fields.left() / KNOWN_MESSAGE_BYTES)?;
    let mut messages = Vec::with_capacity(count);
    for _ in 0..count {
        let id = MessageId { name: fields.array()?, content: fields.u64()? };
        messages.push(KnownMessage { id, offset: Offset(fields.u64()?), time_us: fields.i64()? });
    }
    let known = KnownMessages { partition, messages };
    known.is_well_formed().then_some(known)
}

fn topic_name(fields: &mut Fields<'_>) -> Option<TopicName> {
    TopicName::new(fields.text()?).ok()
}

fn group_name(fields: &mut Fields<'_>) -> Option<GroupName> {
    GroupName::new(fields.text()?).ok()
}
