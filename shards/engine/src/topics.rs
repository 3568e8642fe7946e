//! Topics come, are told of, and go; every core hears of it before the asker does. On the core that owns the shard.

use std::collections::BTreeMap;

use ringmain_model::limit::{PARTITIONS_PER_TOPIC_MAX, TOPICS_PER_SHARD_MAX};
use ringmain_model::{
    GroupName, Incarnation, PartitionRef, Refusal, RefusalKind, ShardId, Storage, TopicConfig, TopicName, TopicPatch,
};
use ringmain_wal::{Entry, TopicChanged, TopicCreated};

use crate::ages::Ages;
use crate::command::{Effect, Origin, PlacementChange, Reply, TopicStats};
use crate::group::Group;
use crate::group_command::GroupStats;
use crate::log::PartitionLog;
use crate::shard::Shard;
use crate::shard_log::Awaiting;

/// One partition of one life of a topic.
#[derive(Debug)]
pub(crate) struct Partition {
    /// The topic's name.
    pub(crate) name: TopicName,
    /// How many partitions the topic has.
    pub(crate) partitions: u32,
    pub(crate) config: TopicConfig,
    pub(crate) created_us: i64,
    pub(crate) log: PartitionLog,
    /// In order, so that what they do together is the same in each run of a seed.
    pub(crate) groups: BTreeMap<GroupName, Group>,
    /// Messages that its groups lost to retention, deleted groups included.
    pub(crate) lost: u64,
    /// Other shards make their parts of the topic: it is not there yet, and may never be.
    pub(crate) is_beginning: bool,
    /// Its delete is in the log and not durable yet: nobody reaches it any more.
    pub(crate) is_ending: bool,
    /// Damage took records before its last ones, so that nobody knows which offsets are free: it is read only.
    pub(crate) is_set_aside: bool,
    /// Its entry in the shard's list of times at which messages are too old.
    pub(crate) age_due_ms: Option<u64>,
}

impl Partition {
    /// Whether its records live in the shard's log.
    pub(crate) fn is_logged(&self) -> bool {
        self.config.storage == Storage::Wal
    }

    /// Members that count here: one is a member in all partitions of the topic, and counts in the first.
    fn members_counted(&self, partition: PartitionRef) -> u64 {
        let groups = self.groups.values().filter(|_| partition.partition == 0);
        groups.map(|group| group.member_count() as u64).sum()
    }

    /// How its groups stand, by name.
    pub(crate) fn group_stats(&self) -> Vec<GroupStats> {
        let high_water = self.log.high_water().offset();
        self.groups.values().map(|group| group.stats(high_water)).collect()
    }
}

/// A topic whose end is decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) incarnation: Incarnation,
    pub(crate) name: TopicName,
    pub(crate) partitions: u32,
}

/// A placement change on its way to the cores, and whom to answer once all have applied it.
#[derive(Debug)]
pub(crate) struct Announcement {
    cores_left: u16,
    origin: Origin,
    reply: Reply,
}

impl Shard {
    /// Makes a topic: of several partitions, the other shards make theirs first, so that what the log has was whole.
    pub(crate) fn create(&mut self, origin: Origin, born: TopicCreated, effects: &mut Vec<Effect>) {
        if let Err(refusal) = self.check_birth(&born) {
            effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) });
            return;
        }
        self.insert_topic(&born);
        let others = self.other_shards(&born.name, born.partitions);
        if others.is_empty() {
            return self.commit_birth(origin, &born, effects);
        }
        self.set_beginning(born.incarnation, true);
        self.order_birth(origin, born, others, effects);
    }

    fn check_birth(&self, born: &TopicCreated) -> Result<(), Refusal> {
        if self.names.contains_key(&born.name) {
            return Err(Refusal::new(
                RefusalKind::TopicExists,
                format!("the topic `{}` is there already: use it, or delete it first", born.name),
            ));
        }
        let invalid = |message| Refusal::new(RefusalKind::InvalidConfig, message);
        born.config.check().map_err(invalid)?;
        if !(1..=PARTITIONS_PER_TOPIC_MAX).contains(&born.partitions) {
            let message = format!("partitions is {}: choose 1 to {PARTITIONS_PER_TOPIC_MAX}", born.partitions);
            return Err(invalid(message));
        }
        self.check_room(born)
    }

    /// Whether this shard has room for its part of a topic.
    pub(crate) fn check_room(&self, born: &TopicCreated) -> Result<(), Refusal> {
        if self.partitions.len() + self.numbers_here(&born.name, born.partitions).len() > TOPICS_PER_SHARD_MAX {
            return Err(Refusal::busy("this shard holds as many topics as it may; delete some"));
        }
        if !self.partitions_of(born.incarnation).is_empty() {
            // Two of 2^64 random numbers met; another draw will do.
            return Err(Refusal::busy("this topic's random number is taken"));
        }
        Ok(())
    }

    /// All partitions are there: the topic's life begins when its own shard has that in its log.
    pub(crate) fn commit_birth(&mut self, origin: Origin, born: &TopicCreated, effects: &mut Vec<Effect>) {
        let incarnation = born.incarnation;
        self.set_beginning(incarnation, false);
        if born.config.storage != Storage::Wal {
            return self.created(origin, incarnation, effects);
        }
        let entry = Entry::TopicCreated(born.clone());
        if let Err(refusal) = self.log_entry(&entry, Awaiting::Create { origin, incarnation }) {
            self.undo_birth(born, effects);
            effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) });
        }
    }

    fn set_beginning(&mut self, incarnation: Incarnation, is_beginning: bool) {
        for partition in self.partitions_of(incarnation) {
            if let Some(topic) = self.partitions.get_mut(&partition) {
                topic.is_beginning = is_beginning;
            }
        }
    }

    /// A topic that was not to be goes, in all its shards.
    pub(crate) fn undo_birth(&mut self, born: &TopicCreated, effects: &mut Vec<Effect>) {
        self.names.remove(&born.name);
        self.end_topic(born.incarnation, effects);
        let ended = Ended { incarnation: born.incarnation, name: born.name.clone(), partitions: born.partitions };
        self.order_end(&ended, effects);
    }

    /// The topic's life has begun: the cores are told.
    pub(crate) fn created(&mut self, origin: Origin, incarnation: Incarnation, effects: &mut Vec<Effect>) {
        let first = PartitionRef { incarnation, partition: 0 };
        let placement = self.living(first).map(|topic| self.placement_of(incarnation, topic));
        match (self.stats_of(first), placement) {
            (Some(stats), Some(placement)) => {
                self.announce(origin, placement, Reply::Created(Box::new(stats)), effects);
            }
            // Deleted before anybody knew of it; the answer to the delete follows.
            _ => effects.push(Effect::Reply { to: origin, reply: Reply::Refused(deleted_meanwhile()) }),
        }
    }

    pub(crate) fn placement_of(&self, incarnation: Incarnation, topic: &Partition) -> PlacementChange {
        let (name, partitions) = (topic.name.clone(), topic.partitions);
        PlacementChange::Add { name, incarnation, shard: self.id, partitions }
    }

    /// The shard of a topic's first partition. A topic of one partition is where it is.
    fn first_shard(&self, name: &TopicName, partitions: u32) -> ShardId {
        if partitions == 1 { self.id } else { ShardId::initial(name.as_str(), self.settings.shards) }
    }

    /// The numbers of the partitions of a topic that are on this shard.
    pub(crate) fn numbers_here(&self, name: &TopicName, partitions: u32) -> Vec<u32> {
        let first = self.first_shard(name, partitions);
        let is_here = |number: &u32| first.of_partition(*number, self.settings.shards) == self.id;
        if partitions == 1 { vec![0] } else { (0..partitions).filter(is_here).collect() }
    }

    /// The other shards that have partitions of a topic.
    pub(crate) fn other_shards(&self, name: &TopicName, partitions: u32) -> Vec<ShardId> {
        let first = self.first_shard(name, partitions);
        let numbers = 0..partitions.min(u32::from(self.settings.shards));
        numbers
            .map(|number| first.of_partition(number, self.settings.shards))
            .filter(|shard| *shard != self.id)
            .collect()
    }

    /// This shard's part of a topic is there from now on; what is there stays as it is.
    pub(crate) fn insert_topic(&mut self, born: &TopicCreated) {
        let is_logged = born.config.storage == Storage::Wal;
        for number in self.numbers_here(&born.name, born.partitions) {
            let partition = PartitionRef { incarnation: born.incarnation, partition: number };
            if number == 0 {
                self.names.insert(born.name.clone(), born.incarnation);
            }
            self.partitions.entry(partition).or_insert_with(|| Partition {
                name: born.name.clone(),
                partitions: born.partitions,
                config: born.config.clone(),
                created_us: born.created_us,
                log: PartitionLog::new(partition, is_logged),
                groups: BTreeMap::new(),
                lost: 0,
                is_beginning: false,
                is_ending: false,
                is_set_aside: false,
                age_due_ms: None,
            });
        }
    }

    /// All partitions, in an order that is the same in each run of a seed.
    pub(crate) fn partitions_in_order(&self) -> Vec<(PartitionRef, &Partition)> {
        let mut partitions: Vec<_> = self.partitions.iter().map(|(partition, topic)| (*partition, topic)).collect();
        partitions.sort_unstable_by_key(|(partition, _)| *partition);
        partitions
    }

    /// The partitions of one life of a topic that are on this shard, by number.
    pub(crate) fn partitions_of(&self, incarnation: Incarnation) -> Vec<PartitionRef> {
        let all = (0..PARTITIONS_PER_TOPIC_MAX).map(|partition| PartitionRef { incarnation, partition });
        all.filter(|partition| self.partitions.contains_key(partition)).collect()
    }

    /// The partition, if its topic is there and its end has not begun.
    pub(crate) fn living(&self, partition: PartitionRef) -> Option<&Partition> {
        self.partitions.get(&partition).filter(|topic| !topic.is_ending && !topic.is_beginning)
    }

    pub(crate) fn delete(&mut self, origin: Origin, name: &TopicName, effects: &mut Vec<Effect>) {
        let found = self.names.get(name).copied();
        let first = found.map(|incarnation| PartitionRef { incarnation, partition: 0 });
        let Some((first, topic)) = first.and_then(|first| Some((first, self.living(first)?))) else {
            effects.push(Effect::Reply { to: origin, reply: Reply::Refused(Refusal::topic_not_found(name.as_str())) });
            return;
        };
        let ended = Ended { incarnation: first.incarnation, name: name.clone(), partitions: topic.partitions };
        if topic.is_logged() {
            let entry = Entry::TopicDeleted { incarnation: first.incarnation, name: name.clone() };
            match self.log_entry(&entry, Awaiting::Delete { origin, ended }) {
                Ok(_) => self.begin_end(first.incarnation, effects),
                Err(refusal) => effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) }),
            }
            return;
        }
        self.begin_end(first.incarnation, effects);
        self.deleted(origin, ended, effects);
    }

    /// The topic's end is durable: its data goes, in all shards.
    pub(crate) fn deleted(&mut self, origin: Origin, ended: Ended, effects: &mut Vec<Effect>) {
        self.end_topic(ended.incarnation, effects);
        self.order_end(&ended, effects);
        let placement = PlacementChange::Remove { name: ended.name, incarnation: ended.incarnation };
        self.announce(origin, placement, Reply::Deleted, effects);
    }

    pub(crate) fn change(
        &mut self,
        origin: Origin,
        incarnation: Incarnation,
        patch: &TopicPatch,
        effects: &mut Vec<Effect>,
    ) {
        let outcome = match self.living(PartitionRef { incarnation, partition: 0 }) {
            None => Err(deleted_meanwhile()),
            Some(topic) => {
                let config = patch.clone().apply(&topic.config);
                let checked = config.check().map_err(|message| Refusal::new(RefusalKind::InvalidConfig, message));
                checked.map(|()| (config, topic.name.clone(), topic.partitions, topic.is_logged()))
            }
        };
        let changed = outcome.and_then(|(config, name, partitions, is_logged)| {
            if is_logged {
                let entry = Entry::TopicChanged(TopicChanged { incarnation, name, partitions, config: config.clone() });
                self.log_entry(&entry, Awaiting::Change { origin, incarnation })?;
            }
            Ok((config, is_logged))
        });
        match changed {
            Ok((config, is_logged)) => {
                self.apply_config(incarnation, &config, effects);
                if !is_logged {
                    self.changed(origin, incarnation, effects);
                }
            }
            Err(refusal) => effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) }),
        }
    }

    /// The change is durable where the topic is decided about: the other shards follow, then the asker hears of it.
    pub(crate) fn changed(&mut self, origin: Origin, incarnation: Incarnation, effects: &mut Vec<Effect>) {
        let first = PartitionRef { incarnation, partition: 0 };
        let others =
            self.living(first).map(|topic| self.other_shards(&topic.name, topic.partitions)).unwrap_or_default();
        if others.is_empty() {
            return self.stat(origin, first, effects);
        }
        self.order_change(origin, incarnation, others, effects);
    }

    /// The settings hold from now on in this shard's part: retention at once, the rest for what comes.
    pub(crate) fn apply_config(&mut self, incarnation: Incarnation, config: &TopicConfig, effects: &mut Vec<Effect>) {
        for partition in self.partitions_of(incarnation) {
            let Some(topic) = self.partitions.get_mut(&partition) else { continue };
            for group in topic.groups.values_mut() {
                group.set_config(config);
                if group.has_dying() {
                    group.list(partition, &mut self.listed_groups);
                }
            }
            let keeps_for_a_time = config.retention.max_age_ms.is_some();
            if !keeps_for_a_time {
                topic.log.ages = None;
            } else if topic.log.ages.is_none() {
                self.unaged.push(partition);
            }
            topic.config = config.clone();
            self.note_unaged();
            self.retain(partition, effects);
        }
    }

    /// Has messages of which nobody noted when they came count from now on; at a start, from when the clock runs: until then it
    /// stands at 0, and all would be too old at once.
    pub(crate) fn note_unaged(&mut self) {
        if !self.clock.runs() {
            return;
        }
        for partition in std::mem::take(&mut self.unaged) {
            let Some(topic) = self.partitions.get_mut(&partition) else { continue };
            if topic.config.retention.max_age_ms.is_some() && topic.log.ages.is_none() {
                let mut ages = Ages::default();
                let (start, end) = (topic.log.log_start().offset(), topic.log.high_water().offset());
                ages.note(start, end, self.clock.now_ms(), 0);
                topic.log.ages = Some(Box::new(ages));
            }
            self.schedule_age(partition);
        }
    }

    /// From now on nobody reaches this shard's part of the topic.
    pub(crate) fn begin_end(&mut self, incarnation: Incarnation, effects: &mut Vec<Effect>) {
        for partition in self.partitions_of(incarnation) {
            if self.partitions.get(&partition).is_some_and(|topic| !topic.is_logged()) {
                // What was admitted before the delete is answered as stored: it was, for a moment.
                self.close_batch(partition, effects);
            }
            let Some(topic) = self.partitions.get_mut(&partition) else { continue };
            if partition.partition == 0 && self.names.get(&topic.name) == Some(&incarnation) {
                self.names.remove(&topic.name);
            }
            topic.is_ending = true;
            if let Some(age_ms) = topic.age_due_ms.take() {
                self.due_ages.remove(&(age_ms, partition));
            }
            for (name, group) in &mut topic.groups {
                if let Some(due_ms) = group.scheduled_ms.take() {
                    self.due_groups.remove(&(due_ms, partition, name.clone()));
                }
                let refused = || Reply::Refused(deleted_meanwhile());
                effects.extend(group.take_pulls().into_iter().map(|to| Effect::Reply { to, reply: refused() }));
                effects.extend(group.take_answers().into_iter().map(|(to, _)| Effect::Reply { to, reply: refused() }));
            }
        }
    }

    /// The data of this shard's part goes.
    pub(crate) fn end_topic(&mut self, incarnation: Incarnation, effects: &mut Vec<Effect>) {
        for partition in self.partitions_of(incarnation) {
            let Some(mut topic) = self.partitions.remove(&partition) else { continue };
            topic.log.forget(&mut self.bytes);
            if let Some(log) = &mut self.log {
                log.checkpointing.unlinks.extend(topic.log.take_files());
            }
        }
        self.ids.forget(incarnation);
        if let Some(log) = &mut self.log {
            log.checkpointing.note_gone(incarnation);
            log.checkpointing.unlink_dropped_of(incarnation);
        }
        self.unlink_files(effects);
    }

    pub(crate) fn announce(
        &mut self,
        origin: Origin,
        placement: PlacementChange,
        reply: Reply,
        effects: &mut Vec<Effect>,
    ) {
        let change = self.next_change;
        self.next_change += 1;
        self.announcements.insert(change, Announcement { cores_left: self.settings.cores, origin, reply });
        effects.push(Effect::Place { change, placement });
    }

    pub(crate) fn placed(&mut self, change: u64, effects: &mut Vec<Effect>) {
        let Some(announcement) = self.announcements.get_mut(&change) else { return };
        announcement.cores_left = announcement.cores_left.saturating_sub(1);
        if announcement.cores_left == 0
            && let Some(Announcement { origin, reply, .. }) = self.announcements.remove(&change)
        {
            effects.push(Effect::Reply { to: origin, reply });
        }
    }

    pub(crate) fn stat(&self, origin: Origin, partition: PartitionRef, effects: &mut Vec<Effect>) {
        let reply = self
            .stats_of(partition)
            .map_or_else(|| Reply::Refused(deleted_meanwhile()), |stats| Reply::Stats(Box::new(stats)));
        effects.push(Effect::Reply { to: origin, reply });
    }

    pub(crate) fn list(&self, origin: Origin, partitions: &[PartitionRef], effects: &mut Vec<Effect>) {
        let stats = partitions.iter().filter_map(|partition| self.stats_of(*partition)).collect();
        effects.push(Effect::Reply { to: origin, reply: Reply::Listed(stats) });
    }

    pub(crate) fn stats_of(&self, partition: PartitionRef) -> Option<TopicStats> {
        let topic = self.living(partition)?;
        Some(TopicStats {
            name: topic.name.clone(),
            partition,
            partitions: topic.partitions,
            config: topic.config.clone(),
            shard: self.id,
            log_start: topic.log.log_start(),
            high_water: topic.log.high_water(),
            bytes: topic.log.kept_bytes(),
            subscribers: topic.log.subscribers() + topic.members_counted(partition),
            created_us: topic.created_us,
            groups: topic.group_stats(),
            lost: topic.lost,
            known_ids: self.ids.count_of(partition) as u64,
        })
    }
}

/// The answer to a command whose topic ended its life on the way.
pub(crate) fn deleted_meanwhile() -> Refusal {
    Refusal::new(RefusalKind::TopicNotFound, "this topic was deleted meanwhile: create it again with POST /topics")
}
