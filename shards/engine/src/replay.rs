//! A shard made again from its checkpoint and its log. Decisions alone, on the thread that opens it.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use ringmain_model::{GroupName, Incarnation, Offset, PartitionRef};
use ringmain_wal::{
    Checkpoint, ClockAnchor, Entry, Finding, GroupProgress, KnownMessage, KnownMessages, LogMarks, PartitionAges,
    RecordBatch, TopicFile, TopicSegment,
};

use crate::ages::Ages;
use crate::group::Group;
use crate::opening::{OpeningReport, StorageSettings};
use crate::shard::Shard;

/// What is known while the log is being replayed. The order of records in the log is not the order of their offsets: a checkpoint
/// writes tails again.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    records: HashMap<PartitionRef, BTreeMap<Offset, RecordBatch>>,
    marks: HashMap<PartitionRef, LogMarks>,
    segments: HashMap<PartitionRef, Vec<TopicSegment>>,
    known: Vec<KnownMessages>,
    clock: Option<ClockAnchor>,
    /// When records came: base, end, milliseconds of the age clock, in the order of the log; and what the checkpoint knew.
    came: HashMap<PartitionRef, Vec<(Offset, Offset, u64)>>,
    ages: HashMap<PartitionRef, PartitionAges>,
    groups: HashMap<(PartitionRef, GroupName), GroupProgress>,
    /// Up to where a partition's records must have come, by what was logged of its groups, even of those that are gone.
    proven: HashMap<PartitionRef, Offset>,
    entries: u64,
    /// Which entry of the log a topic's life began with.
    births: HashMap<Incarnation, u64>,
    epoch_max: Option<u64>,
}

impl Shard {
    /// Takes what a checkpoint says.
    pub(crate) fn replay_checkpoint(&mut self, checkpoint: &Checkpoint, replay: &mut Replay) {
        for topic in &checkpoint.topics {
            self.insert_topic(topic);
        }
        replay.marks.extend(checkpoint.marks.iter().map(|marks| (marks.partition, *marks)));
        let segments = checkpoint.segments.iter();
        replay.segments.extend(segments.map(|one| (one.partition, one.segments.clone())));
        replay.clock = checkpoint.clock;
        replay.ages.extend(checkpoint.ages.iter().map(|ages| (ages.partition, ages.clone())));
        for partition in &checkpoint.set_aside {
            if let Some(topic) = self.partitions.get_mut(partition) {
                topic.is_set_aside = true;
            }
        }
        replay.known.clone_from(&checkpoint.known);
        for group in &checkpoint.groups {
            replay.note_group(group.clone());
        }
    }

    /// Takes the log's next entry.
    pub(crate) fn replay(&mut self, entry: Entry, replay: &mut Replay) {
        replay.entries += 1;
        match entry {
            Entry::Records(batch) => {
                replay.note_age(&batch);
                replay.note_records(&batch);
            }
            Entry::Clock(anchor) => replay.clock = Some(anchor),
            Entry::TopicCreated(topic) => {
                // One that the checkpoint knew keeps what it has, but a life of the same name that ended before may have taken the
                // name meanwhile.
                replay.births.insert(topic.incarnation, replay.entries);
                self.insert_topic(&topic);
            }
            Entry::TopicChanged(change) => {
                for partition in self.partitions_of(change.incarnation) {
                    if let Some(topic) = self.partitions.get_mut(&partition) {
                        topic.config = change.config.clone();
                    }
                }
            }
            Entry::TopicDeleted { incarnation, name } => {
                for partition in self.partitions_of(incarnation) {
                    self.partitions.remove(&partition);
                    replay.records.remove(&partition);
                }
                if self.names.get(&name) == Some(&incarnation) {
                    self.names.remove(&name);
                }
            }
            Entry::GroupProgress(progress) => replay.note_group(progress),
            Entry::GroupDeleted { partition, group } => {
                replay.groups.remove(&(partition, group));
            }
            Entry::LogMarks(marks) => {
                let known = replay.marks.entry(marks.partition).or_insert(marks);
                known.log_start = known.log_start.max(marks.log_start);
                known.log_end = known.log_end.max(marks.log_end);
            }
            Entry::PartitionSegments(_) | Entry::KnownMessages(_) | Entry::SetAside(_) | Entry::PartitionAges(_) => {}
        }
    }

    /// A partition whose records do not go on where they ended takes no more of them.
    pub(crate) fn set_aside(&mut self, finding: &Finding) {
        if let Finding::Quarantined { partition, .. } = finding
            && let Some(topic) = self.partitions.get_mut(partition)
        {
            topic.is_set_aside = true;
        }
    }

    /// A name is given again only after the topic's end was in the log. Where damage took that entry, several lives of one name are
    /// found: the last one has the name, those before have ended.
    fn end_outlived(&mut self, replay: &mut Replay, report: &mut OpeningReport) {
        let firsts = self.partitions_in_order().into_iter().filter(|(partition, _)| partition.partition == 0);
        let lives: Vec<_> =
            firsts.map(|(first, topic)| (first.incarnation, topic.created_us, topic.name.clone())).collect();
        self.names.clear();
        let mut created: HashMap<Incarnation, i64> = HashMap::new();
        for (incarnation, created_us, name) in lives {
            created.insert(incarnation, created_us);
            let Some(other) = self.names.insert(name.clone(), incarnation) else { continue };
            let births = (replay.births.get(&other), replay.births.get(&incarnation));
            let is_older = match births {
                (Some(other), Some(this)) => this < other,
                // A checkpoint may be ahead of the log, so that being in it says nothing.
                _ => (created_us, births.1) < (created.get(&other).copied().unwrap_or(i64::MIN), births.0),
            };
            let ended = if is_older { incarnation } else { other };
            if is_older {
                self.names.insert(name.clone(), other);
            }
            for partition in self.partitions_of(ended) {
                self.partitions.remove(&partition);
                replay.records.remove(&partition);
            }
            report.outlived.push(name);
        }
    }

    /// Remembers the messages that had names, in the order in which they came.
    fn restore_ids(&mut self, replay: &Replay) {
        let mut known: Vec<_> = replay
            .known
            .iter()
            .flat_map(|known| known.messages.iter().map(|message| (message.time_us, known.partition, *message)))
            .collect();
        for (partition, batches) in &replay.records {
            for record in batches.values().flat_map(RecordBatch::records) {
                let message = |id| KnownMessage { id, offset: record.offset, time_us: record.time_us };
                known.extend(record.id.map(|id| (record.time_us, *partition, message(id))));
            }
        }
        known.sort_unstable_by_key(|(time_us, partition, message)| (*time_us, *partition, message.offset));
        // A record that was written again stands in both.
        known.dedup_by_key(|(_, partition, message)| (*partition, message.offset));
        for (_, partition, message) in known {
            if self.partitions.contains_key(&partition) {
                self.ids.note(partition, &message.id, message.offset, message.time_us);
            }
        }
    }

    /// Everything was replayed: logs and groups are put together.
    pub(crate) fn replayed(
        &mut self,
        mut replay: Replay,
        storage: &StorageSettings,
        files: &BTreeSet<TopicFile>,
        report: &mut OpeningReport,
    ) {
        self.end_outlived(&mut replay, report);
        self.restore_ids(&replay);
        let order: Vec<_> = self.partitions_in_order().into_iter().map(|(partition, _)| partition).collect();
        for partition in order {
            let Some(topic) = self.partitions.get_mut(&partition) else { continue };
            let records = replay.records.remove(&partition).unwrap_or_default();
            let marks = replay.marks.get(&partition);
            let found_end = records.values().map(RecordBatch::end).max().unwrap_or_default();
            // Groups may know of records that damage has taken: their offsets were given out and are not given out again.
            let proven_end = replay.proven.get(&partition).copied().unwrap_or_default();
            let log_end = marks.map_or(found_end, |marks| marks.log_end.max(found_end)).max(proven_end);
            let log_start = marks.map_or(Offset(0), |marks| marks.log_start).min(log_end);
            let segments = replay.segments.remove(&partition).unwrap_or_default();
            let missing: Vec<_> = segments
                .iter()
                .filter(|segment| !files.contains(&TopicFile { partition, base: segment.base }))
                .map(|segment| (segment.base, segment.end))
                .collect();
            topic.log.restore(log_start, log_end, segments, records.into_values(), &mut self.bytes);
            let lost = topic.log.lost_ranges();
            report.lost.extend(lost.map(|(from, end)| (topic.name.clone(), from, end)));
            for (base, end) in missing {
                topic.log.lose(base, end);
                // Should it be the last one, what comes goes on in a new file.
                topic.log.give_up_segment(base);
                report.missing.push((topic.name.clone(), TopicFile { partition, base }, base, end));
            }
            if let Some(max_age_ms) = topic.config.retention.max_age_ms {
                topic.log.ages = Some(Box::new(replay.ages_of(partition, log_start, log_end, max_age_ms)));
            }
            // How old they are is known when the clock runs; and what one of several partitions is to keep is known when all
            // shards are open.
            if topic.partitions == 1 {
                topic.log.retain(&topic.config.retention, 0, storage.topic_segments_max, &mut self.bytes);
            }
            report.records += log_end.since(topic.log.log_start().offset());
        }
        if let Some(anchor) = replay.clock {
            self.clock.restore(anchor);
        }
        for partition in self.partitions.keys().copied().collect::<Vec<_>>() {
            self.schedule_age(partition);
        }
        for ((partition, name), progress) in replay.groups {
            let Some(topic) = self.partitions.get_mut(&partition) else { continue };
            let mut group = Group::restored(&progress, &topic.config).in_partition(partition);
            group.evict(topic.log.log_start().offset());
            if group.has_dying() {
                // It needs no member to go on.
                group.scheduled_ms = Some(0);
                self.due_groups.insert((0, partition, name.clone()));
            }
            topic.groups.insert(name, group);
            report.groups += 1;
        }
        self.next_epoch = replay.epoch_max.map_or(0, |epoch| epoch + 1);
        report.entries = replay.entries;
        report.topics = self.names.len() as u64;
    }
}

impl Replay {
    /// Notes when a batch came, by the clock as the log knew it then. Without one nobody keeps messages for a time.
    fn note_age(&mut self, batch: &RecordBatch) {
        if let Some(anchor) = self.clock {
            let since_ms = batch.base_time_us().saturating_sub(anchor.unix_us).max(0) / 1000;
            let age_ms = anchor.age_ms.saturating_add(u64::try_from(since_ms).unwrap_or(0));
            self.came.entry(batch.partition()).or_default().push((batch.base(), batch.end(), age_ms));
        }
    }

    /// When the records of a partition came. What was written again is known from the checkpoint, or from its first time.
    fn ages_of(&self, partition: PartitionRef, log_start: Offset, log_end: Offset, max_age_ms: u64) -> Ages {
        let known = self.ages.get(&partition);
        let mut ages = known.map_or_else(Ages::default, |known| Ages {
            samples: known.samples.iter().copied().collect(),
            newest_ms: known.newest_ms,
            end: known.end,
        });
        for (base, end, age_ms) in self.came.get(&partition).into_iter().flatten() {
            ages.note(*base, *end, *age_ms, max_age_ms);
        }
        // What nobody noted counts from the last moment that is known.
        ages.note(log_start.max(ages.end), log_end, self.clock.map_or(0, |clock| clock.age_ms), max_age_ms);
        ages
    }

    fn note_records(&mut self, batch: &RecordBatch) {
        // In memory of its own: what was read with it shall not stay as long as this one record.
        let found = self.records.entry(batch.partition()).or_default();
        found.entry(batch.base()).or_insert_with(|| batch.copied());
    }

    fn note_group(&mut self, progress: GroupProgress) {
        self.epoch_max = self.epoch_max.max(Some(progress.epoch));
        let proven = self.proven.entry(progress.partition).or_default();
        *proven = progress.log_end_min().max(*proven);
        self.groups.insert((progress.partition, progress.group.clone()), progress);
    }
}
