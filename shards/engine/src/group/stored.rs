//! What is stored of a group, and a group as it was stored. Decisions alone, on the core that owns the topic.

use ringmain_model::limit::GROUP_PENDING_MAX;
use ringmain_model::{Offset, PartitionRef, Refusal, RefusalKind, TopicConfig};
use ringmain_wal::GroupProgress;

use super::{Group, Joining, Pending};
use crate::acked::Acked;
use crate::command::{Effect, Origin, Reply};

impl Group {
    /// The group as a crash would leave it, had the log this. First attempts are not stored: a message that was given out once
    /// comes again as if it were new.
    pub(crate) fn image(&self, partition: PartitionRef) -> GroupProgress {
        let attempts = self.pending.iter().filter(|(_, pending)| pending.attempts > 1);
        GroupProgress {
            partition,
            group: self.name.clone(),
            epoch: self.epoch,
            committed: self.committed(),
            acked: self.acked.ranges().collect(),
            attempts: attempts.map(|(offset, pending)| (*offset, pending.attempts)).collect(),
        }
    }

    /// A group as it was stored: what was given out and not acknowledged is ready to go out again.
    pub(crate) fn restored(progress: &GroupProgress, config: &TopicConfig) -> Self {
        let mut group = Self::new(progress.group.clone(), progress.epoch, progress.committed, config);
        group.acked = Acked::restored(progress.committed, &progress.acked);
        let after_acked = progress.acked.last().map_or(progress.committed, |(_, end)| *end);
        let after_given = progress.attempts.last().map_or(progress.committed, |(offset, _)| offset.plus(1));
        group.next = after_acked.max(after_given);
        let mut offset = progress.committed;
        let mut attempts = progress.attempts.iter().copied().peekable();
        while offset < group.next && group.pending.len() < GROUP_PENDING_MAX {
            if !group.acked.contains(offset) {
                let known = attempts.next_if(|(of, _)| *of == offset).map_or(1, |(_, attempts)| attempts);
                group.pending.insert(offset, Pending::ready(known));
                group.queue(offset);
            }
            offset = offset.plus(1);
        }
        group
    }

    /// A new group of a logged topic, which gives out nothing before it is stored.
    pub(crate) fn unbegun(mut self) -> Self {
        self.is_begun = false;
        self
    }

    /// The topic's settings have changed; what is held already keeps its time, and what nobody has leaves or stays by the new ones.
    pub(crate) fn set_config(&mut self, config: &TopicConfig) {
        (self.ack_wait_ms, self.max_deliver) = (config.ack_wait_ms, config.max_deliver);
        for offset in std::mem::take(&mut self.ready).into_iter().chain(std::mem::take(&mut self.dying)) {
            self.queue(offset);
        }
    }

    /// It gives out nothing before what has just changed is stored.
    pub(crate) fn suspend(&mut self) {
        self.is_begun = false;
    }

    /// It is stored now.
    pub(crate) fn begin(&mut self) {
        self.is_begun = true;
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Whether something happened that the log does not have; from now on the caller knows.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Has an answer wait until the log has all that happened so far.
    pub(crate) fn answer_when_logged(&mut self, to: Origin, reply: Reply) {
        self.is_changed = true;
        self.answers.push((to, reply));
    }

    /// Has somebody become a member when the log has the group: nothing is given to one who has not heard that it joined.
    pub(crate) fn join_when_logged(&mut self, joining: Joining, reply: Reply) {
        self.answer_when_logged(joining.origin, reply);
        self.joining.push(joining);
    }

    /// The log has the group: who waited for that is a member from now on, unless it has left meanwhile.
    pub(crate) fn join_waiting(&mut self, origin: Origin) {
        let Some(at) = self.joining.iter().position(|joining| joining.origin == origin) else { return };
        let joining = self.joining.remove(at);
        match self.left_early.iter().position(|left| *left == origin) {
            Some(at) => drop(self.left_early.remove(at)),
            None => self.join(joining),
        }
    }

    pub(super) fn leave_early(&mut self, origin: Origin) {
        let waits = self.joining.iter().any(|joining| joining.origin == origin);
        if waits && !self.left_early.contains(&origin) {
            self.left_early.push(origin);
        }
    }

    /// Whether somebody waits for the log.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.is_begun || !self.answers.is_empty()
    }

    /// The answers that leave with what the log gets now.
    pub(crate) fn take_answers(&mut self) -> Vec<(Origin, Reply)> {
        std::mem::take(&mut self.answers)
    }

    /// There is no room in the log for what happened: who waits for that is told, and a group that has not begun has nobody.
    pub(crate) fn refuse_answers(&mut self, effects: &mut Vec<Effect>) {
        for (to, reply) in self.take_answers() {
            if matches!(reply, Reply::Joined { .. }) {
                self.joining.retain(|joining| joining.origin != to);
            }
            effects.push(Effect::Reply { to, reply: Reply::Refused(not_stored()) });
        }
        let pulls = self.take_pulls_unbegun().into_iter();
        effects.extend(pulls.map(|to| Effect::Reply { to, reply: Reply::Refused(not_stored()) }));
    }

    /// The fetches of a group that will never begin.
    pub(crate) fn take_pulls_unbegun(&mut self) -> Vec<Origin> {
        if self.is_begun { Vec::new() } else { self.take_pulls() }
    }

    /// Gives up what cannot be read any more, from `from` to `end`; says how many messages that were not acknowledged.
    pub(crate) fn lose(&mut self, from: Offset, end: Offset) -> u64 {
        let mut lost = 0;
        let mut offset = from.max(self.committed());
        while offset < end {
            if self.pending.contains_key(&offset) {
                self.let_go(offset);
                self.pending.remove(&offset);
            }
            lost += u64::from(self.acked.add(offset));
            offset = offset.plus(1);
        }
        self.next = self.next.max(end);
        self.lost += lost;
        self.is_changed = true;
        lost
    }
}

fn not_stored() -> Refusal {
    Refusal::new(
        RefusalKind::StorageFull,
        "the disk is full: what was done holds until the broker ends, and a crash may take it back; make room or delete topics, and do it again",
    )
}
