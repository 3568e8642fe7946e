//! Groups with order: each partition goes to one member at a time, one message after the other; runs on the test thread.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use ringmain_model::{
    CoreId, GroupName, Incarnation, Message, Offset, PartitionRef, ShardId, Storage, TopicConfig, TopicName, TopicPatch,
};

use crate::*;

const PARTITIONS: u32 = 6;
const ACK_WAIT_MS: u64 = 1000;
const MEMBERS: u64 = 4;

#[derive(Clone, Debug)]
enum Step {
    Publish(u32, usize),
    Join(u64, u32),
    Leave(u64),
    /// Acknowledge the n-th of what the member holds of a partition.
    Ack(u32, usize),
    Nack(u32, usize, u64),
    PassTime(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (partition, member) = (|| 0..PARTITIONS, || 0..MEMBERS);
    prop_oneof![
        4 => (partition(), 1_usize..6).prop_map(|(partition, count)| Step::Publish(partition, count)),
        3 => (member(), 1_u32..5).prop_map(|(member, credit)| Step::Join(member, credit)),
        1 => member().prop_map(Step::Leave),
        8 => (partition(), 0_usize..4).prop_map(|(partition, nth)| Step::Ack(partition, nth)),
        2 => (partition(), 0_usize..4, prop_oneof![Just(0), Just(300_u64)]).prop_map(|(a, b, c)| Step::Nack(a, b, c)),
        1 => prop_oneof![Just(200_u64), Just(600), Just(1500)].prop_map(Step::PassTime),
    ]
}

fn name() -> GroupName {
    GroupName::new("g").unwrap()
}

fn partition(number: u32) -> PartitionRef {
    PartitionRef { incarnation: Incarnation(64), partition: number }
}

/// A membership is told by member and partition, as the driver does.
fn origin(member: u64, number: u32) -> Origin {
    Origin { core: CoreId(u16::try_from(member % 2).unwrap()), asker: 100 * u64::from(number) + member, request: 0 }
}

#[derive(Default)]
struct Seen {
    acked: BTreeSet<u64>,
    /// Who has what, as far as its word is not known to be void.
    held: BTreeMap<u64, u64>,
    epoch: u64,
    published: u64,
}

struct World {
    shard: Shard,
    now: Now,
    joined: BTreeSet<u64>,
    seen: Vec<Seen>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            shard: Shard::new(ShardId(0), ShardSettings::default()),
            now: Now::default(),
            joined: BTreeSet::new(),
            seen: (0..PARTITIONS).map(|_| Seen::default()).collect(),
        };
        let config = TopicConfig { storage: Storage::Memory, ack_wait_ms: ACK_WAIT_MS, ..TopicConfig::default() };
        let create = Command::Create {
            name: TopicName::new("t").unwrap(),
            partitions: PARTITIONS,
            config,
            incarnation: partition(0).incarnation,
        };
        world.ask(origin(99, 0), create);
        world
    }

    fn ask(&mut self, origin: Origin, command: Command) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.shard.handle(self.now, Event::Asked { origin, command }, &mut effects);
        effects
    }

    fn publish(&mut self, number: u32, count: usize) {
        for _ in 0..count {
            let command = Command::Publish {
                partition: partition(number),
                message: Message::of("m"),
                answer: AnswerWhen::Durable,
            };
            self.ask(origin(99, 0), command);
            self.seen[number as usize].published += 1;
        }
    }

    fn join(&mut self, member: u64, in_flight_max: u32) {
        self.leave(member);
        self.joined.insert(member);
        for number in 0..PARTITIONS {
            let join = Command::Join {
                partition: partition(number),
                group: name(),
                start: GroupStart::Offset(Offset(0)),
                in_flight_max,
                acks_by_sending: false,
                is_ordered: true,
                identity: member,
            };
            self.ask(origin(member, number), join);
        }
    }

    fn leave(&mut self, member: u64) {
        if self.joined.remove(&member) {
            for number in 0..PARTITIONS {
                self.ask(origin(member, number), Command::Leave { partition: partition(number), group: name() });
                self.seen[number as usize].held.retain(|_, holder| *holder != member);
            }
        }
    }

    fn say(&mut self, number: u32, nth: usize, nack_after_ms: Option<u64>) {
        let seen = &mut self.seen[number as usize];
        let Some((offset, member)) = seen.held.iter().nth(nth).map(|(offset, member)| (*offset, *member)) else {
            return;
        };
        let epoch = seen.epoch;
        let mut progress = Progress { sent: 1, ..Progress::default() };
        match nack_after_ms {
            None => {
                seen.held.remove(&offset);
                seen.acked.insert(offset);
                progress.acks.push((epoch, Offset(offset)));
            }
            Some(delay_ms) => {
                seen.held.split_off(&offset);
                progress.nacks.push(Nack { epoch, offset: Offset(offset), delay_ms });
            }
        }
        let command = Command::Progress { partition: partition(number), group: name(), progress };
        self.ask(origin(member, number), command);
    }

    fn pass(&mut self, ms: u64) {
        self.now.monotonic_ms += ms;
        let mut effects = Vec::new();
        self.shard.handle(self.now, Event::TimePassed, &mut effects);
    }

    /// Ends a turn; what is given out must be next in its partition, and all before it that is open must be with the same member.
    fn end_turn(&mut self) -> Vec<(u32, u64, u64)> {
        let (mut effects, mut given) = (Vec::new(), Vec::new());
        self.shard.handle(self.now, Event::TurnEnded, &mut effects);
        for effect in effects {
            let Effect::Assign { to, assignment } = effect else { continue };
            let (number, member) = (assignment.batch.partition().partition, to.asker % 100);
            assert!(self.joined.contains(&member), "{member} is no member");
            let seen = &mut self.seen[number as usize];
            seen.epoch = assignment.epoch;
            for record in &assignment.records {
                let offset = record.offset.0;
                seen.held.split_off(&offset);
                let before = (0..offset).filter(|before| !seen.acked.contains(before));
                for before in before {
                    let holder = seen.held.get(&before);
                    assert_eq!(holder, Some(&member), "{offset} of {number} goes to {member} before {before} is done");
                }
                assert!(!seen.acked.contains(&offset), "{offset} of {number} was acknowledged");
                seen.held.insert(offset, member);
                given.push((number, offset, member));
            }
        }
        given
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_member_after_the_other_gets_what_is_next(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Publish(number, count) => world.publish(number, count),
                Step::Join(member, credit) => world.join(member, credit),
                Step::Leave(member) => world.leave(member),
                Step::Ack(number, nth) => world.say(number, nth, None),
                Step::Nack(number, nth, delay_ms) => world.say(number, nth, Some(delay_ms)),
                Step::PassTime(ms) => world.pass(ms),
            }
            world.end_turn();
        }
        // In the end everything comes to somebody who acknowledges.
        world.join(0, 5);
        for _ in 0..500 {
            world.pass(ACK_WAIT_MS / 10);
            world.end_turn();
            for number in 0..PARTITIONS {
                world.say(number, 0, None);
            }
        }
        for seen in &world.seen {
            prop_assert_eq!(seen.acked.len() as u64, seen.published);
        }
    }
}

#[test]
fn partitions_are_spread_evenly() {
    for members in 1..=MEMBERS {
        let mut world = World::new();
        (0..members).for_each(|member| world.join(member, 10));
        (0..PARTITIONS).for_each(|number| world.publish(number, 3));
        let mut partitions: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for (number, _, member) in world.end_turn() {
            partitions.entry(member).or_default().insert(number);
        }
        let counts: Vec<_> = partitions.values().map(BTreeSet::len).collect();
        assert_eq!(counts.iter().sum::<usize>(), PARTITIONS as usize, "{partitions:?}");
        assert_eq!(counts.len() as u64, members, "{partitions:?}");
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{partitions:?}");
    }
}

#[test]
fn what_retention_takes_holds_nothing_up() {
    let mut world = World::new();
    world.join(0, 1);
    world.publish(0, 2);
    assert_eq!(world.end_turn(), [(0, 0, 0)]);
    world.say(0, 0, Some(10 * ACK_WAIT_MS));
    assert_eq!(world.end_turn(), [], "the second message waits for the first");
    let patch = TopicPatch { max_messages: Some(1), ..TopicPatch::default() };
    world.ask(origin(99, 0), Command::Change { incarnation: partition(0).incarnation, patch });
    world.seen[0].acked.insert(0);
    assert_eq!(world.end_turn(), [(0, 1, 0)], "nobody waits for what is gone");
}

#[test]
fn a_member_that_wants_none_stops_no_partition() {
    let mut world = World::new();
    world.join(0, 0);
    world.join(1, 10);
    (0..PARTITIONS).for_each(|number| world.publish(number, 1));
    let given = world.end_turn();
    assert_eq!(given.len(), PARTITIONS as usize);
    assert!(given.iter().all(|(_, _, member)| *member == 1), "{given:?}");
    (0..PARTITIONS).for_each(|number| world.say(number, 0, None));
    for number in 0..PARTITIONS {
        let progress = Progress { in_flight_max: Some(10), ..Progress::default() };
        let command = Command::Progress { partition: partition(number), group: name(), progress };
        world.ask(origin(0, number), command);
        world.publish(number, 1);
    }
    let members: BTreeSet<_> = world.end_turn().into_iter().map(|(_, _, member)| member).collect();
    assert_eq!(members, BTreeSet::from([0, 1]), "it takes its share when it wants some");
}
