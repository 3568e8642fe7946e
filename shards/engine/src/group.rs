//! A consumer group: who is in it, what each holds, what goes out next. Decisions alone, on the core that owns the topic.
//!
//! Every offset from the committed one up to `next` is acknowledged or pending; a pending one is held by a member, held
//! by a fetch, delayed, or ready to go out again. That is what makes "the committed offset never passes what somebody
//! holds" true by construction.

mod giving;
mod ordered;
mod stored;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_model::limit::{FORMER_HOLDERS_MAX, GROUP_FETCH_BYTES_MAX, MEMBER_UNSENT_BYTES_MAX};
use ringmain_model::{GroupName, Offset, PartitionRef, TopicConfig};
use ringmain_wal::RecordBatch;

use crate::acked::Acked;
use crate::command::{Origin, Reply};
use crate::group_command::{Assignment, GroupStats};

/// Who has a pending message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Member(Origin),
    /// A worker without a stream; only time or its word frees the message.
    Fetch,
    /// Nobody until its time comes.
    Delayed,
    /// Nobody: it is ready.
    Nobody,
    /// Nobody: it is on its way to the dead letters.
    Leaving,
}

/// A message that was given out and is not acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pending {
    holder: Holder,
    attempts: u32,
    /// When it is freed, monotonic milliseconds; `u64::MAX` for never.
    due_ms: u64,
    /// Members that had it, the last one last: others come first, and a late word of theirs still counts.
    former: Vec<Origin>,
}

impl Pending {
    /// One that nobody has.
    fn ready(attempts: u32) -> Self {
        Self { holder: Holder::Nobody, attempts, due_ms: u64::MAX, former: Vec::new() }
    }
}

/// A live receiver of the group.
#[derive(Debug)]
struct Member {
    origin: Origin,
    in_flight_max: u32,
    /// Pending messages that it holds.
    held: BTreeSet<Offset>,
    /// What its connection has not sent yet, oldest first: epoch, offset, bytes.
    unsent: VecDeque<(u64, Offset, usize)>,
    unsent_bytes: usize,
    /// A message counts as acknowledged when it is sent.
    acks_by_sending: bool,
    /// It wants the messages of a partition in order; and by what it is known in all partitions.
    is_ordered: bool,
    identity: u64,
    /// What this round of giving out has for it.
    filling: Option<Assignment>,
}

impl Member {
    fn has_credit(&self) -> bool {
        self.held.len() < self.in_flight_max as usize && self.unsent_bytes < MEMBER_UNSENT_BYTES_MAX
    }
}

/// A fetch that waits.
#[derive(Debug)]
struct Pull {
    origin: Origin,
    left: u32,
    /// Bytes that it may still get; it gets one message at least.
    bytes_left: usize,
    until_ms: u64,
    got: Vec<Assignment>,
}

/// What a member is when it joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Joining {
    pub(crate) origin: Origin,
    pub(crate) in_flight_max: u32,
    pub(crate) acks_by_sending: bool,
    pub(crate) is_ordered: bool,
    /// By what the member is known on its core, the same in all partitions.
    pub(crate) identity: u64,
}

/// What a round of giving out, or time, has for somebody.
#[derive(Debug)]
pub(crate) enum Given {
    /// To a member.
    Member(Origin, Assignment),
    /// The answer to a fetch, perhaps empty.
    Fetch(Origin, Vec<Assignment>),
    /// To the dead letters: it was given out as often as may be.
    Dead { offset: Offset, attempts: u32, batch: RecordBatch },
}

/// One group of one partition.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: GroupName,
    epoch: u64,
    /// The first offset that was never given out in this epoch.
    next: Offset,
    acked: Acked,
    pending: BTreeMap<Offset, Pending>,
    ready: BTreeSet<Offset>,
    /// Pending messages that were given out as often as may be and that nobody has: they leave without waiting for a member.
    dying: BTreeSet<Offset>,
    /// Held and delayed messages by the time when they are freed.
    timed: BTreeSet<(u64, Offset)>,
    members: BTreeMap<Origin, Member>,
    /// The partition's number in its topic.
    number: u32,
    /// The only member that gets messages, while one of them wants them in order.
    leader: Option<Origin>,
    /// Members that may get a message now.
    willing: BTreeSet<Origin>,
    /// Who got the last one: it goes on with the next of the willing.
    turn: Option<Origin>,
    pulls: VecDeque<Pull>,
    lost: u64,
    ack_wait_ms: u64,
    max_deliver: Option<u32>,
    /// Messages that went to the dead letters, or nowhere, because they were given out too often.
    dead: u64,
    /// It is listed for giving out at the end of the turn.
    is_listed: bool,
    /// It is stored, or needs not be: only then does it give out messages.
    is_begun: bool,
    /// Something happened that the log does not have yet.
    is_changed: bool,
    /// It stands on the list of those whose progress goes to the log.
    pub(crate) is_unlogged: bool,
    /// It waits for records to be read from the disk.
    pub(crate) is_loading: bool,
    /// Answers that leave when the log has what happened.
    answers: Vec<(Origin, Reply)>,
    /// Who joins when the log has the group, and those of them who have left before.
    joining: Vec<Joining>,
    left_early: Vec<Origin>,
    /// Its entry in the shard's list of times.
    pub(crate) scheduled_ms: Option<u64>,
}

impl Group {
    /// A group that starts at `start`. Epochs of one shard do not repeat, so that what was got from a deleted group of the same
    /// name counts for nothing in this one.
    pub(crate) fn new(name: GroupName, epoch: u64, start: Offset, config: &TopicConfig) -> Self {
        Self {
            name,
            epoch,
            next: start,
            acked: Acked::from(start),
            pending: BTreeMap::new(),
            ready: BTreeSet::new(),
            dying: BTreeSet::new(),
            timed: BTreeSet::new(),
            members: BTreeMap::new(),
            number: 0,
            leader: None,
            willing: BTreeSet::new(),
            turn: None,
            pulls: VecDeque::new(),
            lost: 0,
            ack_wait_ms: config.ack_wait_ms,
            max_deliver: config.max_deliver,
            dead: 0,
            is_listed: false,
            is_begun: true,
            is_changed: false,
            is_unlogged: false,
            is_loading: false,
            answers: Vec::new(),
            joining: Vec::new(),
            left_early: Vec::new(),
            scheduled_ms: None,
        }
    }

    /// Puts the group on the list of those that may have something to give out.
    pub(crate) fn list(&mut self, partition: PartitionRef, listed: &mut Vec<(PartitionRef, GroupName)>) {
        if !std::mem::replace(&mut self.is_listed, true) {
            listed.push((partition, self.name.clone()));
        }
    }

    /// It was taken from that list.
    pub(crate) fn unlist(&mut self) {
        self.is_listed = false;
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn committed(&self) -> Offset {
        self.acked.committed()
    }

    pub(crate) fn member_count(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn pull_count(&self) -> usize {
        self.pulls.len()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = Origin> {
        self.members.keys().copied()
    }

    pub(crate) fn stats(&self, high_water: Offset) -> GroupStats {
        GroupStats {
            name: self.name.clone(),
            epoch: self.epoch,
            committed: self.committed(),
            next: self.next,
            lag: high_water.since(self.committed()),
            members: self.members.len() as u64,
            pending: self.pending.len() as u64,
            redelivering: self.ready.len() as u64,
            lost: self.lost,
            dead: self.dead,
        }
    }

    /// Whether messages wait to leave for the dead letters, which takes no member.
    pub(crate) fn has_dying(&self) -> bool {
        !self.dying.is_empty()
    }

    /// Whether somebody would take a message now.
    pub(crate) fn has_takers(&self) -> bool {
        !self.willing.is_empty() || !self.pulls.is_empty()
    }

    /// In which of its topic's partitions it is.
    pub(crate) fn in_partition(mut self, partition: PartitionRef) -> Self {
        self.number = partition.partition;
        self
    }

    pub(crate) fn join(&mut self, joining: Joining) {
        self.leave(joining.origin);
        let member = Member {
            origin: joining.origin,
            in_flight_max: joining.in_flight_max,
            held: BTreeSet::new(),
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            acks_by_sending: joining.acks_by_sending,
            is_ordered: joining.is_ordered,
            identity: joining.identity,
            filling: None,
        };
        self.members.insert(joining.origin, member);
        self.weigh(joining.origin);
        self.choose_leader();
    }

    /// A member goes: what it holds is ready for the others at once.
    pub(crate) fn leave(&mut self, origin: Origin) {
        let Some(member) = self.members.remove(&origin) else {
            self.leave_early(origin);
            return;
        };
        self.willing.remove(&origin);
        for offset in member.held {
            self.free(offset);
        }
        self.choose_leader();
    }

    pub(crate) fn set_in_flight_max(&mut self, origin: Origin, in_flight_max: u32) {
        if let Some(member) = self.members.get_mut(&origin) {
            let before = std::mem::replace(&mut member.in_flight_max, in_flight_max);
            self.weigh(origin);
            if (before == 0) != (in_flight_max == 0) {
                self.choose_leader();
            }
        }
    }

    /// Puts a member among the willing, or takes it out, after something of it has changed.
    fn weigh(&mut self, origin: Origin) {
        if self.members.get(&origin).is_some_and(Member::has_credit) {
            self.willing.insert(origin);
        } else {
            self.willing.remove(&origin);
        }
    }

    /// A member's connection has sent its next `count` messages.
    pub(crate) fn sent(&mut self, origin: Origin, count: u32) {
        for _ in 0..count {
            let Some(member) = self.members.get_mut(&origin) else { return };
            let Some((epoch, offset, bytes)) = member.unsent.pop_front() else { break };
            member.unsent_bytes -= bytes;
            if member.acks_by_sending {
                self.ack(epoch, offset, Some(origin));
            }
        }
        self.weigh(origin);
    }

    /// An acknowledgement of a message that was got in this epoch: by a member that holds or held it, by a member while nobody
    /// else holds it (it may have got it over an earlier connection), or by a worker without a stream (`None`). Says whether
    /// it was new.
    pub(crate) fn ack(&mut self, epoch: u64, offset: Offset, by: Option<Origin>) -> bool {
        let Some(pending) = self.pending.get(&offset).filter(|_| epoch == self.epoch) else { return false };
        let counts = match (by, pending.holder) {
            (None, _) | (_, Holder::Nobody | Holder::Delayed | Holder::Leaving) => true,
            (Some(by), Holder::Member(holder)) => by == holder || pending.former.contains(&by),
            (Some(by), Holder::Fetch) => pending.former.contains(&by),
        };
        if !counts {
            return false;
        }
        self.let_go(offset);
        self.pending.remove(&offset);
        self.is_changed = true;
        self.acked.add(offset)
    }

    /// A negative acknowledgement by the holder: the message goes out again after `delay_ms`.
    pub(crate) fn nack(&mut self, epoch: u64, offset: Offset, by: Option<Origin>, now_ms: u64, delay_ms: u64) -> bool {
        let held = match self.pending.get(&offset).map(|pending| pending.holder) {
            Some(Holder::Member(holder)) => by == Some(holder),
            Some(Holder::Fetch) => by.is_none(),
            _ => false,
        };
        if epoch != self.epoch || !held {
            return false;
        }
        if delay_ms == 0 {
            self.free(offset);
        } else {
            self.let_go(offset);
            let due_ms = now_ms.saturating_add(delay_ms);
            if let Some(pending) = self.pending.get_mut(&offset) {
                pending.holder = Holder::Delayed;
                pending.due_ms = due_ms;
                self.timed.insert((due_ms, offset));
            }
            self.rewind_after(offset);
        }
        true
    }

    /// Makes a pending message ready, whoever has it.
    fn free(&mut self, offset: Offset) {
        self.let_go(offset);
        self.queue(offset);
        self.rewind_after(offset);
    }

    /// Lists a pending message that nobody has: to go out again, or to leave.
    fn queue(&mut self, offset: Offset) {
        let attempts = self.pending.get(&offset).map_or(0, |pending| pending.attempts);
        let is_dying = self.max_deliver.is_some_and(|max| attempts >= max);
        (if is_dying { &mut self.dying } else { &mut self.ready }).insert(offset);
    }

    /// Takes a pending message from its holder and out of the lists; it stays pending, held by nobody.
    fn let_go(&mut self, offset: Offset) {
        let Some(pending) = self.pending.get_mut(&offset) else { return };
        let holder = std::mem::replace(&mut pending.holder, Holder::Nobody);
        self.timed.remove(&(pending.due_ms, offset));
        pending.due_ms = u64::MAX;
        self.ready.remove(&offset);
        self.dying.remove(&offset);
        if let Holder::Member(origin) = holder {
            if pending.former.len() >= FORMER_HOLDERS_MAX {
                pending.former.remove(0);
            }
            pending.former.push(origin);
        }
        if let Holder::Member(origin) = holder
            && let Some(member) = self.members.get_mut(&origin)
        {
            member.held.remove(&offset);
            self.weigh(origin);
        }
    }

    /// Begins a new epoch at `target`: nothing is in flight, earlier acknowledgements do not count, fetches go on waiting.
    pub(crate) fn seek(&mut self, epoch: u64, target: Offset) {
        self.epoch = epoch;
        self.next = target;
        self.acked = Acked::from(target);
        self.pending.clear();
        self.ready.clear();
        self.dying.clear();
        self.timed.clear();
        for member in self.members.values_mut() {
            member.held.clear();
        }
        self.willing = self.members.values().filter(|member| member.has_credit()).map(|member| member.origin).collect();
    }

    /// The log lets go of everything below `start`. Says how many messages the group has lost by that.
    pub(crate) fn evict(&mut self, start: Offset) -> u64 {
        if start <= self.committed() {
            return 0;
        }
        while let Some(offset) = self.pending.first_key_value().map(|(offset, _)| *offset) {
            if offset >= start {
                break;
            }
            self.let_go(offset);
            self.pending.remove(&offset);
        }
        let lost = self.acked.lift(start);
        self.next = self.next.max(start).max(self.committed());
        self.lost += lost;
        lost
    }

    /// Adds a fetch that takes up to `count` messages, now or until `until_ms`; with a count of 0 it only looks whether there is one.
    pub(crate) fn pull(&mut self, origin: Origin, count: u32, until_ms: u64) {
        self.pulls.push_back(Pull {
            origin,
            left: count,
            bytes_left: GROUP_FETCH_BYTES_MAX,
            until_ms,
            got: Vec::new(),
        });
    }

    /// Takes back an asker's fetch; says whether it was still waiting.
    pub(crate) fn abandon_pull(&mut self, origin: Origin) -> bool {
        let before = self.pulls.len();
        self.pulls.retain(|pull| pull.origin != origin);
        self.pulls.len() < before
    }

    /// Takes out the fetches that wait, to refuse them.
    pub(crate) fn take_pulls(&mut self) -> Vec<Origin> {
        self.pulls.drain(..).map(|pull| pull.origin).collect()
    }

    /// When something in the group is due.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let timed = self.timed.first().map(|(due_ms, _)| *due_ms);
        let pulls = self.pulls.iter().map(|pull| pull.until_ms).min();
        timed.into_iter().chain(pulls).min()
    }

    /// Frees what was held or delayed until now.
    pub(crate) fn free_due(&mut self, now_ms: u64) {
        while let Some((due_ms, offset)) = self.timed.first().copied() {
            if due_ms > now_ms {
                break;
            }
            self.free(offset);
        }
    }

    /// Answers fetches whose time is over: with nothing.
    pub(crate) fn end_pulls(&mut self, now_ms: u64, given: &mut Vec<Given>) {
        self.pulls.retain(|pull| {
            if pull.until_ms <= now_ms {
                given.push(Given::Fetch(pull.origin, Vec::new()));
            }
            pull.until_ms > now_ms
        });
    }
}
