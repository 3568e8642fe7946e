//! Notices partitions whose offsets do not go on where they ended, and withholds what follows. Pure, on the opening core.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_model::{Incarnation, Offset, PartitionRef};

use crate::checkpoint::Checkpoint;
use crate::entry::Entry;
use crate::recovery::Finding;

/// What to do with an entry.
pub(super) enum Verdict {
    /// Give it to the caller.
    Replay,
    /// Keep it back, and say why the first time.
    Withhold(Option<Finding>),
}

/// Where each partition's records ended.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    topics: BTreeSet<Incarnation>,
    ends: BTreeMap<PartitionRef, Offset>,
    quarantined: BTreeSet<PartitionRef>,
    has_hole: bool,
}

impl Tracker {
    pub(super) fn new(checkpoint: Option<&Checkpoint>) -> Self {
        let mut tracker = Self::default();
        if let Some(checkpoint) = checkpoint {
            tracker.topics.extend(checkpoint.topics.iter().map(|topic| topic.incarnation));
            tracker.ends.extend(checkpoint.marks.iter().map(|marks| (marks.partition, marks.log_end)));
        }
        tracker
    }

    /// Batches are lost before what comes now.
    pub(super) fn hole(&mut self) {
        self.has_hole = true;
    }

    pub(super) fn admit(&mut self, entry: &Entry) -> Verdict {
        match entry {
            Entry::Records(batch) => self.admit_records(batch.partition(), batch.base(), batch.end()),
            Entry::TopicCreated(topic) => {
                self.topics.insert(topic.incarnation);
                Verdict::Replay
            }
            Entry::TopicDeleted { incarnation, .. } => {
                self.topics.remove(incarnation);
                let (first, last) = (partition(*incarnation, 0), partition(*incarnation, u32::MAX));
                let ended: Vec<_> = self.ends.range(first..=last).map(|(partition, _)| *partition).collect();
                for partition in ended {
                    self.ends.remove(&partition);
                }
                self.quarantined.retain(|partition| partition.incarnation != *incarnation);
                Verdict::Replay
            }
            Entry::GroupProgress(progress) => self.admit_proof(progress.partition, progress.log_end_min()),
            Entry::LogMarks(marks) => self.admit_proof(marks.partition, marks.log_end),
            Entry::GroupDeleted { .. }
            | Entry::TopicChanged(_)
            | Entry::PartitionSegments(_)
            | Entry::KnownMessages(_)
            | Entry::SetAside(_)
            | Entry::Clock(_)
            | Entry::PartitionAges(_) => match entry.partition() {
                Some(partition) if self.quarantined.contains(&partition) => Verdict::Withhold(None),
                _ => Verdict::Replay,
            },
        }
    }

    /// An entry that was written when the records of the partition reached `end`: should some of them be lost, what goes on there goes
    /// on all the same, and whoever puts the log together finds the gap.
    fn admit_proof(&mut self, partition: PartitionRef, end: Offset) -> Verdict {
        if self.quarantined.contains(&partition) {
            return Verdict::Withhold(None);
        }
        if self.topics.contains(&partition.incarnation) {
            let known_end = self.ends.entry(partition).or_default();
            *known_end = end.max(*known_end);
        }
        Verdict::Replay
    }

    fn admit_records(&mut self, partition: PartitionRef, base: Offset, end: Offset) -> Verdict {
        if self.quarantined.contains(&partition) {
            return Verdict::Withhold(None);
        }
        let is_known = self.topics.contains(&partition.incarnation);
        let awaited = match self.ends.get(&partition) {
            Some(end) => Some(*end),
            None if is_known => Some(Offset(0)),
            // A checkpoint may be ahead of the log and have forgotten a topic that is deleted further on.
            // Not all of its records need be here.
            None if !self.has_hole => return Verdict::Replay,
            None => None,
        };
        // Records may come again, when a small tail was copied to the log's head; they may not leave some out.
        if awaited.is_some_and(|awaited| base <= awaited) {
            let known_end = awaited.unwrap_or(end);
            self.ends.insert(partition, known_end.max(end));
            return Verdict::Replay;
        }
        self.quarantined.insert(partition);
        Verdict::Withhold(Some(Finding::Quarantined { partition, awaited, found: base }))
    }
}

fn partition(incarnation: Incarnation, partition: u32) -> PartitionRef {
    PartitionRef { incarnation, partition }
}
