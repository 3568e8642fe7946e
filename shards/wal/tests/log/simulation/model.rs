//! What a simulated log was given and has promised, kept in memory that never fails.

use std::collections::BTreeMap;

use ringmain_model::{Incarnation, Offset, TopicName};
use ringmain_wal::{Checkpoint, Entry, GroupProgress, LogMarks, LogPosition, Sequence, TopicCreated};

use crate::chance::Chance;
use crate::stage::{bare_checkpoint, created, partition, progress, records};

const TOPICS: u64 = 3;

/// All that was admitted since the log began, in order, as far as the last start found it.
pub struct Model {
    history: Vec<(Sequence, Entry)>,
    /// How things stand after all of it.
    now: Standing,
    durable: Sequence,
    next_life: u64,
}

/// How things stand after some entries.
#[derive(Default)]
struct Standing {
    topics: BTreeMap<u64, TopicCreated>,
    ends: BTreeMap<u64, u64>,
    groups: BTreeMap<u64, GroupProgress>,
}

impl Standing {
    fn of<'e>(entries: impl Iterator<Item = &'e Entry>) -> Self {
        let mut standing = Self::default();
        entries.for_each(|entry| standing.add(entry));
        standing
    }

    fn add(&mut self, entry: &Entry) {
        match entry {
            Entry::TopicCreated(topic) => {
                self.topics.insert(topic.incarnation.0, topic.clone());
                self.ends.insert(topic.incarnation.0, 0);
            }
            Entry::TopicDeleted { incarnation: Incarnation(life), .. } => {
                self.topics.remove(life);
                self.ends.remove(life);
                self.groups.remove(life);
            }
            Entry::Records(batch) => {
                self.ends.insert(batch.partition().incarnation.0, batch.end().0);
            }
            Entry::GroupProgress(progress) => {
                self.groups.insert(progress.partition.incarnation.0, progress.clone());
            }
            _ => {}
        }
    }
}

impl Model {
    pub fn new() -> Self {
        Self { history: Vec::new(), now: Standing::default(), durable: Sequence(0), next_life: 1 }
    }

    pub fn next_entry(&mut self, chance: &mut Chance) -> Entry {
        let standing = &self.now;
        let lives: Vec<_> = standing.ends.keys().copied().collect();
        if (lives.len() as u64) < TOPICS {
            self.next_life += 1;
            return created(self.next_life);
        }
        let life = lives[chance.below(lives.len() as u64) as usize];
        let end = standing.ends[&life];
        match chance.below(20) {
            0 => Entry::TopicDeleted {
                incarnation: Incarnation(life),
                name: TopicName::new(&format!("topic-{life}")).unwrap(),
            },
            1..5 => progress(life, end),
            _ => records(life, end, 1 + chance.below(3), chance.below(2500) as usize),
        }
    }

    pub fn admitted(&mut self, sequence: Sequence, entry: Entry) {
        self.now.add(&entry);
        self.history.push((sequence, entry));
    }

    pub fn last(&self) -> Option<Sequence> {
        self.history.last().map(|(sequence, _)| *sequence)
    }

    pub fn is_durable(&self, sequence: Sequence) -> bool {
        sequence <= self.durable
    }

    pub fn durable(&mut self, sequence: Sequence) -> Result<(), String> {
        if sequence != self.durable.next() {
            return Err(format!("batch {sequence} was reported durable after {}", self.durable));
        }
        self.durable = sequence;
        Ok(())
    }

    pub fn checkpoint(&self, position: LogPosition) -> Checkpoint {
        let before = self.history.iter().filter(|(sequence, _)| *sequence < position.next);
        let standing = Standing::of(before.map(|(_, entry)| entry));
        let marks = standing.ends.iter().map(|(life, end)| LogMarks {
            partition: partition(*life),
            log_start: Offset(0),
            log_end: Offset(*end),
        });
        Checkpoint {
            marks: marks.collect(),
            topics: standing.topics.into_values().collect(),
            groups: standing.groups.into_values().collect(),
            ..bare_checkpoint(position)
        }
    }

    pub fn check_checkpoint(&self, found: &Checkpoint) -> Result<(), String> {
        if self.checkpoint(found.position) == *found { Ok(()) } else { Err("a checkpoint was changed".to_owned()) }
    }

    /// A start replayed `replayed` from the sequence `from` on and goes on at `end`. What it did not find is forgotten, if it may be.
    pub fn recovered(
        &mut self,
        from: Sequence,
        replayed: &[(Sequence, Entry)],
        end: LogPosition,
    ) -> Result<(), String> {
        if end.next <= self.durable {
            return Err(format!("batch {} was durable and the log ends before {}", self.durable, end.next));
        }
        let counts = |sequence: Sequence| from <= sequence && sequence < end.next;
        let expected: Vec<_> = self.history.iter().filter(|(sequence, _)| counts(*sequence)).collect();
        if expected.len() != replayed.len() || expected.iter().zip(replayed).any(|(one, other)| **one != *other) {
            return Err(format!("{} entries were replayed of {}, or some are changed", replayed.len(), expected.len()));
        }
        self.history.retain(|(sequence, _)| *sequence < end.next);
        self.now = Standing::of(self.history.iter().map(|(_, entry)| entry));
        self.durable = Sequence(end.next.0 - 1);
        Ok(())
    }
}
