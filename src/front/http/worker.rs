//! A worker's fetch from a topic of several partitions, as a state machine: which partition is asked next, and when. On the core of the connection.
//!
//! Partitions are asked in turn, without waiting, and the first that has messages gives the answer. When none has, one look waits
//! in each of them; the first that is answered ends the others, and all are asked again. A group begins in all partitions before a
//! message of it is given, so that none misses what is published from then on.

#[cfg(test)]
mod tests;

use ringmain_driver::{GroupWish, TopicPlace};
use ringmain_engine::{Assignment, GroupStart, Reply};
use ringmain_model::{GroupName, Incarnation, PartitionRef, Refusal, RefusalKind};

use super::gather::Room;

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
    pub(super) looks: bool,
    pub(super) wish: GroupWish,
}

/// What is to be done next.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Wait for answers.
    Wait,
    /// Ask, once looks that still wait are taken back if that is wanted.
    Ask {
        takes_back: bool,
        asks: Vec<Ask>,
    },
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
    /// A look waits in each partition.
    Look,
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

/// A fetch on its way.
#[derive(Debug)]
pub(super) struct Worker {
    place: TopicPlace,
    group: GroupName,
    wanted: Wanted,
    phase: Phase,
    /// The partition whose turn it is, and how many were asked before it.
    at: u32,
    asked: u32,
    /// Bits of the partitions in which a look is not answered.
    looks: u64,
    /// For partitions in which the group is to begin and which were too busy.
    room: Room,
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
            looks: 0,
            room: Room::default(),
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

    /// What the connection is to remember.
    pub(super) fn into_begun(self) -> Option<Begun> {
        self.is_begun.then_some(self.begun)
    }

    pub(super) fn begin(&mut self) -> Step {
        if self.is_begun {
            return self.turn(self.at, false);
        }
        self.look(0)
    }

    /// Takes the answer of a partition.
    pub(super) fn take(&mut self, (number, looks): (u32, bool), reply: Reply, moment: Moment) -> Step {
        match reply {
            Reply::Pulled { partition, epoch, .. } if looks => self.looked(partition, epoch, moment),
            Reply::Pulled { partition, epoch, assignments, .. } => self.pulled(partition, epoch, assignments, moment),
            // A look that was taken back and is not there any more: others were asked since, and they decide.
            Reply::Refused(_) if looks && self.phase == Phase::Turn => {
                self.looks &= !bit(number);
                Step::Wait
            }
            Reply::Refused(refusal) if self.can_ask_again(number, &refusal) => {
                self.looks &= !bit(number);
                self.room.want(number);
                self.begin_where_busy()
            }
            Reply::Refused(refusal) => Step::Refuse(refusal),
            // The note that a look was taken back.
            _ => Step::Wait,
        }
    }

    /// Whether a partition was too busy for the group to begin, and there will be room.
    fn can_ask_again(&self, number: u32, refusal: &Refusal) -> bool {
        let will_be_room = self.looks != bit(number) || self.room.is_left();
        self.phase == Phase::Begin && refusal.kind == RefusalKind::Busy && will_be_room
    }

    fn begin_where_busy(&mut self) -> Step {
        let Some(number) = self.room.next() else { return Step::Wait };
        self.looks |= bit(number);
        Step::Ask { takes_back: false, asks: vec![self.look_into(number, 0)] }
    }

    fn looked(&mut self, partition: PartitionRef, epoch: u64, moment: Moment) -> Step {
        self.looks &= !bit(partition.partition);
        match self.phase {
            Phase::Begin => {
                if let Some(known) = self.begun.epochs.get_mut(partition.partition as usize) {
                    *known = epoch;
                }
                self.room.make();
                let step = self.begin_where_busy();
                self.is_begun = self.looks == 0;
                if self.is_begun { self.turn(self.at, false) } else { step }
            }
            Phase::Turn => Step::Wait,
            Phase::Look if !self.has_time(moment) => Step::Give { partition, epoch, assignments: Vec::new() },
            Phase::Look => self.turn(partition.partition, true),
        }
    }

    fn pulled(&mut self, partition: PartitionRef, epoch: u64, assignments: Vec<Assignment>, moment: Moment) -> Step {
        if self.begun.epochs.get(partition.partition as usize) != Some(&epoch) {
            // It was made to seek, or deleted and made again: the next fetch looks whether it is everywhere.
            self.is_begun = false;
        }
        self.asked += 1;
        if !assignments.is_empty() {
            return Step::Give { partition, epoch, assignments };
        }
        if self.asked < self.place.partitions {
            self.at = (self.at + 1) % self.place.partitions;
            return Step::Ask { takes_back: false, asks: vec![self.pull()] };
        }
        if !self.has_time(moment) {
            return Step::Give { partition, epoch, assignments };
        }
        self.phase = Phase::Look;
        self.look(self.wanted.until_ms - moment.now_ms)
    }

    fn has_time(&self, moment: Moment) -> bool {
        !moment.is_draining && moment.now_ms < self.wanted.until_ms
    }

    /// Asks the partitions in turn, from `first` on.
    fn turn(&mut self, first: u32, takes_back: bool) -> Step {
        (self.phase, self.at, self.asked) = (Phase::Turn, first, 0);
        Step::Ask { takes_back, asks: vec![self.pull()] }
    }

    fn pull(&self) -> Ask {
        let Wanted { start, count, .. } = self.wanted;
        Ask { partition: self.at, looks: false, wish: GroupWish::Pull { start, count, wait_ms: 0 } }
    }

    /// Looks into all partitions. Where an earlier look is not answered yet, it goes on: should it still be on its way back, all are
    /// asked once more for nothing, and if the broker was too busy to take it back it still sees what comes.
    fn look(&mut self, wait_ms: u64) -> Step {
        let missing = (0..self.place.partitions).filter(|partition| self.looks & bit(*partition) == 0);
        let asks: Vec<_> = missing.map(|partition| self.look_into(partition, wait_ms)).collect();
        self.looks |= asks.iter().map(|ask| bit(ask.partition)).sum::<u64>();
        Step::Ask { takes_back: false, asks }
    }

    fn look_into(&self, partition: u32, wait_ms: u64) -> Ask {
        let wish = GroupWish::Pull { start: self.wanted.start, count: 0, wait_ms };
        Ask { partition, looks: true, wish }
    }
}

fn bit(partition: u32) -> u64 {
    1_u64.checked_shl(partition).unwrap_or(0)
}
