//! No gap and no double, whatever the lanes refuse and the windows let go; on the test thread.

use proptest::prelude::*;
use ringmain_engine::PlacementChange;
use ringmain_model::{Incarnation, ShardId};

use super::world::{Seen, World, topic};
use crate::connection::ConnectionKey;
use crate::front::Action;
use crate::request::{Protocol, Request, SlowReader, StartAt, Subscription};

const CORES: u16 = 3;
const TOPICS: u8 = 2;

#[derive(Clone, Debug)]
enum Step {
    Turn(usize),
    Publish(usize, u8, usize),
    /// So many turns of the owner with a message each, while the other cores stand still: lanes fill, and holes open.
    Burst(u8, usize),
    Subscribe(usize, u8, Option<u64>),
    TakeOutput(usize),
    Close(usize),
    Recreate(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let core = || 0..usize::from(CORES);
    prop_oneof![
        12 => core().prop_map(Step::Turn),
        6 => (core(), 0..TOPICS, 1_usize..4).prop_map(|(core, topic, count)| Step::Publish(core, topic, count)),
        3 => (0..TOPICS, 1_usize..6).prop_map(|(topic, turns)| Step::Burst(topic, turns)),
        3 => (core(), 0..TOPICS, prop::option::of(0_u64..30)).prop_map(|(core, topic, from)| Step::Subscribe(core, topic, from)),
        6 => (0_usize..20).prop_map(Step::TakeOutput),
        1 => (0_usize..20).prop_map(Step::Close),
        1 => (0..TOPICS).prop_map(Step::Recreate),
    ]
}

/// One reader, and what it asked for.
struct Reader {
    core: usize,
    key: ConnectionKey,
    topic: u8,
    life: u32,
    from: Option<u64>,
}

/// What a reader saw is every offset from its start on, except where it was told of a gap.
fn check(seen: &Seen, from: Option<u64>) {
    let Some(at) = seen.subscribed_at else {
        assert!(seen.offsets.is_empty(), "records before the subscription stood");
        return;
    };
    // One that asks for more than its core knows of is answered by the owner, who may know it.
    let mut next = from.unwrap_or(at);
    let mut gaps = seen.gaps.iter().copied().peekable();
    for (index, offset) in seen.offsets.iter().enumerate() {
        while let Some((_, requested, resumed)) = gaps.next_if(|(before, ..)| *before == index) {
            // A start beyond the end is the one gap that goes back.
            assert!(resumed > requested || from == Some(requested), "{seen:?}");
            assert!(resumed >= next || from == Some(requested), "a gap repeats nothing: {seen:?}");
            next = resumed;
        }
        assert_eq!(*offset, next, "a gap or a double: {seen:?} from {from:?}");
        next += 1;
    }
}

struct Run {
    world: World,
    control: ConnectionKey,
    publishers: Vec<ConnectionKey>,
    readers: Vec<Reader>,
    lives: [u32; TOPICS as usize],
    retention: u64,
}

impl Run {
    fn new(requests: usize, retention: u64) -> Self {
        let mut world = World::new(CORES, requests);
        let control = world.open(0);
        let publishers = (0..usize::from(CORES)).map(|core| world.open(core)).collect();
        for number in 0..TOPICS {
            world.create(0, control, topic(number), retention);
            world.rest(&[]);
        }
        Self { world, control, publishers, readers: Vec::new(), lives: [0; TOPICS as usize], retention }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Turn(core) => self.world.turn(core),
            Step::Publish(core, number, count) => {
                for _ in 0..count {
                    self.world.publish(core, self.publishers[core], topic(number));
                }
            }
            Step::Burst(number, turns) => {
                let owner = ShardId::initial(topic(number).as_str(), CORES).core(CORES).index();
                for _ in 0..turns {
                    self.world.publish(owner, self.publishers[owner], topic(number));
                    self.world.turn(owner);
                }
            }
            Step::Subscribe(core, number, from) => {
                let key = self.world.open(core);
                self.world.subscribe(core, key, topic(number), from);
                let life = self.lives[usize::from(number)];
                self.readers.push(Reader { core, key, topic: number, life, from });
            }
            Step::TakeOutput(index) => {
                if let Some(reader) = self.readers.get(index) {
                    self.world.take_output(reader.core, reader.key);
                }
            }
            Step::Close(index) => {
                if index < self.readers.len() {
                    let reader = self.readers.swap_remove(index);
                    check(&self.world.close(reader.core, reader.key), reader.from);
                }
            }
            Step::Recreate(number) => {
                // A refused delete leaves the life as it is: everything is at rest, so there is room.
                self.rest();
                self.world.ask(0, self.control, Request::Delete { name: topic(number) });
                self.rest();
                self.world.create(0, self.control, topic(number), self.retention);
                self.rest();
                self.lives[usize::from(number)] += 1;
            }
        }
    }

    fn rest(&mut self) {
        let connections: Vec<_> = self.readers.iter().map(|reader| (reader.core, reader.key)).collect();
        self.world.rest(&connections);
    }

    /// After a rest, readers of the present life stand at the end, and those of earlier lives were told that it ended.
    fn check_all(&mut self) {
        self.rest();
        let stored: Vec<Vec<u64>> = (0..TOPICS).map(|number| self.stored(number)).collect();
        for reader in &self.readers {
            let now = self.lives[usize::from(reader.topic)];
            let seen = self.world.seen(reader.core, reader.key);
            check(seen, reader.from);
            assert_eq!(seen.refused, 0);
            assert_eq!(seen.ended, reader.life != now, "{seen:?}");
            if reader.life == now {
                let end = stored[usize::from(reader.topic)].len() as u64;
                let start = reader.from.unwrap_or(end).min(end);
                let at = seen.offsets.last().map(|last| last + 1).or(seen.gaps.last().map(|gap| gap.2));
                let stands = at.unwrap_or_else(|| start.max(seen.subscribed_at.unwrap_or(0)));
                assert_eq!(stands, end, "a reader did not reach the end: {seen:?}");
            }
        }
    }

    /// Offsets that the present life of a topic gave out: asked from the cores' own tables.
    fn stored(&self, number: u8) -> Vec<u64> {
        let placed = self.world.cores[0].placement.find(&topic(number)).and_then(|placed| placed.partition(0).ok());
        let mut ends = Vec::new();
        for core in &self.world.cores {
            for shard in &core.shards {
                ends.extend(shard.end_of(placed.unwrap()));
            }
        }
        assert_eq!(ends.len(), 1, "one shard owns a topic");
        (0..ends[0].0).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn each_reader_sees_all_once_and_in_order(
        requests in 1_usize..4,
        retention in prop_oneof![Just(5_u64), Just(1000)],
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut run = Run::new(requests, retention);
        for step in &steps {
            run.step(step);
        }
        run.check_all();
        for reader in std::mem::take(&mut run.readers) {
            run.world.close(reader.core, reader.key);
        }
        run.rest();
        for core in &run.world.cores {
            prop_assert!(core.windows.is_empty() && core.cursors.is_empty(), "nothing is left when all have gone");
            prop_assert_eq!(core.windows_bytes, 0);
        }
    }
}

#[test]
fn a_hole_of_the_lane_is_not_the_readers_fault() {
    for slow in [SlowReader::Close, SlowReader::Skip] {
        let mut world = World::new(CORES, 8);
        let control = world.open(0);
        world.create(0, control, topic(0), 1000);
        world.rest(&[]);
        let owner = ShardId::initial(topic(0).as_str(), CORES).core(CORES).index();
        let core = (owner + 1) % usize::from(CORES);
        let (reader, publisher) = (world.open(core), world.open(owner));
        let subscription = Subscription {
            number: 0,
            name: topic(0),
            partition: 0,
            start: StartAt::Tail,
            protocol: Protocol::Sse,
            counts: true,
            slow,
        };
        world.act(core, reader, Action::Subscribe(subscription));
        world.rest(&[(core, reader)]);
        // The reader's core stands still while its lane fills; the reader itself has nothing waiting.
        for _ in 0..5 {
            world.publish(owner, publisher, topic(0));
            world.turn(owner);
        }
        world.rest(&[(core, reader)]);
        assert!(world.cores[owner].counters.lane_holes > 0, "the lane was never full");
        let seen = world.seen(core, reader);
        assert!(!seen.ended && seen.gaps.is_empty(), "{slow:?}: {seen:?}");
        assert_eq!(seen.offsets, [0, 1, 2, 3, 4], "{slow:?}");
    }
}

#[test]
fn a_topic_whose_name_was_taken_ends_for_its_readers() {
    let mut world = World::new(2, 8);
    let control = world.open(0);
    world.create(0, control, topic(0), 1000);
    world.rest(&[]);
    let reader = world.open(0);
    world.subscribe(0, reader, topic(0), None);
    world.rest(&[(0, reader)]);
    // The end of a logged topic is told when it is durable; a memory topic of the same name does not wait for that.
    let core = &mut world.cores[0];
    let old = core.placement.find(&topic(0)).unwrap().clone();
    let new = Incarnation(old.incarnation.0 ^ 1);
    core.place(PlacementChange::Add { name: topic(0), incarnation: new, shard: old.shard, partitions: 1 });
    core.place(PlacementChange::Remove { name: topic(0), incarnation: old.incarnation });
    assert!(world.seen(0, reader).ended);
    assert!(world.cores[0].windows.is_empty() && world.cores[0].cursors.is_empty());
    assert_eq!(world.cores[0].placement.find(&topic(0)).unwrap().incarnation, new, "the new one stays");
}
