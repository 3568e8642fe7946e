//! A worker's fetch from a topic of several partitions, as a state machine: which partition is asked next, and when. On the core of the connection.
//!
//! Partitions are asked in turn, without waiting, and the first that has messages gives the answer. When none has, one look waits
//! in each of them; what is answered is asked again, alone and one after another, and looked into again if it gives nothing. So a
//! partition is looked into, about to be asked, being asked, or left out for a while because the broker was too busy. One question
//! for messages is on its way at most: what a second one got would find nobody.
//!
//! A group begins in all partitions before a message of it is given, so that none misses what is published from then on.

#[cfg(test)]
mod tests;

use ringmain_driver::{GroupAction, TopicPlace};
use ringmain_engine::{Assignment, GroupStart, Reply};
use ringmain_model::limit::PARTITIONS_PER_TOPIC_MAX;
use ringmain_model::{GroupName, Incarnation, PartitionRef, Refusal, RefusalKind};

use super::gather::Room;

/// After how long partitions are asked that were left out because the broker was too busy, in milliseconds: at least, and so much
/// more by chance. Fetches that kept in step would find the way full of each other's questions, the last of them always.
const ROUND_MS: u64 = 150;
const ROUND_SPREAD_MS: u32 = 200;
/// How many of them: so many fetches that find no place make few questions.
const ROUND_PARTITIONS: usize = 4;

/// What a connection remembers of the group that it fetched for last: that it has begun in all partitions, in these epochs. Epochs do
/// not repeat, so that a group which was deleted since, or made to seek, shows.
#[derive(Debug)]
pub(super) struct Begun {
    incarnation: Incarnation,
    group: GroupName,
    /// By partition.
    epochs: Box<[u64]>,
}

/// One question to one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ask {
    pub(super) partition: u32,
    /// It waits until there is something, and gets nothing of it.
    pub(super) looks: bool,
    pub(super) action: GroupAction,
}

/// What is to be done next.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Wait for answers, or until [`Worker::due_ms`].
    Wait,
    Ask(Vec<Ask>),
    /// Answer with what a partition gave, which may be nothing.
    Give {
        partition: PartitionRef,
        epoch: u64,
        assignments: Vec<Assignment>,
    },
    Refuse(Refusal),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The group begins in all partitions.
    Begin,
    /// Partitions are asked in turn.
    Turn,
    /// A look waits in each partition, or it is about to be asked.
    Wait,
}

/// The time, and whether the broker goes down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now_ms: u64,
    pub(super) is_draining: bool,
}

/// What a worker wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Where a group that is not there begins.
    pub(super) start: GroupStart,
    /// Messages at most.
    pub(super) count: u32,
    /// Until when it waits for the first of them, monotonic milliseconds.
    pub(super) until_ms: u64,
}

/// A fetch on its way. Sets of partitions are bits.
#[derive(Debug)]
pub(super) struct Worker {
    place: TopicPlace,
    group: GroupName,
    wanted: Wanted,
    phase: Phase,
    /// The partition that was asked last, or is to be asked first.
    at: u32,
    /// How many were asked in the first turn.
    asked: u32,
    /// The question to `at` is not answered.
    is_asking: bool,
    /// Where the group is to begin and has not answered.
    probes: u64,
    /// Where a look is not answered.
    looks: u64,
    /// Where a look was answered, so that there may be messages.
    woken: u64,
    /// Where the broker was too busy for a look or a question.
    left_out: u64,
    /// When those are asked.
    round_ms: Option<u64>,
    /// Differs between connections and rounds.
    chance: u32,
    /// For partitions in which the group is to begin and which were too busy.
    room: Room,
    /// What was said last by a broker that was too busy.
    busy: Option<Refusal>,
    /// A partition answered whether it has messages.
    has_heard: bool,
    /// Messages to be given once the group has begun everywhere.
    held: Option<(PartitionRef, u64, Vec<Assignment>)>,
    begun: Begun,
    is_begun: bool,
}

impl Worker {
    /// A fetch that begins its round at partition `first`, modulo their number.
    pub(super) fn new(place: TopicPlace, group: GroupName, wanted: Wanted, first: u32, begun: Option<Begun>) -> Self {
        let is_same = |begun: &Begun| {
            let has_all = begun.epochs.len() == place.partitions as usize;
            begun.incarnation == place.incarnation && begun.group == group && has_all
        };
        let begun = begun.filter(is_same);
        let is_begun = begun.is_some();
        let begun = begun.unwrap_or_else(|| Begun {
            incarnation: place.incarnation,
            group: group.clone(),
            epochs: vec![0; place.partitions as usize].into(),
        });
        let at = first % place.partitions.max(1);
        Self {
            place,
            group,
            wanted,
            phase: Phase::Begin,
            at,
            asked: 0,
            is_asking: false,
            probes: 0,
            looks: 0,
            woken: 0,
            left_out: 0,
            round_ms: None,
            chance: first,
            room: Room::default(),
            busy: None,
            has_heard: false,
            held: None,
            begun,
            is_begun,
        }
    }

    pub(super) fn group(&self) -> &GroupName {
        &self.group
    }

    /// Whether looks are not answered, so that they should be taken back at the end.
    pub(super) fn has_looks(&self) -> bool {
        self.looks != 0
    }

    /// When [`Worker::on_time`] is to be called, monotonic milliseconds, if no answer changes it before.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.round_ms
    }

    /// What the connection is to remember.
    pub(super) fn into_begun(self) -> Option<Begun> {
        self.is_begun.then_some(self.begun)
    }

    pub(super) fn begin(&mut self) -> Step {
        if self.is_begun {
            return self.turn(self.at);
        }
        self.begin_except(0)
    }

    /// Takes the answer of a partition: to a look, or to another question.
    pub(super) fn take(&mut self, (number, looks): (u32, bool), reply: Reply, moment: Moment) -> Step {
        match reply {
            Reply::Pulled { .. } if looks => self.looked(number, moment),
            Reply::Pulled { partition, epoch, .. } if self.phase == Phase::Begin => {
                self.probed(partition.partition, epoch, moment)
            }
            Reply::Pulled { partition, epoch, assignments, .. } => self.pulled(partition, epoch, assignments, moment),
            Reply::Refused(refusal) if looks => self.look_refused(number, refusal, moment),
            Reply::Refused(refusal) if self.phase == Phase::Begin => self.probe_refused(number, refusal, moment),
            Reply::Refused(refusal) => self.pull_refused(number, refusal, moment),
            // The note that a look was taken back.
            _ => Step::Wait,
        }
    }

    /// The time that was asked for has come, or the broker goes down.
    pub(super) fn on_time(&mut self, moment: Moment) -> Step {
        let has_time = self.has_time(moment);
        if has_time && self.round_ms.is_none_or(|round_ms| moment.now_ms < round_ms) {
            return Step::Wait;
        }
        self.round_ms = None;
        match self.phase {
            Phase::Begin if self.probes == 0 && has_time => {
                self.room.make();
                self.begin_where_busy()
            }
            Phase::Begin if self.probes == 0 => self.end(),
            Phase::Wait if has_time => {
                for _ in 0..ROUND_PARTITIONS {
                    let Some(number) = self.next_of(self.left_out & !self.woken) else { break };
                    self.woken |= bit(number);
                }
                self.left_out &= !self.woken;
                self.wait(moment)
            }
            Phase::Wait if !self.is_asking && self.looks == 0 => self.end(),
            // Answers are under way, and end it.
            Phase::Begin | Phase::Turn | Phase::Wait => Step::Wait,
        }
    }

    /// Has the group begin in all partitions but those.
    fn begin_except(&mut self, begun: u64) -> Step {
        (self.phase, self.is_begun, self.room) = (Phase::Begin, false, Room::default());
        let numbers: Vec<_> = (0..self.place.partitions).filter(|number| begun & bit(*number) == 0).collect();
        self.probes = numbers.iter().map(|number| bit(*number)).sum();
        Step::Ask(numbers.into_iter().map(|number| self.probe(number)).collect())
    }

    fn begin_where_busy(&mut self) -> Step {
        let Some(number) = self.room.next() else { return Step::Wait };
        self.probes |= bit(number);
        Step::Ask(vec![self.probe(number)])
    }

    /// The group has begun in a partition.
    fn probed(&mut self, number: u32, epoch: u64, moment: Moment) -> Step {
        self.probes &= !bit(number);
        self.note_epoch(number, epoch);
        self.room.make();
        let step = self.begin_where_busy();
        if self.probes != 0 {
            return step;
        }
        self.is_begun = true;
        self.give_held().unwrap_or_else(|| self.go_on(moment))
    }

    fn probe_refused(&mut self, number: u32, refusal: Refusal, moment: Moment) -> Step {
        self.probes &= !bit(number);
        if refusal.kind != RefusalKind::Busy {
            return self.give_held().unwrap_or(Step::Refuse(refusal));
        }
        self.room.want(number);
        let step = self.begin_where_busy();
        if self.probes != 0 {
            return step;
        }
        // Messages do not wait for that: the next fetch has the group begin.
        if let Some(given) = self.give_held() {
            return given;
        }
        self.busy = Some(refusal);
        if !self.has_time(moment) {
            return self.end();
        }
        self.plan_round(moment);
        Step::Wait
    }

    fn give_held(&mut self) -> Option<Step> {
        let (partition, epoch, assignments) = self.held.take()?;
        Some(Step::Give { partition, epoch, assignments })
    }

    fn looked(&mut self, number: u32, moment: Moment) -> Step {
        self.looks &= !bit(number);
        self.woken |= bit(number);
        self.has_heard = true;
        match self.phase {
            Phase::Wait if self.is_asking => Step::Wait,
            Phase::Wait if self.has_time(moment) => self.wait(moment),
            Phase::Wait => self.end(),
            // It is asked later.
            Phase::Begin | Phase::Turn => Step::Wait,
        }
    }

    fn look_refused(&mut self, number: u32, refusal: Refusal, moment: Moment) -> Step {
        self.looks &= !bit(number);
        if refusal.kind == RefusalKind::Busy {
            self.leave_out(number, refusal, moment);
            let is_over = self.phase == Phase::Wait && !self.is_asking && self.looks == 0 && !self.has_time(moment);
            return if is_over { self.end() } else { Step::Wait };
        }
        if self.phase == Phase::Wait && !self.is_asking {
            return Step::Refuse(refusal);
        }
        // What is on its way may bring messages and is waited for; then this partition is asked itself.
        self.woken |= bit(number);
        Step::Wait
    }

    fn pulled(&mut self, partition: PartitionRef, epoch: u64, assignments: Vec<Assignment>, moment: Moment) -> Step {
        let number = partition.partition;
        self.has_heard = true;
        self.has_asked();
        if self.begun.epochs.get(number as usize) != Some(&epoch) {
            // It was made to seek, or deleted and made again: then it is perhaps not there in the others.
            self.note_epoch(number, epoch);
            self.held = (!assignments.is_empty()).then_some((partition, epoch, assignments));
            return self.begin_except(bit(number));
        }
        if !assignments.is_empty() {
            return Step::Give { partition, epoch, assignments };
        }
        self.go_on(moment)
    }

    fn pull_refused(&mut self, number: u32, refusal: Refusal, moment: Moment) -> Step {
        self.has_asked();
        if refusal.kind != RefusalKind::Busy {
            return Step::Refuse(refusal);
        }
        if self.phase == Phase::Wait {
            self.leave_out(number, refusal, moment);
        } else {
            self.busy = Some(refusal);
        }
        self.go_on(moment)
    }

    fn has_asked(&mut self) {
        self.is_asking = false;
        self.asked += u32::from(self.phase == Phase::Turn);
    }

    /// The partition that was asked has nothing.
    fn go_on(&mut self, moment: Moment) -> Step {
        if self.asked < self.place.partitions {
            let step = u32::from(self.asked > 0);
            return self.turn((self.at + step) % self.place.partitions);
        }
        if self.has_time(moment) { self.wait(moment) } else { self.end() }
    }

    fn turn(&mut self, number: u32) -> Step {
        self.phase = Phase::Turn;
        Step::Ask(vec![self.pull(number)])
    }

    /// Looks into partitions of which nothing is known, and asks one that may have something.
    fn wait(&mut self, moment: Moment) -> Step {
        self.phase = Phase::Wait;
        let known = self.looks | self.woken | self.left_out | if self.is_asking { bit(self.at) } else { 0 };
        let wait_ms = self.wanted.until_ms.saturating_sub(moment.now_ms);
        let missing = (0..self.place.partitions).filter(|number| known & bit(*number) == 0);
        let mut asks: Vec<_> = missing.map(|number| self.look_into(number, wait_ms)).collect();
        self.looks |= asks.iter().map(|ask| bit(ask.partition)).sum::<u64>();
        if self.left_out != 0 {
            self.plan_round(moment);
        }
        if !self.is_asking
            && let Some(number) = self.next_of(self.woken)
        {
            self.woken &= !bit(number);
            asks.push(self.pull(number));
        }
        if asks.is_empty() { Step::Wait } else { Step::Ask(asks) }
    }

    /// The time is over: nothing came, unless nobody could be asked whether something did.
    fn end(&mut self) -> Step {
        if let Some(busy) = self.busy.take().filter(|_| !self.has_heard) {
            return Step::Refuse(busy);
        }
        let epoch = self.begun.epochs.get(self.at as usize).copied().unwrap_or_default();
        Step::Give { partition: self.place.partition(self.at), epoch, assignments: Vec::new() }
    }

    fn leave_out(&mut self, number: u32, busy: Refusal, moment: Moment) {
        self.left_out |= bit(number);
        self.busy = Some(busy);
        self.plan_round(moment);
    }

    fn plan_round(&mut self, moment: Moment) {
        if self.round_ms.is_none() {
            self.chance = self.chance.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            let wait_ms = ROUND_MS + u64::from((self.chance >> 16) % ROUND_SPREAD_MS);
            self.round_ms = Some((moment.now_ms + wait_ms).min(self.wanted.until_ms));
        }
    }

    /// The first partition of a set after the one that was asked last.
    fn next_of(&self, set: u64) -> Option<u32> {
        let count = self.place.partitions;
        (1..=count).map(|step| (self.at + step) % count).find(|number| set & bit(*number) != 0)
    }

    fn note_epoch(&mut self, number: u32, epoch: u64) {
        if let Some(known) = self.begun.epochs.get_mut(number as usize) {
            *known = epoch;
        }
    }

    fn has_time(&self, moment: Moment) -> bool {
        !moment.is_draining && moment.now_ms < self.wanted.until_ms
    }

    fn pull(&mut self, number: u32) -> Ask {
        (self.at, self.is_asking) = (number, true);
        let Wanted { start, count, .. } = self.wanted;
        Ask { partition: number, looks: false, action: GroupAction::Pull { start, count, wait_ms: 0 } }
    }

    /// Asks for no messages, so that the group is there. That looks may wait at the same time is why it is none.
    fn probe(&self, partition: u32) -> Ask {
        let action = GroupAction::Pull { start: self.wanted.start, count: 0, wait_ms: 0 };
        Ask { partition, looks: false, action }
    }

    fn look_into(&self, partition: u32, wait_ms: u64) -> Ask {
        let action = GroupAction::Pull { start: self.wanted.start, count: 0, wait_ms };
        Ask { partition, looks: true, action }
    }
}

fn bit(partition: u32) -> u64 {
    const { assert!(PARTITIONS_PER_TOPIC_MAX <= u64::BITS) };
    1_u64.checked_shl(partition).unwrap_or(0)
}
