//! Which topics there are and on which shard: every core's own copy, changed only by the owners' announcements.

use std::collections::BTreeSet;
use std::ops::Bound;

use hashbrown::HashMap;
use ringmain_engine::PlacementChange;
use ringmain_model::limit::REPORTED_PARTITIONS_MAX;
use ringmain_model::{Incarnation, PartitionRef, Refusal, RefusalKind, ShardId, TopicName};

use crate::report::NameRange;

/// What one core knows of a topic.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) incarnation: Incarnation,
    /// The shard of its first partition.
    pub(crate) shard: ShardId,
    pub(crate) partitions: u32,
    /// Messages that this core's connections took, of subscriptions that have ended; those of running ones stand in the window.
    pub(crate) delivered: [u64; 2],
    /// Messages that readers who followed were made to miss, likewise.
    pub(crate) dropped: u64,
}

impl Placed {
    /// One of the topic's partitions.
    ///
    /// # Errors
    /// A refusal that says how many there are.
    pub(crate) fn partition(&self, number: u32) -> Result<PartitionRef, Refusal> {
        if number >= self.partitions {
            let message = match self.partitions {
                1 => format!("there is no partition {number}: the topic has one, 0"),
                count => format!("there is no partition {number}: the topic has {count}, from 0 to {}", count - 1),
            };
            return Err(Refusal::new(RefusalKind::InvalidRequest, message));
        }
        Ok(PartitionRef { incarnation: self.incarnation, partition: number })
    }
}

/// The placement table of one core.
#[derive(Default, Debug)]
pub(crate) struct PlacementTable {
    topics: HashMap<TopicName, Placed>,
    /// The same names in order, for lists that are made a part at a time.
    names: BTreeSet<TopicName>,
}

impl PlacementTable {
    /// Applies what an owner announced. The changes of one owner come in its order.
    pub(crate) fn apply(&mut self, change: PlacementChange) {
        match change {
            PlacementChange::Add { name, incarnation, shard, partitions } => {
                self.names.insert(name.clone());
                self.topics.insert(name, Placed { incarnation, shard, partitions, delivered: [0; 2], dropped: 0 });
            }
            PlacementChange::Remove { name, incarnation } => {
                if self.topics.get(&name).is_some_and(|placed| placed.incarnation == incarnation) {
                    self.topics.remove(&name);
                    self.names.remove(&name);
                }
            }
        }
    }

    pub(crate) fn find(&self, name: &TopicName) -> Option<&Placed> {
        self.topics.get(name)
    }

    /// Adds to a topic's delivered and dropped messages, if it is still the same life.
    pub(crate) fn add_counts(&mut self, name: &TopicName, incarnation: Incarnation, delivered: [u64; 2], dropped: u64) {
        if let Some(placed) = self.topics.get_mut(name)
            && placed.incarnation == incarnation
        {
            for (sum, messages) in placed.delivered.iter_mut().zip(delivered) {
                *sum += messages;
            }
            placed.dropped += dropped;
        }
    }

    /// How many topics there are.
    pub(crate) fn count(&self) -> u64 {
        self.topics.len() as u64
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TopicName, &Placed)> {
        self.topics.iter()
    }

    /// What follows `after` and is reported at one time: at most `topics_max` topics, and not more partitions than one turn
    /// bears, but for the last topic's.
    pub(crate) fn page(&self, after: Option<Box<str>>, topics_max: usize) -> NameRange {
        let (mut partitions, mut until) = (0, None);
        let mut following = self.follow(after.as_deref(), None);
        for (name, placed) in following.by_ref().take(topics_max.max(1)) {
            partitions += placed.partitions;
            until = Some(name);
            if partitions >= REPORTED_PARTITIONS_MAX {
                break;
            }
        }
        let until = until.filter(|_| following.next().is_some()).cloned();
        drop(following);
        NameRange { after, until }
    }

    /// The topics of a range, by name.
    pub(crate) fn range(&self, names: &NameRange) -> impl Iterator<Item = (&TopicName, &Placed)> {
        self.follow(names.after.as_deref(), names.until.as_ref())
    }

    fn follow(&self, after: Option<&str>, until: Option<&TopicName>) -> impl Iterator<Item = (&TopicName, &Placed)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let until = until.cloned();
        let names = self.names.range::<str, _>((from, Bound::Unbounded));
        let names = names.take_while(move |name| until.as_ref().is_none_or(|last| *name <= last));
        names.filter_map(|name| Some((name, self.topics.get(name)?)))
    }
}
