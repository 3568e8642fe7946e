//! One partition of one life of a topic as its clients know it.

use std::collections::BTreeMap;

use ringmain_engine::GroupStats;
use ringmain_model::{GroupName, Retention, Storage, TopicConfig, TopicName};

use super::group::GroupModel;
use super::{Check, Publish, bytes_max};

/// The largest message of a simulation, and what a log adds.
const UNSEEN_BYTES_MAX: u64 = 25_000;

/// How sure something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It was not asked for, or refused, or a start did not find it.
    Never,
    /// Asked, not answered: a crash leaves either.
    Asked,
    /// Answered: it stays.
    Sure,
}

/// A record that is there for good.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// The message's number.
    pub id: u64,
    /// Its time, once it was seen.
    pub time_us: Option<i64>,
    /// It is a dead letter of another topic.
    pub is_letter: bool,
}

/// One life of a topic.
#[derive(Debug)]
pub struct Life {
    /// The topic's name.
    pub name: TopicName,
    /// Where its shard is.
    pub node: usize,
    /// The partition's number, and how many the topic has.
    pub number: u32,
    /// See `number`.
    pub partitions: u32,
    /// Its settings: the last that were answered or found.
    pub config: TopicConfig,
    /// All settings that were ever asked for.
    pub configs: Vec<TopicConfig>,
    /// Settings that were asked for, while it is not known whether they hold.
    pub changing: Option<TopicConfig>,
    /// The least retention that was ever asked for.
    pub retention_least: Retention,
    /// The lowest bound of deliveries that was ever asked for.
    pub max_deliver_least: Option<u32>,
    /// Whether it ever had a bound and no dead letters.
    pub may_drop: bool,
    /// Whether it was made.
    pub creation: Standing,
    /// Whether it was deleted.
    pub deletion: Standing,
    /// Number of the request that asked for the deletion.
    pub deletion_request: u64,
    /// What stands at each offset, from what was answered and seen.
    pub records: BTreeMap<u64, Kept>,
    /// Everything below it was visible to somebody, or answered.
    pub visible_end: u64,
    /// The highest log start that was seen.
    pub log_start_max: u64,
    /// Its groups, those that are gone included.
    pub groups: BTreeMap<GroupName, GroupModel>,
    /// Records that this process could not read, because the disk would not, and said so: from, end.
    pub unreadable: Vec<(u64, u64)>,
    /// The same of all processes: groups have gone past them.
    pub unreadable_ever: Vec<(u64, u64)>,
    /// A start has found it, and it was not read yet.
    pub is_recovering: bool,
    /// The next offset that each interested core must be pushed; `None` until its interest is answered.
    pub interest: BTreeMap<u16, Option<u64>>,
}

impl Life {
    pub(super) fn new(name: TopicName, config: TopicConfig) -> Self {
        let mut life = Self {
            name,
            node: 0,
            number: 0,
            partitions: 1,
            configs: Vec::new(),
            changing: None,
            retention_least: config.retention,
            max_deliver_least: None,
            may_drop: false,
            config,
            creation: Standing::Asked,
            deletion: Standing::Never,
            deletion_request: 0,
            records: BTreeMap::new(),
            visible_end: 0,
            log_start_max: 0,
            groups: BTreeMap::new(),
            unreadable: Vec::new(),
            unreadable_ever: Vec::new(),
            is_recovering: false,
            interest: BTreeMap::new(),
        };
        life.note_config(&life.config.clone());
        life
    }

    /// These settings may hold for some time.
    fn note_config(&mut self, config: &TopicConfig) {
        self.configs.push(config.clone());
        self.retention_least.max_messages = self.retention_least.max_messages.min(config.retention.max_messages);
        self.max_deliver_least = self.max_deliver_least.into_iter().chain(config.max_deliver).min();
        self.may_drop |= config.max_deliver.is_some() && config.dead_letter.is_none();
        // A change of one of the two may have come before the other.
        self.may_drop |= self.max_deliver_least.is_some() && config.dead_letter.is_none();
    }

    /// A change was asked for; one at a time.
    pub fn change_asked(&mut self, config: TopicConfig) {
        self.note_config(&config);
        self.changing = Some(config);
    }

    /// A change was answered.
    ///
    /// # Errors
    /// When the answer tells of other settings.
    pub fn changed(&mut self, config: &TopicConfig) -> Check {
        let asked = self.changing.take().ok_or("a change was answered twice")?;
        if asked != *config {
            return Err(format!("{asked:?} was asked for and {config:?} answered"));
        }
        self.config = asked;
        Ok(())
    }

    /// A start found these settings.
    pub(super) fn settle_config(&mut self, found: &TopicConfig) -> Check {
        if !self.may_have(found) {
            return Err(format!("the settings of {} are {:?} and were found as {found:?}", self.name, self.config));
        }
        self.config = found.clone();
        self.changing = None;
        Ok(())
    }

    /// Whether these may be its settings now.
    pub(super) fn may_have(&self, config: &TopicConfig) -> bool {
        self.config == *config || self.changing.as_ref() == Some(config)
    }

    /// Whether it is there for sure, and will be until somebody asks otherwise.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.creation == Standing::Sure && self.deletion == Standing::Never
    }

    /// Whether it may be there.
    #[must_use]
    pub fn may_be_there(&self) -> bool {
        self.creation != Standing::Never && self.deletion != Standing::Sure
    }

    /// The next offset at or after `offset` that this process can read.
    #[must_use]
    pub fn readable_from(&self, mut offset: u64) -> u64 {
        while let Some((_, end)) = self.unreadable.iter().find(|(from, end)| (*from..*end).contains(&offset)) {
            offset = *end;
        }
        offset
    }

    /// The process is gone.
    pub(super) fn crashed(&mut self) {
        self.interest.clear();
        self.unreadable_ever.append(&mut self.unreadable);
    }

    /// Whether what is answered survives the process.
    #[must_use]
    pub fn is_wal(&self) -> bool {
        self.config.storage == Storage::Wal
    }

    /// A message is at an offset for good. Messages of one topic are asked for one after another, so their numbers rise with
    /// their offsets, and none is there twice.
    pub(super) fn stored(&mut self, id: u64, offset: u64, time_us: Option<i64>, is_letter: bool) -> Check {
        self.visible_end = self.visible_end.max(offset + 1);
        if let Some(kept) = self.records.get_mut(&offset) {
            if kept.id != id {
                return Err(format!("message {} was at offset {offset}, now {id} is there", kept.id));
            }
            if let (Some(before), Some(now)) = (kept.time_us, time_us)
                && before != now
            {
                return Err(format!("the time of offset {offset} was {before} and is {now}"));
            }
            kept.time_us = kept.time_us.or(time_us);
            return Ok(());
        }
        let is_own = |(_, kept): &(&u64, &Kept)| !is_letter && !kept.is_letter;
        let before = self.records.range(..offset).rev().find(is_own).filter(|(_, kept)| kept.id >= id);
        let after = self.records.range(offset..).find(is_own).filter(|(_, kept)| kept.id <= id);
        if let Some((other, kept)) = before.or(after) {
            return Err(format!(
                "message {id} is at {offset} and message {} at {other}: twice or out of order",
                kept.id
            ));
        }
        self.records.insert(offset, Kept { id, time_us, is_letter });
        Ok(())
    }

    /// The most that the records from `from` to `end` can take in a log; those that nobody has seen may be large.
    pub(super) fn bytes_max(&self, from: u64, end: u64, publishes: &[Publish]) -> u64 {
        let seen = self.records.range(from..end);
        let (count, bytes) = seen.fold((0, 0), |(count, bytes), (_, kept)| {
            (count + 1, bytes + bytes_max(&publishes[kept.id as usize].message))
        });
        bytes + (end - from - count) * UNSEEN_BYTES_MAX
    }

    /// The group of that name; one that nobody knows of begins as not there.
    pub fn group(&mut self, name: &GroupName) -> &mut GroupModel {
        self.groups.entry(name.clone()).or_default()
    }

    pub(super) fn recovered_groups(&mut self, run: u64, found: &[GroupStats]) -> Check {
        for stats in found {
            self.group(&stats.name);
        }
        for (name, group) in &mut self.groups {
            let stats = found.iter().find(|stats| stats.name == *name);
            group.recovered(run, stats).map_err(|fault| format!("group {name} of {}: {fault}", self.name))?;
        }
        self.check_groups(run, found)
    }

    /// Checks how the groups stand; `log_start_max` and `visible_end` are at least what they were then.
    pub(super) fn check_groups(&mut self, run: u64, found: &[GroupStats]) -> Check {
        let visible = self.visible_end;
        let evicted = self.log_start_max.max(visible.saturating_sub(self.retention_least.max_messages));
        let dropped_after = self.max_deliver_least.filter(|_| self.may_drop);
        let unreadable = self.unreadable.iter().chain(&self.unreadable_ever);
        let is_unreadable = |offset: u64| unreadable.clone().any(|(from, end)| (*from..*end).contains(&offset));
        for stats in found {
            let group = self.groups.entry(stats.name.clone()).or_default();
            group
                .check(run, stats, visible, dropped_after, |offset| offset < evicted || is_unreadable(offset))
                .map_err(|fault| format!("group {} of {}: {fault}", stats.name, self.name))?;
        }
        Ok(())
    }
}
