//! Groups against a small model: random interleavings of everything that can happen to one; runs on the test thread.

mod deaths;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use ringmain_model::{
    CoreId, GroupName, Incarnation, Message, Offset, PartitionRef, Retention, ShardId, TopicConfig, TopicName,
};

use crate::acked::Acked;
use crate::*;
use deaths::{Deaths, IMMORTAL};

const PARTITION: PartitionRef = PartitionRef { incarnation: Incarnation(1), partition: 0 };
const ACK_WAIT_MS: u64 = 1000;
const MEMBERS: u64 = 4;

#[derive(Clone, Debug)]
enum Step {
    Publish(usize),
    Join(u64, u32),
    Leave(u64),
    /// Acknowledge the n-th of all messages that the member ever got, in the epoch in which it got it.
    Ack(u64, usize),
    /// Acknowledge an offset that the member may never have got.
    AckAny(u64, u64),
    Nack(u64, usize, u64),
    Sent(u64, u32),
    Pull(u32, u64),
    AckPulled(usize),
    PassTime(u64),
    Seek(u64),
    /// The dead letters have the n-th letter on its way, or do not take it.
    AnswerLetter(usize, bool),
    /// A letter that was answered before is answered again.
    AnswerAgain(usize, bool),
    /// `max_deliver` changes.
    Change(Option<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    let member = || 0..MEMBERS;
    prop_oneof![
        4 => (1_usize..5).prop_map(Step::Publish),
        3 => (member(), 1_u32..5).prop_map(|(member, credit)| Step::Join(member, credit)),
        1 => member().prop_map(Step::Leave),
        8 => (member(), 0_usize..12).prop_map(|(member, nth)| Step::Ack(member, nth)),
        2 => (member(), 0_u64..20).prop_map(|(member, offset)| Step::AckAny(member, offset)),
        2 => (member(), 0_usize..12, prop_oneof![Just(0), Just(300_u64)]).prop_map(|(a, b, c)| Step::Nack(a, b, c)),
        2 => (member(), 1_u32..4).prop_map(|(member, count)| Step::Sent(member, count)),
        2 => (1_u32..4, prop_oneof![Just(0), Just(500_u64)]).prop_map(|(count, wait_ms)| Step::Pull(count, wait_ms)),
        2 => (0_usize..8).prop_map(Step::AckPulled),
        2 => prop_oneof![Just(200_u64), Just(600), Just(1500)].prop_map(Step::PassTime),
        1 => (0_u64..20).prop_map(Step::Seek),
        4 => (0_usize..4, any::<bool>()).prop_map(|(nth, is_stored)| Step::AnswerLetter(nth, is_stored)),
        1 => (0_usize..4, any::<bool>()).prop_map(|(nth, is_stored)| Step::AnswerAgain(nth, is_stored)),
        1 => prop_oneof![Just(None), Just(Some(1)), Just(Some(2)), Just(Some(4))].prop_map(Step::Change),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Member(u64),
    Fetch,
    Delayed,
    Nobody,
    /// A letter to the dead letters is on its way.
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Given {
    holder: Holder,
    attempts: u32,
    due_ms: u64,
}

/// What must be true of the group, kept in the plainest way.
struct Model {
    shard: Shard,
    now: Now,
    sends_acknowledge: bool,
    retention: u64,
    published: u64,
    epoch: u64,
    /// First offset never given out in this epoch.
    next: u64,
    start: u64,
    acked: BTreeSet<u64>,
    given: BTreeMap<u64, Given>,
    lost: u64,
    credit: BTreeMap<u64, u32>,
    /// All that a member ever got: epoch and offset.
    got: BTreeMap<u64, Vec<(u64, u64)>>,
    unsent: BTreeMap<u64, Vec<(u64, u64)>>,
    pulled: Vec<(u64, u64)>,
    max_deliver: Option<u32>,
    has_dead_letters: bool,
    /// Letters that were not answered, and those that were.
    letters: Vec<DeadLetter>,
    answered: Vec<DeadLetter>,
    /// The id of each message's letters, by epoch and offset: all tries have the same.
    letter_ids: BTreeMap<(u64, u64), [u8; 16]>,
    dead: u64,
}

fn name() -> GroupName {
    GroupName::new("g").unwrap()
}

fn origin(member: u64) -> Origin {
    Origin { core: CoreId(0), asker: member, request: 0 }
}

impl Model {
    fn new(retention: u64, sends_acknowledge: bool, deaths: Deaths) -> Self {
        let Deaths { max_deliver, has_dead_letters } = deaths;
        let mut model = Self {
            shard: Shard::new(ShardId(0), ShardSettings::default()),
            now: Now::default(),
            sends_acknowledge,
            retention,
            published: 0,
            epoch: 0,
            next: 0,
            start: 0,
            acked: BTreeSet::new(),
            given: BTreeMap::new(),
            lost: 0,
            credit: BTreeMap::new(),
            got: BTreeMap::new(),
            unsent: BTreeMap::new(),
            pulled: Vec::new(),
            max_deliver,
            has_dead_letters,
            letters: Vec::new(),
            answered: Vec::new(),
            letter_ids: BTreeMap::new(),
            dead: 0,
        };
        let retention = Retention { max_messages: retention, ..Retention::default() };
        let dead_letter = has_dead_letters.then(|| TopicName::new("dead").unwrap());
        let config =
            TopicConfig { retention, ack_wait_ms: ACK_WAIT_MS, max_deliver, dead_letter, ..TopicConfig::default() };
        let create = Command::Create {
            name: TopicName::new("t").unwrap(),
            partitions: 1,
            config,
            incarnation: PARTITION.incarnation,
        };
        model.ask(99, create);
        // The group begins at 0, before anything is published, with a member that goes at once.
        model.join(0, 1);
        model.leave(0);
        model.end_turn();
        model
    }

    fn ask(&mut self, asker: u64, command: Command) -> Vec<Effect> {
        let mut effects = Vec::new();
        let event = Event::Asked { origin: origin(asker), command };
        self.shard.handle(self.now, event, &mut effects);
        effects
    }

    fn join(&mut self, member: u64, credit: u32) {
        // A join closes the open batch, and retention with it.
        self.evict();
        self.model_leave(member);
        let join = Command::Join {
            partition: PARTITION,
            group: name(),
            start: GroupStart::Offset(Offset(0)),
            in_flight_max: credit,
            acks_by_sending: self.sends_acknowledge,
            is_ordered: false,
            identity: 0,
        };
        let effects = self.ask(member, join);
        let joined = effects.iter().any(|effect| matches!(effect, Effect::Reply { reply: Reply::Joined { .. }, .. }));
        assert!(joined, "{effects:?}");
        self.credit.insert(member, credit);
    }

    fn leave(&mut self, member: u64) {
        self.ask(member, Command::Leave { partition: PARTITION, group: name() });
        self.model_leave(member);
    }

    fn model_leave(&mut self, member: u64) {
        self.credit.remove(&member);
        self.unsent.remove(&member);
        for given in self.given.values_mut().filter(|given| given.holder == Holder::Member(member)) {
            *given = Given { holder: Holder::Nobody, due_ms: u64::MAX, ..*given };
        }
    }

    fn progress(&mut self, member: u64, progress: Progress) {
        self.ask(member, Command::Progress { partition: PARTITION, group: name(), progress });
    }

    fn model_ack(&mut self, epoch: u64, offset: u64) {
        if epoch == self.epoch && self.given.remove(&offset).is_some() {
            self.acked.insert(offset);
        }
    }

    fn committed(&self) -> u64 {
        (self.start..).find(|offset| !self.acked.contains(offset)).unwrap()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Publish(count) => {
                for _ in 0..count {
                    let message = Message::of("m");
                    self.ask(99, Command::Publish { partition: PARTITION, message, answer: AnswerWhen::Durable });
                }
                self.published += count as u64;
            }
            Step::Join(member, credit) => self.join(member, credit),
            Step::Leave(member) => self.leave(member),
            Step::Ack(member, nth) => {
                let last = self.got.get(&member).and_then(|got| got.iter().rev().nth(nth)).copied();
                let Some((epoch, offset)) = last else { return };
                self.progress(member, Progress { acks: vec![(epoch, Offset(offset))], ..Progress::default() });
                self.model_ack(epoch, offset);
            }
            Step::AckAny(member, offset) => {
                let epoch = self.epoch;
                self.progress(member, Progress { acks: vec![(epoch, Offset(offset))], ..Progress::default() });
                let got = self.got.get(&member).is_some_and(|got| got.contains(&(epoch, offset)));
                let free = |given: &Given| matches!(given.holder, Holder::Nobody | Holder::Delayed | Holder::Leaving);
                if got || self.given.get(&offset).is_some_and(free) {
                    self.model_ack(epoch, offset);
                }
            }
            Step::Nack(member, nth, delay_ms) => self.nack(member, nth, delay_ms),
            Step::Sent(member, count) => {
                self.progress(member, Progress { sent: count, ..Progress::default() });
                for _ in 0..count {
                    let unsent = self.unsent.entry(member).or_default();
                    if unsent.is_empty() {
                        break;
                    }
                    let (epoch, offset) = unsent.remove(0);
                    if self.sends_acknowledge && self.credit.contains_key(&member) {
                        self.model_ack(epoch, offset);
                    }
                }
            }
            Step::Pull(count, wait_ms) => {
                self.evict();
                let action = GroupAction::Pull { start: GroupStart::Tail, count, wait_ms };
                let told = self.ask(50, Command::Group { partition: PARTITION, group: name(), action });
                let pulled = |effect: &Effect| matches!(effect, Effect::Reply { reply: Reply::Pulled { .. }, .. });
                assert!(!told.iter().any(pulled), "a pull is answered at the end of the turn: {told:?}");
            }
            Step::AckPulled(nth) => {
                let Some((epoch, offset)) = self.pulled.iter().rev().nth(nth).copied() else { return };
                let action = GroupAction::Ack { epoch: Some(epoch), offsets: vec![Offset(offset)], by: None };
                self.ask(51, Command::Group { partition: PARTITION, group: name(), action });
                self.model_ack(epoch, offset);
            }
            Step::PassTime(ms) => {
                self.now.monotonic_ms += ms;
                let mut effects = Vec::new();
                self.shard.handle(self.now, Event::TimePassed, &mut effects);
                assert!(effects.is_empty());
            }
            Step::Seek(offset) => self.seek(offset),
            Step::AnswerLetter(..) | Step::AnswerAgain(..) | Step::Change(_) => self.step_of_deaths(step),
        }
    }

    fn nack(&mut self, member: u64, nth: usize, delay_ms: u64) {
        let last = self.got.get(&member).and_then(|got| got.iter().rev().nth(nth)).copied();
        let Some((epoch, offset)) = last else { return };
        let nack = Nack { epoch, offset: Offset(offset), delay_ms };
        self.progress(member, Progress { nacks: vec![nack], ..Progress::default() });
        let now_ms = self.now.monotonic_ms;
        if epoch == self.epoch
            && let Some(given) = self.given.get_mut(&offset).filter(|given| given.holder == Holder::Member(member))
        {
            let delayed = delay_ms > 0;
            given.holder = if delayed { Holder::Delayed } else { Holder::Nobody };
            given.due_ms = if delayed { now_ms + delay_ms } else { u64::MAX };
        }
    }

    fn seek(&mut self, offset: u64) {
        self.evict();
        let action = GroupAction::Seek(SeekTo::Offset(Offset(offset)));
        self.ask(52, Command::Group { partition: PARTITION, group: name(), action });
        let target = offset.clamp(self.log_start(), self.published);
        self.epoch += 1;
        (self.next, self.start) = (target, target);
        self.acked.clear();
        self.given.clear();
    }

    fn log_start(&self) -> u64 {
        self.published.saturating_sub(self.retention)
    }

    /// What retention takes is not given out any more, and counts as lost unless it was acknowledged.
    fn evict(&mut self) {
        let start = self.log_start();
        let committed = self.committed();
        if start > committed {
            self.lost += (committed..start).filter(|offset| !self.acked.contains(offset)).count() as u64;
            self.start = start;
            self.given.retain(|offset, _| *offset >= start);
            self.next = self.next.max(start);
        }
    }

    fn end_turn(&mut self) {
        self.evict();
        let now_ms = self.now.monotonic_ms;
        for given in self.given.values_mut().filter(|given| given.due_ms <= now_ms) {
            *given = Given { holder: Holder::Nobody, due_ms: u64::MAX, ..*given };
        }
        let mut dying = self.bury();
        let mut effects = Vec::new();
        self.shard.handle(self.now, Event::TurnEnded, &mut effects);
        let ready: BTreeSet<u64> =
            self.given.iter().filter(|(_, given)| given.holder == Holder::Nobody).map(|(offset, _)| *offset).collect();
        let mut new_before_old = false;
        for effect in effects {
            match effect {
                Effect::Assign { to, assignment } => {
                    let due_ms = if self.sends_acknowledge { u64::MAX } else { now_ms + ACK_WAIT_MS };
                    for (epoch, offset, attempt) in records(&assignment) {
                        new_before_old |= self.take(offset, attempt, Holder::Member(to.asker), due_ms);
                        assert_eq!(epoch, self.epoch);
                        self.got.entry(to.asker).or_default().push((epoch, offset));
                        self.unsent.entry(to.asker).or_default().push((epoch, offset));
                    }
                }
                Effect::Reply { reply: Reply::Pulled { assignments, .. }, .. } => {
                    for (epoch, offset, attempt) in assignments.iter().flat_map(records) {
                        new_before_old |= self.take(offset, attempt, Holder::Fetch, now_ms + ACK_WAIT_MS);
                        self.pulled.push((epoch, offset));
                    }
                }
                Effect::DeadLetter { letter, to, message } => self.take_letter(&mut dying, letter, &to, &message),
                Effect::Tell { .. } | Effect::Reply { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(!self.has_dead_letters || dying.is_empty(), "no letter left for {dying:?}");
        let left =
            ready.iter().any(|offset| self.given.get(offset).is_some_and(|given| given.holder == Holder::Nobody));
        assert!(!(new_before_old && left), "a new message went out before one that waited to go out again");
        self.check();
    }

    /// Notes that an offset was given out; says whether it was a new one.
    fn take(&mut self, offset: u64, attempt: u32, holder: Holder, due_ms: u64) -> bool {
        assert!(!self.acked.contains(&offset), "an acknowledged message came again");
        assert!(offset < self.published && offset >= self.log_start());
        let before = self.given.get(&offset).copied();
        let is_new = before.is_none();
        if let Some(before) = before {
            assert_eq!(before.holder, Holder::Nobody, "two had one message at the same time");
            assert_eq!(attempt, before.attempts + 1);
        } else {
            // Members of one turn are told one after another, so new offsets come in order only per member.
            assert!(offset >= self.start && attempt == 1, "{offset} {attempt}");
            self.next = self.next.max(offset + 1);
        }
        self.given.insert(offset, Given { holder, attempts: attempt, due_ms });
        is_new
    }

    fn check(&mut self) {
        for (member, credit) in &self.credit {
            let held = self.given.values().filter(|given| given.holder == Holder::Member(*member)).count();
            assert!(held <= *credit as usize, "a member holds more than it may");
        }
        let command = Command::Group { partition: PARTITION, group: name(), action: GroupAction::Stat };
        let effects = self.ask(53, command);
        let [Effect::Reply { reply: Reply::Group(stats), .. }] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!(stats.committed.0, self.committed(), "the committed offset is the lowest that is not acknowledged");
        assert_eq!(stats.lag, self.published - self.committed());
        assert_eq!((stats.pending, stats.lost, stats.dead), (self.given.len() as u64, self.lost, self.dead));
        assert_eq!((stats.epoch, stats.members), (self.epoch, self.credit.len() as u64));
        let all_given = (self.start..self.next).all(|at| self.acked.contains(&at) || self.given.contains_key(&at));
        assert!(all_given, "below the next offset everything is acknowledged or given out");
    }

    /// A willing member gets and acknowledges all that is left.
    fn finish(&mut self) {
        for member in 0..MEMBERS {
            self.leave(member);
        }
        self.join(0, 1000);
        for _ in 0..6 {
            for letter in std::mem::take(&mut self.letters) {
                self.answer_letter(letter, true);
            }
            self.now.monotonic_ms += 2 * ACK_WAIT_MS;
            let mut effects = Vec::new();
            self.shard.handle(self.now, Event::TimePassed, &mut effects);
            self.end_turn();
            // What others hold comes when their time is over.
            let mine = self.given.iter().filter(|(_, given)| given.holder == Holder::Member(0));
            let held: Vec<_> = mine.map(|(offset, _)| (self.epoch, Offset(*offset))).collect();
            for (epoch, offset) in &held {
                self.model_ack(*epoch, offset.0);
            }
            self.progress(0, Progress { acks: held, sent: 1000, ..Progress::default() });
            self.unsent.clear();
        }
        self.end_turn();
        assert_eq!(self.committed(), self.published, "in the end all were delivered and acknowledged");
        let ids: BTreeSet<_> = self.letter_ids.values().collect();
        assert_eq!(ids.len(), self.letter_ids.len(), "two messages' letters have one id");
    }
}

fn records(assignment: &Assignment) -> Vec<(u64, u64, u32)> {
    let batch = &assignment.batch;
    let records = assignment.records.iter();
    records
        .map(|record| {
            assert!(batch.base() <= record.offset && record.offset < batch.end(), "the batch holds what is given");
            (assignment.epoch, record.offset.0, record.attempt)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn a_group_behaves_like_its_model(
        retention in prop_oneof![Just(6_u64), Just(1000)],
        sends_acknowledge in any::<bool>(),
        max_deliver in prop_oneof![Just(None), Just(Some(1_u32)), Just(Some(3))],
        has_dead_letters in any::<bool>(),
        turns in prop::collection::vec(prop::collection::vec(step(), 1..4), 1..25),
    ) {
        // Letters that nothing would ever lead to are refused with the topic.
        let has_dead_letters = has_dead_letters && max_deliver.is_some();
        let mut model = Model::new(retention, sends_acknowledge, Deaths { max_deliver, has_dead_letters });
        for turn in &turns {
            for step in turn {
                model.step(step);
            }
            model.end_turn();
        }
        model.finish();
    }

    #[test]
    fn acknowledged_ranges_are_a_set(offsets in prop::collection::vec(0_u64..40, 0..60), lift in 0_u64..50) {
        let mut acked = Acked::from(Offset(0));
        let mut set = BTreeSet::new();
        for offset in offsets {
            prop_assert_eq!(acked.add(Offset(offset)), set.insert(offset));
            prop_assert_eq!(acked.committed().0, (0..).find(|at| !set.contains(at)).unwrap());
            prop_assert!((0..45).all(|at| acked.contains(Offset(at)) == set.contains(&at)));
        }
        let committed = acked.committed().0;
        let missing = (committed..lift.max(committed)).filter(|at| !set.contains(at)).count() as u64;
        prop_assert_eq!(acked.lift(Offset(lift)), missing);
        prop_assert!(acked.committed().0 >= lift.max(committed));
    }
}

#[test]
fn what_a_dead_member_held_comes_to_the_other_and_the_committed_offset_never_passed_it() {
    let mut model = Model::new(1000, false, IMMORTAL);
    model.join(1, 2);
    model.join(2, 2);
    model.step(&Step::Publish(4));
    model.end_turn();
    for offset in model.got[&2].clone() {
        model.progress(2, Progress { acks: vec![(0, Offset(offset.1))], ..Progress::default() });
        model.model_ack(0, offset.1);
    }
    model.end_turn();
    assert_eq!(model.committed(), model.got[&1][0].1, "what the first holds is not passed");
    model.leave(1);
    model.end_turn();
    let again: Vec<_> = model.got[&2][2..].iter().map(|got| got.1).collect();
    assert_eq!(again, model.got[&1].iter().map(|got| got.1).collect::<Vec<_>>());
    model.finish();
}
