//! The giving out of a group's messages, to fetches and to members in turn. Decisions alone, on the core that owns the topic.

use std::collections::BTreeSet;
use std::ops::Bound;

use ringmain_model::Offset;
use ringmain_model::limit::GROUP_PENDING_MAX;
use ringmain_wal::RecordBatch;

use super::{Given, Group, Holder, Pending};
use crate::command::Origin;
use crate::group_command::{Assigned, Assignment};
use crate::log::stored::Lookup;

impl Group {
    /// Gives out what can go out: first what leaves for the dead letters, then what was given out before, then new messages; fetches first, members in turn.
    /// `lookup` finds the batch that holds an offset; what it cannot find now stops the round and is returned.
    pub(crate) fn give_out(
        &mut self,
        high_water: Offset,
        mut lookup: impl FnMut(Offset) -> Lookup<RecordBatch>,
        now_ms: u64,
        given: &mut Vec<Given>,
    ) -> Lookup<()> {
        let mut stopped = Lookup::Nothing;
        let mut batch: Option<RecordBatch> = None;
        let mut filled = BTreeSet::new();
        loop {
            let is_dead = self.has_dying();
            let (offset, again) = match self.dying.first().or(self.ready.first()) {
                Some(offset) => (*offset, true),
                None if self.next < high_water && self.pending.len() < GROUP_PENDING_MAX => (self.next, false),
                None => break,
            };
            let at_hand = batch.take().filter(|batch| batch.base() <= offset && offset < batch.end());
            if !is_dead && self.is_held_up() {
                break;
            }
            let has_takers = is_dead || self.has_member_to_give() || self.has_fetch_to_give();
            let found = match at_hand
                .map_or_else(|| if has_takers { lookup(offset) } else { Lookup::Nothing }, Lookup::Found)
            {
                Lookup::Found(found) => found,
                Lookup::Wanted(wanted) => {
                    stopped = Lookup::Wanted(wanted);
                    break;
                }
                Lookup::Lost(from, end) => {
                    stopped = Lookup::Lost(from, end);
                    break;
                }
                Lookup::Nothing => {
                    // Retention has passed it: `evict` comes before, so there is nothing to give.
                    debug_assert!(!has_takers, "offset {offset} of a group is not in the log");
                    break;
                }
            };
            if is_dead {
                let attempts = self.hold_dead(offset);
                given.push(Given::Dead { offset, attempts, batch: found.clone() });
                batch = Some(found);
                continue;
            }
            let taken = self.give_to_fetch(offset, &found, now_ms)
                || self.give_to_member(offset, &found, now_ms, &mut filled, given);
            batch = Some(found);
            if !taken {
                break;
            }
            if !again {
                self.next = offset.plus(1);
            }
        }
        for origin in std::mem::take(&mut filled) {
            let filling = self.members.get_mut(&origin).and_then(|member| member.filling.take());
            given.extend(filling.map(|assignment| Given::Member(origin, assignment)));
        }
        let may_take = self.leader.is_none();
        let is_new = self.next < high_water && self.pending.len() < GROUP_PENDING_MAX;
        let is_left = may_take && (!self.ready.is_empty() || is_new);
        self.pulls.retain_mut(|pull| {
            let only_looks = pull.left == 0 && pull.got.is_empty();
            if pull.got.is_empty() && !(only_looks && is_left) {
                return true;
            }
            given.push(Given::Fetch(pull.origin, std::mem::take(&mut pull.got)));
            false
        });
        stopped
    }

    /// The message is nobody's until it is known whether the dead letters have it. Says how often it was given out.
    fn hold_dead(&mut self, offset: Offset) -> u32 {
        self.dying.remove(&offset);
        self.pending.get_mut(&offset).map_or(0, |pending| {
            pending.holder = Holder::Leaving;
            pending.attempts
        })
    }

    /// The dead letters have the message, or nobody wants it: it is done with.
    pub(crate) fn dead_is_gone(&mut self, epoch: u64, offset: Offset) {
        let is_leaving = self.pending.get(&offset).is_some_and(|pending| pending.holder == Holder::Leaving);
        if epoch == self.epoch && is_leaving {
            self.dead += 1;
            self.ack(epoch, offset, None);
        }
    }

    /// The dead letters do not have it: once more, later.
    pub(crate) fn dead_stays(&mut self, epoch: u64, offset: Offset, due_ms: u64) {
        let is_leaving = self.pending.get(&offset).is_some_and(|pending| pending.holder == Holder::Leaving);
        if epoch == self.epoch
            && is_leaving
            && let Some(pending) = self.pending.get_mut(&offset)
        {
            (pending.holder, pending.due_ms) = (Holder::Delayed, due_ms);
            self.timed.insert((due_ms, offset));
        }
    }

    fn has_fetch_to_give(&self) -> bool {
        self.leader.is_none() && self.pulls.iter().any(|pull| pull.left > 0)
    }

    fn has_member_to_give(&self) -> bool {
        self.leader.map_or(!self.willing.is_empty(), |leader| self.willing.contains(&leader))
    }

    fn give_to_fetch(&mut self, offset: Offset, batch: &RecordBatch, now_ms: u64) -> bool {
        if self.leader.is_some() {
            // A member has the partition; fetches wait.
            return false;
        }
        let Some(at) = self.pulls.iter().position(|pull| pull.left > 0) else { return false };
        let attempt = self.hold(offset, Holder::Fetch, now_ms.saturating_add(self.ack_wait_ms));
        let epoch = self.epoch;
        let pull = &mut self.pulls[at];
        pull.bytes_left = pull.bytes_left.saturating_sub(record_bytes(batch));
        pull.left = if pull.bytes_left == 0 { 0 } else { pull.left - 1 };
        match pull.got.last_mut() {
            Some(last) if last.batch.base() == batch.base() => last.records.push(Assigned { offset, attempt }),
            _ => pull.got.push(Assignment { epoch, batch: batch.clone(), records: vec![Assigned { offset, attempt }] }),
        }
        true
    }

    /// Whose turn it is among the willing; the member that had the message last gets it only when there is no other.
    fn next_willing(&self, last: Option<Origin>) -> Option<Origin> {
        if let Some(leader) = self.leader {
            return self.willing.contains(&leader).then_some(leader);
        }
        let after = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let order = self.willing.range((after, Bound::Unbounded)).chain(&self.willing);
        let mut first_two = order.copied().take(2);
        let first = first_two.next()?;
        if Some(first) == last { first_two.next().or(Some(first)) } else { Some(first) }
    }

    fn give_to_member(
        &mut self,
        offset: Offset,
        batch: &RecordBatch,
        now_ms: u64,
        filled: &mut BTreeSet<Origin>,
        given: &mut Vec<Given>,
    ) -> bool {
        let last = self.pending.get(&offset).and_then(|pending| pending.former.last().copied());
        let Some(origin) = self.next_willing(last) else { return false };
        self.turn = Some(origin);
        let acks_by_sending = self.members.get(&origin).is_some_and(|member| member.acks_by_sending);
        let due_ms = if acks_by_sending { u64::MAX } else { now_ms.saturating_add(self.ack_wait_ms) };
        let attempt = self.hold(offset, Holder::Member(origin), due_ms);
        let (epoch, bytes) = (self.epoch, record_bytes(batch));
        let Some(member) = self.members.get_mut(&origin) else { return false };
        member.held.insert(offset);
        member.unsent.push_back((epoch, offset, bytes));
        member.unsent_bytes += bytes;
        filled.insert(origin);
        match &mut member.filling {
            Some(filling) if filling.batch.base() == batch.base() => filling.records.push(Assigned { offset, attempt }),
            filling => {
                let records = vec![Assigned { offset, attempt }];
                let full = filling.replace(Assignment { epoch, batch: batch.clone(), records });
                given.extend(full.map(|full| Given::Member(origin, full)));
            }
        }
        self.weigh(origin);
        true
    }

    /// Notes who holds an offset from now on; says which attempt it is.
    fn hold(&mut self, offset: Offset, holder: Holder, due_ms: u64) -> u32 {
        self.ready.remove(&offset);
        let pending = self.pending.entry(offset).or_insert_with(|| Pending::ready(0));
        pending.attempts = pending.attempts.saturating_add(1);
        (pending.holder, pending.due_ms) = (holder, due_ms);
        let attempts = pending.attempts;
        self.is_changed |= attempts > 1;
        if due_ms != u64::MAX {
            self.timed.insert((due_ms, offset));
        }
        attempts
    }
}

/// What a record of a batch takes on the average: near enough for bounds, and cheap.
fn record_bytes(batch: &RecordBatch) -> usize {
    batch.bytes().len() / usize::try_from(batch.count()).unwrap_or(1).max(1)
}
