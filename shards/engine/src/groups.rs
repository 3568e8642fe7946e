//! The groups of a shard's topics: commands to them, and the giving out at the end of a turn. On the core that owns them.

use ringmain_model::limit::{GROUP_MEMBERS_MAX, GROUP_PULLS_MAX, GROUPS_PER_TOPIC_MAX};
use ringmain_model::{GroupName, Offset, PartitionRef, Refusal, Storage};
use ringmain_wal::{Entry, GroupProgress, Sequence};

use crate::command::{Command, Effect, Now, Origin, Reply};
use crate::dead_letters::dead_letter;
use crate::group::{Given, Group, Joining};
use crate::group_command::{DeadLetter, GroupAction, GroupStart, MemberNews, Progress, SeekTo};
use crate::loads::Loads;
use crate::log::stored::Lookup;
use crate::shard::Shard;
use crate::shard_log::{Awaiting, storage_failed};
use crate::topics::{Partition, deleted_meanwhile};

impl Partition {
    /// Lets groups go past what retention took, and tells their members what that cost.
    pub(crate) fn evict_from_groups(&mut self, listed: &mut Vec<(PartitionRef, GroupName)>, effects: &mut Vec<Effect>) {
        let (start, partition) = (self.log.log_start().offset(), self.log.partition());
        for group in self.groups.values_mut() {
            let messages = group.evict(start);
            if group.has_takers() {
                // What went may have held up what comes after it, or been all that a member may hold.
                group.list(partition, listed);
            }
            if messages > 0 {
                self.lost += messages;
                let news = MemberNews::Lost { messages, resumed: group.committed() };
                effects.extend(group.members().map(|to| Effect::Tell { to, news }));
            }
        }
    }

    /// The group of that name, begun at `start` if there is none: in a logged topic there is one by now.
    fn group_or_begin(
        &mut self,
        name: GroupName,
        start: GroupStart,
        next_epoch: &mut u64,
    ) -> Result<&mut Group, Refusal> {
        self.check_group_count(&name)?;
        let start = self.group_start(start);
        let (config, partition) = (&self.config, self.log.partition());
        Ok(self.groups.entry(name.clone()).or_insert_with(|| {
            *next_epoch += 1;
            Group::new(name, *next_epoch - 1, start, config).in_partition(partition)
        }))
    }

    fn check_group_count(&self, name: &GroupName) -> Result<(), Refusal> {
        if !self.groups.contains_key(name) && self.groups.len() >= GROUPS_PER_TOPIC_MAX {
            return Err(Refusal::busy("this topic has as many groups as it may; delete some"));
        }
        Ok(())
    }

    /// Where a group that begins now starts.
    fn group_start(&self, start: GroupStart) -> Offset {
        let (log_start, end) = (self.log.log_start().offset(), self.log.high_water().offset());
        match start {
            GroupStart::Tail => end,
            GroupStart::Offset(offset) => offset.clamp(log_start, end),
        }
    }

    fn seek_target(&self, to: SeekTo, loads: Option<&mut Loads>) -> Lookup<Offset> {
        let (start, end) = (self.log.log_start().offset(), self.log.high_water().offset());
        Lookup::Found(match to {
            SeekTo::Offset(offset) => offset.clamp(start, end),
            SeekTo::Time(time_us) => return self.log.offset_at_time(time_us, loads),
            SeekTo::Earliest => start,
            SeekTo::Latest => end,
        })
    }
}

impl Shard {
    pub(crate) fn join(
        &mut self,
        partition: PartitionRef,
        name: GroupName,
        start: GroupStart,
        joining: Joining,
    ) -> Result<Option<Reply>, Refusal> {
        self.begin_logged_group(partition, &name, start)?;
        let topic = self.partitions.get_mut(&partition).filter(|topic| !topic.is_ending);
        let topic = topic.ok_or_else(deleted_meanwhile)?;
        let high_water = topic.log.high_water();
        let group = topic.group_or_begin(name, start, &mut self.next_epoch)?;
        if group.member_count() >= GROUP_MEMBERS_MAX {
            return Err(Refusal::busy("this group has as many members as it may"));
        }
        let reply = Reply::Joined { epoch: group.epoch(), high_water };
        group.list(partition, &mut self.listed_groups);
        if group.is_begun() {
            group.join(joining);
            return Ok(Some(reply));
        }
        // A group that began at the tail and was forgotten would begin further on, and lose what came meanwhile.
        group.join_when_logged(joining, reply);
        Ok(None)
    }

    /// Begins a group of a logged topic that is not there yet: it gives out nothing before the log has it, because one that began
    /// at the tail and was forgotten would begin further on, and lose what came meanwhile.
    fn begin_logged_group(
        &mut self,
        partition: PartitionRef,
        name: &GroupName,
        start: GroupStart,
    ) -> Result<(), Refusal> {
        let Some(topic) = self.living(partition).filter(|topic| topic.is_logged()) else { return Ok(()) };
        match topic.groups.get(name) {
            Some(group) if group.is_begun() || self.can_log() => return Ok(()),
            Some(_) => return Err(storage_failed()),
            None => topic.check_group_count(name)?,
        }
        let (epoch, committed) = (self.next_epoch, topic.group_start(start));
        self.log_group(partition, name, epoch, committed)?;
        self.next_epoch += 1;
        if let Some(topic) = self.partitions.get_mut(&partition) {
            let group = Group::new(name.clone(), epoch, committed, &topic.config).in_partition(partition).unbegun();
            topic.groups.insert(name.clone(), group);
        }
        Ok(())
    }

    /// Logs that a group stands at `committed` in an epoch that begins; it gives out again when that is durable.
    fn log_group(
        &mut self,
        partition: PartitionRef,
        name: &GroupName,
        epoch: u64,
        committed: Offset,
    ) -> Result<Sequence, Refusal> {
        self.close_logged_batches();
        if let (Some(topic), Some(log)) = (self.partitions.get_mut(&partition), &mut self.log) {
            log.append_marks(&mut topic.log, false)?;
        }
        let (acked, attempts) = (Vec::new(), Vec::new());
        let progress = GroupProgress { partition, group: name.clone(), epoch, committed, acked, attempts };
        let awaiting = Awaiting::Begin { partition, group: name.clone(), epoch };
        self.log_entry(&Entry::GroupProgress(progress), awaiting)
    }

    /// Whether the log, if there is one, still takes something.
    fn can_log(&self) -> bool {
        self.log.as_ref().is_none_or(|log| !log.is_poisoned())
    }

    fn group_mut(&mut self, partition: PartitionRef, name: &GroupName) -> Result<&mut Group, Refusal> {
        let topic = self.partitions.get_mut(&partition).filter(|topic| !topic.is_ending);
        let topic = topic.ok_or_else(deleted_meanwhile)?;
        let group = topic.groups.get_mut(name).ok_or_else(|| Refusal::group_not_found(name.as_str()))?;
        group.list(partition, &mut self.listed_groups);
        Ok(group)
    }

    pub(crate) fn leave(&mut self, origin: Origin, partition: PartitionRef, name: &GroupName) -> Reply {
        if let Ok(group) = self.group_mut(partition, name) {
            group.leave(origin);
        }
        Reply::Noted
    }

    pub(crate) fn progress(
        &mut self,
        now: Now,
        origin: Origin,
        partition: PartitionRef,
        name: &GroupName,
        progress: Progress,
    ) -> Reply {
        let group = match self.group_mut(partition, name) {
            Ok(group) => group,
            Err(refusal) => return Reply::Refused(refusal),
        };
        group.sent(origin, progress.sent);
        for (epoch, offset) in progress.acks {
            group.ack(epoch, offset, Some(origin));
        }
        for nack in progress.nacks {
            group.nack(nack.epoch, nack.offset, Some(origin), now.monotonic_ms, nack.delay_ms);
        }
        if let Some(in_flight_max) = progress.in_flight_max {
            group.set_in_flight_max(origin, in_flight_max);
        }
        Reply::Noted
    }

    pub(crate) fn list_groups(&self, partition: PartitionRef) -> Reply {
        match self.living(partition) {
            Some(topic) => Reply::Groups(topic.group_stats()),
            None => Reply::Refused(deleted_meanwhile()),
        }
    }

    /// Does what was asked of a group; a pull is answered later.
    pub(crate) fn group_action(
        &mut self,
        now: Now,
        origin: Origin,
        partition: PartitionRef,
        name: GroupName,
        action: GroupAction,
        effects: &mut Vec<Effect>,
    ) -> Option<Reply> {
        let outcome = match action {
            GroupAction::Stat => self.stat_group(partition, &name),
            GroupAction::Delete => match self.delete_group(origin, partition, &name, effects) {
                Ok(None) => return None,
                Ok(Some(reply)) => Ok(reply),
                Err(refusal) => Err(refusal),
            },
            GroupAction::Seek(to) => {
                // What this turn admitted counts as published.
                self.close_batch(partition, effects);
                match self.seek_group(origin, partition, &name, to, effects) {
                    Ok(None) => return None,
                    Ok(Some(reply)) => Ok(reply),
                    Err(refusal) => Err(refusal),
                }
            }
            GroupAction::Pull { start, count, wait_ms } => {
                self.close_batch(partition, effects);
                let until_ms = now.monotonic_ms.saturating_add(wait_ms);
                return self.pull(origin, partition, name, start, count, until_ms).err().map(Reply::Refused);
            }
            GroupAction::Abandon => self.group_mut(partition, &name).map(|group| {
                if group.abandon_pull(origin) {
                    // The fetch is answered, too: whoever took it back may still wait for that.
                    let (group, epoch) = (name.clone(), group.epoch());
                    let reply = Reply::Pulled { partition, group, epoch, assignments: Vec::new() };
                    effects.push(Effect::Reply { to: origin, reply });
                }
                Reply::Noted
            }),
            GroupAction::Ack { epoch, offsets, by } => {
                match self.ack_by_hand(partition, &name, (epoch, by), &offsets) {
                    Ok(reply) => return self.answer_when_logged(origin, partition, &name, reply),
                    Err(refusal) => Err(refusal),
                }
            }
            GroupAction::Nack { epoch, offsets, delay_ms } => self.group_mut(partition, &name).map(|group| {
                let epoch = epoch.unwrap_or(group.epoch());
                let nacked = |offset: &Offset| group.nack(epoch, *offset, None, now.monotonic_ms, delay_ms);
                Reply::Acknowledged(offsets.iter().copied().filter(nacked).count() as u64)
            }),
        };
        Some(outcome.unwrap_or_else(Reply::Refused))
    }

    fn ack_by_hand(
        &mut self,
        partition: PartitionRef,
        name: &GroupName,
        (epoch, by): (Option<u64>, Option<Origin>),
        offsets: &[Offset],
    ) -> Result<Reply, Refusal> {
        self.check_can_log(partition)?;
        let group = self.group_mut(partition, name)?;
        let epoch = epoch.unwrap_or(group.epoch());
        let new = offsets.iter().filter(|offset| group.ack(epoch, **offset, by)).count();
        Ok(Reply::Acknowledged(new as u64))
    }

    /// Refuses what a poisoned log could not keep.
    fn check_can_log(&self, partition: PartitionRef) -> Result<(), Refusal> {
        let is_logged = self.living(partition).is_some_and(Partition::is_logged);
        if is_logged && !self.can_log() { Err(storage_failed()) } else { Ok(()) }
    }

    /// Answers now in a memory topic, and when the log has what happened in a logged one.
    fn answer_when_logged(
        &mut self,
        to: Origin,
        partition: PartitionRef,
        name: &GroupName,
        reply: Reply,
    ) -> Option<Reply> {
        let topic = self.partitions.get_mut(&partition).filter(|topic| topic.is_logged());
        let Some(group) = topic.and_then(|topic| topic.groups.get_mut(name)) else { return Some(reply) };
        group.answer_when_logged(to, reply);
        group.list(partition, &mut self.listed_groups);
        None
    }

    fn stat_group(&self, partition: PartitionRef, name: &GroupName) -> Result<Reply, Refusal> {
        let topic = self.living(partition).ok_or_else(deleted_meanwhile)?;
        let group = topic.groups.get(name).ok_or_else(|| Refusal::group_not_found(name.as_str()))?;
        Ok(Reply::Group(Box::new(group.stats(topic.log.high_water().offset()))))
    }

    fn delete_group(
        &mut self,
        origin: Origin,
        partition: PartitionRef,
        name: &GroupName,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Reply>, Refusal> {
        let topic = self.living(partition).ok_or_else(deleted_meanwhile)?;
        if !topic.groups.contains_key(name) {
            return Err(Refusal::group_not_found(name.as_str()));
        }
        let is_logged = topic.is_logged();
        if is_logged {
            let entry = Entry::GroupDeleted { partition, group: name.clone() };
            self.log_entry(&entry, Awaiting::Reply { to: origin, reply: Reply::Deleted })?;
        }
        let topic = self.partitions.get_mut(&partition).ok_or_else(deleted_meanwhile)?;
        let mut group = topic.groups.remove(name).ok_or_else(|| Refusal::group_not_found(name.as_str()))?;
        if let Some(due_ms) = group.scheduled_ms {
            self.due_groups.remove(&(due_ms, partition, name.clone()));
        }
        for to in group.take_pulls() {
            effects.push(Effect::Reply { to, reply: Reply::Refused(Refusal::group_not_found(name.as_str())) });
        }
        let refused = || Reply::Refused(Refusal::group_not_found(name.as_str()));
        effects.extend(group.take_answers().into_iter().map(|(to, _)| Effect::Reply { to, reply: refused() }));
        effects.extend(group.members().map(|to| Effect::Tell { to, news: MemberNews::GroupDeleted }));
        Ok((!is_logged).then_some(Reply::Deleted))
    }

    fn seek_group(
        &mut self,
        origin: Origin,
        partition: PartitionRef,
        name: &GroupName,
        to: SeekTo,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Reply>, Refusal> {
        self.check_can_log(partition)?;
        let topic = self.partitions.get_mut(&partition).filter(|topic| !topic.is_ending);
        let topic = topic.ok_or_else(deleted_meanwhile)?;
        if !topic.groups.contains_key(name) {
            return Err(Refusal::group_not_found(name.as_str()));
        }
        let target = match topic.seek_target(to, self.log.as_mut().map(|log| &mut log.loads)) {
            Lookup::Found(target) => target,
            Lookup::Wanted(wanted) => {
                let seek = Command::Group { partition, group: name.clone(), action: GroupAction::Seek(to) };
                self.wait_for_load(wanted, origin, seek, effects);
                return Ok(None);
            }
            Lookup::Lost(_, end) => end,
            Lookup::Nothing => topic.log.log_start().offset(),
        };
        let (high_water, is_logged) = (topic.log.high_water().offset(), topic.is_logged());
        let epoch = self.next_epoch;
        let logged = if is_logged { Some(self.log_group(partition, name, epoch, target)?) } else { None };
        self.next_epoch += 1;
        let topic = self.partitions.get_mut(&partition).ok_or_else(deleted_meanwhile)?;
        let group = topic.groups.get_mut(name).ok_or_else(|| Refusal::group_not_found(name.as_str()))?;
        group.seek(epoch, target);
        if is_logged {
            // What a crash would take back gives nothing out.
            group.suspend();
        }
        group.list(partition, &mut self.listed_groups);
        let news = MemberNews::Moved { epoch, next: target };
        effects.extend(group.members().map(|to| Effect::Tell { to, news }));
        let reply = Reply::Group(Box::new(group.stats(high_water)));
        match (logged, &mut self.log) {
            (Some(sequence), Some(log)) => {
                log.wait_for(sequence, Awaiting::Reply { to: origin, reply });
                Ok(None)
            }
            _ => Ok(Some(reply)),
        }
    }

    fn pull(
        &mut self,
        origin: Origin,
        partition: PartitionRef,
        name: GroupName,
        start: GroupStart,
        count: u32,
        until_ms: u64,
    ) -> Result<(), Refusal> {
        self.begin_logged_group(partition, &name, start)?;
        let topic = self.partitions.get_mut(&partition).filter(|topic| !topic.is_ending);
        let topic = topic.ok_or_else(deleted_meanwhile)?;
        let group = topic.group_or_begin(name, start, &mut self.next_epoch)?;
        if group.pull_count() >= GROUP_PULLS_MAX {
            return Err(Refusal::busy("as many fetches of this group wait as may"));
        }
        group.pull(origin, count, until_ms);
        group.list(partition, &mut self.listed_groups);
        Ok(())
    }

    /// Gives out what listed groups have, and notes when to look at them again.
    pub(crate) fn serve_groups(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let mut given = Vec::new();
        for (partition, name) in std::mem::take(&mut self.listed_groups) {
            let Some(topic) = self.partitions.get_mut(&partition).filter(|topic| !topic.is_ending) else { continue };
            let Some(group) = topic.groups.get_mut(&name) else { continue };
            group.unlist();
            if !group.is_begun() {
                // It is listed again when the log has it.
                if group.take_changed()
                    && let Some(log) = &mut self.log
                {
                    log.note_unlogged(now, partition, group);
                }
                continue;
            }
            group.free_due(now.monotonic_ms);
            let stopped = if group.is_loading {
                Lookup::Nothing
            } else {
                let (log, mut loads) = (&topic.log, self.log.as_mut().map(|log| &mut log.loads));
                let lookup = |offset| log.lookup(offset, loads.as_deref_mut());
                group.give_out(log.high_water().offset(), lookup, now.monotonic_ms, &mut given)
            };
            if !group.is_loading && !matches!(stopped, Lookup::Wanted(_)) {
                group.end_pulls(now.monotonic_ms, &mut given);
            }
            let epoch = group.epoch();
            for given in given.drain(..) {
                effects.extend(match given {
                    Given::Member(to, assignment) => Some(Effect::Assign { to, assignment }),
                    Given::Fetch(to, assignments) => {
                        let reply = Reply::Pulled { partition, group: name.clone(), epoch, assignments };
                        Some(Effect::Reply { to, reply })
                    }
                    Given::Dead { offset, attempts, batch } => {
                        let letter = DeadLetter { partition, group: name.clone(), epoch, offset };
                        let effect = dead_letter(&topic.name, &topic.config, letter, attempts, &batch);
                        if effect.is_none() {
                            // Nobody wants the dead letters of this topic.
                            group.dead_is_gone(epoch, offset);
                        }
                        effect
                    }
                });
            }
            if topic.config.storage == Storage::Wal
                && group.take_changed()
                && let Some(log) = &mut self.log
            {
                log.note_unlogged(now, partition, group);
            }
            let due_ms = group.next_due_ms();
            if let Some(due_ms) = due_ms.filter(|due_ms| group.scheduled_ms.is_none_or(|scheduled| *due_ms < scheduled))
            {
                if let Some(scheduled) = group.scheduled_ms.replace(due_ms) {
                    self.due_groups.remove(&(scheduled, partition, name.clone()));
                }
                self.due_groups.insert((due_ms, partition, name.clone()));
            }
            match stopped {
                Lookup::Wanted(wanted) => {
                    group.is_loading = true;
                    self.group_waits_for_load(wanted, partition, name, effects);
                }
                Lookup::Lost(from, end) => {
                    let messages = group.lose(from, end);
                    group.list(partition, &mut self.listed_groups);
                    topic.lost += messages;
                    let news = MemberNews::Lost { messages, resumed: group.committed() };
                    effects.extend(group.members().map(|to| Effect::Tell { to, news }));
                }
                Lookup::Found(()) | Lookup::Nothing => {}
            }
        }
    }

    /// Lists the groups whose time has come: what is due goes out at the end of the turn.
    pub(crate) fn list_due_groups(&mut self, now: Now) {
        while self.due_groups.first().is_some_and(|(due_ms, ..)| *due_ms <= now.monotonic_ms) {
            let Some((_, partition, name)) = self.due_groups.pop_first() else { break };
            let topic = self.partitions.get_mut(&partition);
            if let Some(group) = topic.and_then(|topic| topic.groups.get_mut(&name)) {
                group.scheduled_ms = None;
                group.list(partition, &mut self.listed_groups);
            }
        }
    }
}
