//! Topics come, are told of, and go; every core hears of it before the asker does. On the core that owns the shard.

use std::collections::BTreeMap;

use ringmain_model::limit::TOPICS_PER_SHARD_MAX;
use ringmain_model::{
    GroupName, Incarnation, PartitionRef, Refusal, RefusalKind, Storage, TopicConfig, TopicName, TopicPatch,
};
use ringmain_wal::{Entry, TopicChanged, TopicCreated};

use crate::ages::Ages;
use crate::command::{Effect, Now, Origin, PlacementChange, Reply, TopicStats};
use crate::group::Group;
use crate::group_command::GroupStats;
use crate::log::PartitionLog;
use crate::shard::Shard;
use crate::shard_log::Awaiting;

/// One life of a topic.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: TopicName,
    pub(crate) config: TopicConfig,
    pub(crate) created_us: i64,
    pub(crate) log: PartitionLog,
    /// In order, so that what they do together is the same in each run of a seed.
    pub(crate) groups: BTreeMap<GroupName, Group>,
    /// Messages that its groups lost to retention, deleted groups included.
    pub(crate) lost: u64,
    /// Its delete is in the log and not durable yet: nobody reaches it any more.
    pub(crate) is_ending: bool,
    /// Damage took records before its last ones, so that nobody knows which offsets are free: it is read only.
    pub(crate) is_set_aside: bool,
    /// Its entry in the shard's list of times at which messages are too old.
    pub(crate) age_due_ms: Option<u64>,
}

impl Topic {
    /// Whether its records live in the shard's log.
    pub(crate) fn is_logged(&self) -> bool {
        self.config.storage == Storage::Wal
    }

    /// How its groups stand, by name.
    pub(crate) fn group_stats(&self) -> Vec<GroupStats> {
        let high_water = self.log.high_water().offset();
        self.groups.values().map(|group| group.stats(high_water)).collect()
    }
}

/// A placement change on its way to the cores, and whom to answer once all have applied it.
#[derive(Debug)]
pub(crate) struct Announcement {
    cores_left: u16,
    origin: Origin,
    reply: Reply,
}

impl Shard {
    pub(crate) fn create(
        &mut self,
        now: Now,
        origin: Origin,
        name: TopicName,
        config: TopicConfig,
        incarnation: Incarnation,
        effects: &mut Vec<Effect>,
    ) {
        let refusal = if self.names.contains_key(&name) {
            Some(Refusal::new(
                RefusalKind::TopicExists,
                format!("the topic `{name}` is there already: use it, or delete it first"),
            ))
        } else if let Err(message) = config.check() {
            Some(Refusal::new(RefusalKind::InvalidConfig, message))
        } else if self.topics.len() >= TOPICS_PER_SHARD_MAX {
            Some(Refusal::busy("this shard holds as many topics as it may; delete some"))
        } else if self.topics.contains_key(&incarnation) {
            // Two of 2^64 random numbers met; another draw will do.
            Some(Refusal::busy("this topic's random number is taken"))
        } else {
            None
        };
        let placement = PlacementChange::Add { name: name.clone(), incarnation, shard: self.id };
        let is_logged = config.storage == Storage::Wal;
        let outcome = match refusal {
            Some(refusal) => Err(refusal),
            None if is_logged => {
                let created = TopicCreated {
                    incarnation,
                    name: name.clone(),
                    created_us: now.unix_us,
                    partitions: 1,
                    config: config.clone(),
                };
                let awaiting = Awaiting::Create { origin, placement: placement.clone(), incarnation };
                self.log_entry(&Entry::TopicCreated(created), awaiting).map(|_| ())
            }
            None => Ok(()),
        };
        if let Err(refusal) = outcome {
            effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) });
            return;
        }
        self.insert_topic(name, incarnation, config, now.unix_us);
        if let Some(stats) = self.stats_of(incarnation).filter(|_| !is_logged) {
            self.announce(origin, placement, Reply::Created(Box::new(stats)), effects);
        }
    }

    pub(crate) fn insert_topic(
        &mut self,
        name: TopicName,
        incarnation: Incarnation,
        config: TopicConfig,
        created_us: i64,
    ) {
        let is_logged = config.storage == Storage::Wal;
        let log = PartitionLog::new(PartitionRef { incarnation, partition: 0 }, is_logged);
        self.names.insert(name.clone(), incarnation);
        let topic = Topic {
            name,
            config,
            created_us,
            log,
            groups: BTreeMap::new(),
            lost: 0,
            is_ending: false,
            is_set_aside: false,
            age_due_ms: None,
        };
        self.topics.insert(incarnation, topic);
    }

    /// All topics, in an order that is the same in each run of a seed.
    pub(crate) fn topics_in_order(&self) -> Vec<(Incarnation, &Topic)> {
        let mut topics: Vec<_> = self.topics.iter().map(|(incarnation, topic)| (*incarnation, topic)).collect();
        topics.sort_unstable_by_key(|(incarnation, _)| *incarnation);
        topics
    }

    /// The topic, unless its end has begun.
    pub(crate) fn living(&self, incarnation: Incarnation) -> Option<&Topic> {
        self.topics.get(&incarnation).filter(|topic| !topic.is_ending)
    }

    pub(crate) fn delete(&mut self, origin: Origin, name: &TopicName, effects: &mut Vec<Effect>) {
        let Some(incarnation) = self.names.get(name).copied() else {
            effects.push(Effect::Reply { to: origin, reply: Reply::Refused(Refusal::topic_not_found(name.as_str())) });
            return;
        };
        let placement = PlacementChange::Remove { name: name.clone(), incarnation };
        if self.topics.get(&incarnation).is_some_and(Topic::is_logged) {
            let awaiting = Awaiting::Delete { origin, placement, incarnation };
            let entry = Entry::TopicDeleted { incarnation, name: name.clone() };
            match self.log_entry(&entry, awaiting) {
                Ok(_) => self.begin_end(name, incarnation, effects),
                Err(refusal) => effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) }),
            }
            return;
        }
        // What was admitted before the delete is answered as stored: it was, for a moment.
        self.close_batch(PartitionRef { incarnation, partition: 0 }, effects);
        self.begin_end(name, incarnation, effects);
        self.end_topic(incarnation, effects);
        self.announce(origin, placement, Reply::Deleted, effects);
    }

    pub(crate) fn change(
        &mut self,
        origin: Origin,
        incarnation: Incarnation,
        patch: TopicPatch,
        effects: &mut Vec<Effect>,
    ) {
        let outcome = match self.living(incarnation) {
            None => Err(deleted_meanwhile()),
            Some(topic) => {
                let (config, is_logged, name) = (patch.apply(&topic.config), topic.is_logged(), topic.name.clone());
                match config.check() {
                    Err(message) => Err(Refusal::new(RefusalKind::InvalidConfig, message)),
                    Ok(()) if is_logged => {
                        let changed = TopicChanged { incarnation, name, partitions: 1, config: config.clone() };
                        let awaiting = Awaiting::Change { origin, incarnation };
                        self.log_entry(&Entry::TopicChanged(changed), awaiting).map(|_| config)
                    }
                    Ok(()) => Ok(config),
                }
            }
        };
        let config = match outcome {
            Ok(config) => config,
            Err(refusal) => return effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) }),
        };
        self.apply_config(incarnation, config, effects);
        if self.living(incarnation).is_some_and(|topic| !topic.is_logged()) {
            self.stat(origin, incarnation, effects);
        }
    }

    /// The settings hold from now on: retention at once, the rest for what comes.
    fn apply_config(&mut self, incarnation: Incarnation, config: TopicConfig, effects: &mut Vec<Effect>) {
        let Some(topic) = self.topics.get_mut(&incarnation) else { return };
        for group in topic.groups.values_mut() {
            group.set_config(&config);
            if group.has_dying() {
                group.list(incarnation, &mut self.listed_groups);
            }
        }
        let keeps_for_a_time = config.retention.max_age_ms.is_some();
        if !keeps_for_a_time {
            topic.log.ages = None;
        } else if topic.log.ages.is_none() {
            // Nobody noted when they came: they count from now on.
            let mut ages = Ages::default();
            let (start, end) = (topic.log.log_start().offset(), topic.log.high_water().offset());
            ages.note(start, end, self.clock.now_ms(), 0);
            topic.log.ages = Some(Box::new(ages));
        }
        topic.config = config;
        self.retain(PartitionRef { incarnation, partition: 0 }, effects);
    }

    /// From now on nobody reaches the topic.
    fn begin_end(&mut self, name: &TopicName, incarnation: Incarnation, effects: &mut Vec<Effect>) {
        self.names.remove(name);
        self.due_groups.retain(|(_, of, _)| *of != incarnation);
        self.due_ages.retain(|(_, of)| *of != incarnation);
        let Some(topic) = self.topics.get_mut(&incarnation) else { return };
        topic.is_ending = true;
        for group in topic.groups.values_mut() {
            let refused = || Reply::Refused(deleted_meanwhile());
            effects.extend(group.take_pulls().into_iter().map(|to| Effect::Reply { to, reply: refused() }));
            effects.extend(group.take_answers().into_iter().map(|(to, _)| Effect::Reply { to, reply: refused() }));
        }
    }

    /// Its data goes.
    pub(crate) fn end_topic(&mut self, incarnation: Incarnation, effects: &mut Vec<Effect>) {
        if let Some(mut topic) = self.topics.remove(&incarnation) {
            topic.log.forget(&mut self.bytes);
            self.ids.forget(incarnation);
            if let Some(log) = &mut self.log {
                log.checkpointing.unlinks.extend(topic.log.take_files());
                log.checkpointing.unlink_dropped_of(incarnation);
            }
            self.unlink_files(effects);
        }
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

    pub(crate) fn stat(&self, origin: Origin, incarnation: Incarnation, effects: &mut Vec<Effect>) {
        let reply = self
            .stats_of(incarnation)
            .map_or_else(|| Reply::Refused(deleted_meanwhile()), |stats| Reply::Stats(Box::new(stats)));
        effects.push(Effect::Reply { to: origin, reply });
    }

    pub(crate) fn list(&self, origin: Origin, effects: &mut Vec<Effect>) {
        let living = self.topics_in_order().into_iter().filter(|(_, topic)| !topic.is_ending);
        let stats = living.filter_map(|(incarnation, _)| self.stats_of(incarnation)).collect();
        effects.push(Effect::Reply { to: origin, reply: Reply::Listed(stats) });
    }

    pub(crate) fn stats_of(&self, incarnation: Incarnation) -> Option<TopicStats> {
        let topic = self.living(incarnation)?;
        Some(TopicStats {
            name: topic.name.clone(),
            incarnation,
            config: topic.config.clone(),
            shard: self.id,
            log_start: topic.log.log_start(),
            high_water: topic.log.high_water(),
            bytes: topic.log.kept_bytes(),
            subscribers: topic.log.subscribers()
                + topic.groups.values().map(|group| group.member_count() as u64).sum::<u64>(),
            created_us: topic.created_us,
            groups: topic.group_stats(),
            lost: topic.lost,
            known_ids: self.ids.count_of(PartitionRef { incarnation, partition: 0 }) as u64,
        })
    }
}

/// The answer to a command whose topic ended its life on the way.
pub(crate) fn deleted_meanwhile() -> Refusal {
    Refusal::new(RefusalKind::TopicNotFound, "this topic was deleted meanwhile: create it again with POST /topics")
}
