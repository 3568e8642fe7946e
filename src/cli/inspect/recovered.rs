//! What a start would have in its hands after the replay, counted and not kept; on the main thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ringmain_model::{GroupName, Incarnation, PartitionRef};
use ringmain_wal::{Checkpoint, Entry, LogMarks};
use serde::Serialize;

/// A partition's records.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// The offset after the last record.
    end: u64,
    from_checkpoint: u64,
    from_log: u64,
}

/// Topics and groups, and how many records each partition has.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    topics: BTreeMap<Incarnation, (String, u32)>,
    held: BTreeMap<PartitionRef, Held>,
    groups: BTreeSet<(PartitionRef, GroupName)>,
    deleted: BTreeSet<Incarnation>,
}

impl From<Option<&Checkpoint>> for Recovered {
    fn from(checkpoint: Option<&Checkpoint>) -> Self {
        let mut recovered = Self::default();
        if let Some(checkpoint) = checkpoint {
            for topic in &checkpoint.topics {
                recovered.topics.insert(topic.incarnation, (topic.name.as_str().to_owned(), topic.partitions));
            }
            checkpoint.marks.iter().for_each(|marks| recovered.mark(marks));
            let groups = checkpoint.groups.iter();
            recovered.groups.extend(groups.map(|group| (group.partition, group.group.clone())));
        }
        recovered
    }
}

impl Recovered {
    /// Takes an entry that the opener replays.
    pub(super) fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Records(batch) => {
                let held = self.held.entry(batch.partition()).or_default();
                // Records of small tails are written again at the log's head: these count once.
                let fresh = batch.records().filter(|record| record.offset.0 >= held.end);
                let (mut count, mut end) = (0, held.end);
                for record in fresh {
                    (count, end) = (count + 1, record.offset.0.saturating_add(1));
                }
                (held.from_log, held.end) = (held.from_log + count, end);
            }
            Entry::TopicCreated(topic) => {
                self.topics.insert(topic.incarnation, (topic.name.as_str().to_owned(), topic.partitions));
            }
            Entry::TopicChanged(topic) => {
                self.topics.insert(topic.incarnation, (topic.name.as_str().to_owned(), topic.partitions));
            }
            Entry::TopicDeleted { incarnation, .. } => {
                self.topics.remove(incarnation);
                self.deleted.insert(*incarnation);
                self.held.retain(|partition, _| partition.incarnation != *incarnation);
                self.groups.retain(|(partition, _)| partition.incarnation != *incarnation);
            }
            Entry::GroupProgress(progress) => {
                self.groups.insert((progress.partition, progress.group.clone()));
            }
            Entry::GroupDeleted { partition, group } => {
                self.groups.remove(&(*partition, group.clone()));
            }
            // What was there before retention passed it counts as found; the rest stands in checkpoints only.
            Entry::LogMarks(_)
            | Entry::PartitionSegments(_)
            | Entry::KnownMessages(_)
            | Entry::SetAside(_)
            | Entry::Clock(_)
            | Entry::PartitionAges(_) => {}
        }
    }

    fn mark(&mut self, marks: &LogMarks) {
        let from_checkpoint = marks.log_end.0.saturating_sub(marks.log_start.0);
        self.held.insert(marks.partition, Held { end: marks.log_end.0, from_checkpoint, from_log: 0 });
    }

    /// Whether the log deletes the topic of a partition.
    pub(super) fn has_deleted(&self, partition: PartitionRef) -> bool {
        self.deleted.contains(&partition.incarnation)
    }

    pub(super) fn topics(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn partitions(&self) -> usize {
        self.topics.values().map(|(_, partitions)| usize::try_from(*partitions).unwrap_or(usize::MAX)).sum()
    }

    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// From the log, and from before it.
    pub(super) fn records(&self) -> (u64, u64) {
        let add = |sum: (u64, u64), held: &Held| (sum.0 + held.from_log, sum.1.saturating_add(held.from_checkpoint));
        self.held.values().fold((0, 0), add)
    }

    pub(super) fn list(&self) -> Vec<TopicView> {
        let view = |(incarnation, (name, partitions)): (&Incarnation, &(String, u32))| {
            let of = |partition| PartitionRef { incarnation: *incarnation, partition };
            let (mut from_log, mut from_checkpoint) = (0_u64, 0_u64);
            for (_, held) in self.held.range(of(0)..=of(u32::MAX)) {
                from_log += held.from_log;
                from_checkpoint = from_checkpoint.saturating_add(held.from_checkpoint);
            }
            TopicView {
                incarnation: incarnation.to_string(),
                topic: name.clone(),
                partitions: *partitions,
                records_from_log: from_log,
                records_from_checkpoint: from_checkpoint,
            }
        };
        self.topics.iter().map(view).collect()
    }
}

/// A topic that a start would have.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TopicView {
    incarnation: String,
    topic: String,
    partitions: u32,
    records_from_log: u64,
    records_from_checkpoint: u64,
}

impl fmt::Display for TopicView {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { incarnation, topic, partitions, records_from_log, records_from_checkpoint } = self;
        write!(
            to,
            "topic {incarnation} {topic:?}, partitions {partitions}, records {records_from_log} from the log and \
             {records_from_checkpoint} before it"
        )
    }
}
