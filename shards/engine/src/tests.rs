//! The shard against a small model: random commands, each answer and push checked; runs on the test thread.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod ages;
mod giving_up;
mod groups;
mod ordered;

use std::collections::BTreeMap;

use proptest::prelude::*;
use ringmain_model::{
    CoreId, Incarnation, Message, Offset, PartitionRef, RefusalKind, Retention, ShardId, TopicConfig, TopicName,
};
use ringmain_wal::Failure;

use crate::*;

const CORES: u16 = 3;

fn asker(core: u16) -> Origin {
    Origin { core: CoreId(core), asker: 0, request: 0 }
}

/// The shard, and what a correct one must have told: every message of the topic's life, and each core's view.
struct Bench {
    shard: Shard,
    life: u64,
    retention: Retention,
    /// Stands still unless a test moves it.
    now: Now,
    published: Vec<Vec<u8>>,
    visible: u64,
    /// Next offset that each interested core must be pushed.
    pushed: BTreeMap<u16, u64>,
}

impl Bench {
    fn new(retention: Retention, memory_bytes_max: u64) -> Self {
        let shard =
            Shard::new(ShardId(0), ShardSettings { cores: CORES, memory_bytes_max, ..ShardSettings::default() });
        let (published, pushed, now) = (Vec::new(), BTreeMap::new(), Now::default());
        let mut bench = Self { shard, life: 0, retention, now, published, visible: 0, pushed };
        bench.create();
        bench
    }

    fn partition(&self) -> PartitionRef {
        PartitionRef { incarnation: Incarnation(self.life), partition: 0 }
    }

    fn ask(&mut self, core: u16, command: Command) -> Vec<Effect> {
        self.give(Event::Asked { origin: asker(core), command })
    }

    fn give(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.shard.handle(self.now, event, &mut effects);
        effects
    }

    /// The first offset that is kept.
    fn log_start(&mut self) -> u64 {
        let partition = self.partition();
        let command = Command::Read { partition, from: Offset(0), bytes_max: 1, records_max: 1, following: false };
        let effects = self.ask(2, command);
        let replies = self.check(effects);
        let [Reply::Page(page)] = &replies[..] else { panic!("{replies:?}") };
        page.log_start.offset().0
    }

    fn create(&mut self) {
        self.life += 1;
        let config = TopicConfig { retention: self.retention, ..TopicConfig::default() };
        let create = Command::Create {
            name: TopicName::new("t").unwrap(),
            partitions: 1,
            config,
            incarnation: Incarnation(self.life),
        };
        let mut effects = self.ask(0, create);
        let change = match effects.pop() {
            Some(Effect::Place { change, placement: PlacementChange::Add { .. } }) => change,
            other => panic!("{other:?}"),
        };
        assert!(effects.is_empty());
        for core in 0..CORES {
            let told = self.give(Event::Placed { change });
            assert_eq!(told.len(), usize::from(core == CORES - 1), "answered before every core knew it");
        }
        (self.visible, self.published) = (0, Vec::new());
        self.pushed.clear();
    }

    fn check(&mut self, effects: Vec<Effect>) -> Vec<Reply> {
        let mut replies = Vec::new();
        for effect in effects {
            match effect {
                Effect::Reply { reply: Reply::Published { offset, .. }, .. } => {
                    assert_eq!(offset, Offset(self.visible), "offsets are dense, answers in order");
                    self.visible += 1;
                }
                Effect::Reply { reply, .. } => replies.push(reply),
                Effect::Push { core, batch } => {
                    let next = self.pushed.get_mut(&core.0).expect("pushed without interest");
                    assert_eq!(batch.base(), Offset(*next), "a push leaves no gap and repeats nothing");
                    *next = batch.end().0;
                    check_batch(&batch, &self.published);
                }
                other => panic!("nothing asked for {other:?}"),
            }
        }
        replies
    }

    fn publish(&mut self, payload: Vec<u8>) {
        self.published.push(payload.clone());
        let effects = self.ask(
            1,
            Command::Publish {
                partition: self.partition(),
                message: Message::of(payload),
                answer: AnswerWhen::Durable,
            },
        );
        assert!(self.check(effects).is_empty());
    }

    fn end_turn(&mut self) {
        let effects = self.give(Event::TurnEnded);
        assert!(self.check(effects).is_empty());
        assert_eq!(self.visible, self.published.len() as u64, "a turn leaves no publish unanswered");
        assert!(self.pushed.values().all(|next| *next == self.visible), "a turn leaves no batch unpushed");
    }

    fn interest(&mut self, core: u16, subscribers: u32) {
        // The shard closes this turn's batch first, and tells it to those who were interested before.
        let effects = self.ask(
            core,
            Command::Interest {
                partition: self.partition(),
                interest: Interest { wanted: subscribers > 0, subscribers },
            },
        );
        let replies = self.check(effects);
        let [Reply::Interested { high_water, .. }] = replies[..] else { panic!("{replies:?}") };
        assert_eq!(high_water.offset(), Offset(self.visible));
        if subscribers == 0 {
            self.pushed.remove(&core);
        } else {
            self.pushed.insert(core, self.visible);
        }
    }

    fn read(&mut self, from: u64, bytes_max: usize, records_max: u64, following: bool) {
        let command =
            Command::Read { partition: self.partition(), from: Offset(from), bytes_max, records_max, following };
        let effects = self.ask(2, command);
        let replies = self.check(effects);
        let [Reply::Page(page)] = &replies[..] else { panic!("{replies:?}") };
        let start = page.log_start.offset().0;
        let kept = self.visible.min(self.retention.max_messages);
        assert_eq!(page.high_water.offset(), Offset(self.visible));
        if self.retention.max_bytes > 1 << 30 {
            assert_eq!(start, self.visible - kept, "retention by count is exact");
        }
        if !following {
            assert_eq!(page.from.0, from.clamp(start, self.visible));
        }
        assert!(page.from.0 >= from.min(start.min(self.visible)) && page.from.0 <= self.visible);
        assert_eq!(page.batches.is_empty(), page.from.0 == self.visible, "a page is empty only at the end");
        let mut next = page.from;
        for batch in &page.batches {
            assert!(batch.base() <= next && batch.end() > next, "pages hold no gap");
            check_batch(batch, &self.published);
            next = batch.end();
        }
        assert_eq!(page.next(), next);
    }
}

fn check_batch(batch: &RecordBatch, published: &[Vec<u8>]) {
    for record in batch.records() {
        assert_eq!(record.payload, &published[record.offset.0 as usize][..]);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<u8>),
    EndTurn,
    Interest(u16, u32),
    Read(u64, usize, u64, bool),
    Recreate,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Step::Publish),
        3 => Just(Step::EndTurn),
        2 => (0..CORES, 0_u32..3).prop_map(|(core, subscribers)| Step::Interest(core, subscribers)),
        3 => (0_u64..80, 0_usize..2000, 1_u64..20, any::<bool>()).prop_map(|(a, b, c, d)| Step::Read(a, b, c, d)),
        1 => Just(Step::Recreate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_shard_behaves_like_its_model(
        max_messages in 1_u64..30,
        max_bytes in prop_oneof![Just(1_u64 << 40), 1_u64..3000],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut bench = Bench::new(Retention { max_messages, max_bytes, max_age_ms: None }, 1 << 30);
        for step in steps {
            match step {
                Step::Publish(payload) => bench.publish(payload),
                Step::EndTurn => bench.end_turn(),
                Step::Interest(core, subscribers) => bench.interest(core, subscribers),
                Step::Read(from, bytes_max, records_max, following) => bench.read(from, bytes_max, records_max, following),
                Step::Recreate => {
                    let effects = bench.ask(0, Command::Delete { name: TopicName::new("t").unwrap() });
                    let (place, others): (Vec<_>, Vec<_>) =
                        effects.into_iter().partition(|effect| matches!(effect, Effect::Place { .. }));
                    bench.check(others);
                    assert_eq!(bench.visible, bench.published.len() as u64, "a delete answers what was admitted");
                    let [Effect::Place { change, .. }] = place[..] else { panic!("{place:?}") };
                    let told: Vec<_> = (0..CORES).flat_map(|_| bench.give(Event::Placed { change })).collect();
                    assert_eq!(told, [Effect::Reply { to: asker(0), reply: Reply::Deleted }]);
                    let bytes = bench.shard.bytes;
                    assert_eq!((bytes.memory, bytes.open, bytes.windows), (0, 0, 0), "a delete frees all bytes");
                    bench.create();
                }
            }
        }
        bench.end_turn();
        for core in 0..CORES {
            bench.interest(core, 0);
        }
        assert_eq!(bench.shard.bytes.windows, 0, "without readers there is no live window");
    }
}

#[test]
fn a_full_memory_refuses_before_an_offset_exists_and_goes_on_when_there_is_room() {
    let mut bench = Bench::new(Retention { max_messages: 1, ..Retention::default() }, 3000);
    bench.publish(vec![0; 2500]);
    bench.end_turn();
    let too_much = Command::Publish {
        partition: bench.partition(),
        message: Message::of(vec![0; 1000]),
        answer: AnswerWhen::Durable,
    };
    let refused = bench.ask(0, too_much);
    let [Effect::Reply { reply: Reply::Refused(refusal), .. }] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!(refusal.kind, RefusalKind::StorageFull);
    bench.publish(vec![1; 100]);
    bench.end_turn();
    bench.publish(vec![2; 1000]);
    bench.end_turn();
}

#[test]
fn commands_to_a_life_that_ended_are_refused() {
    let mut bench = Bench::new(Retention::default(), 1 << 20);
    let old = bench.partition();
    bench.ask(0, Command::Delete { name: TopicName::new("t").unwrap() });
    for command in [
        Command::Publish { partition: old, message: Message::of("x"), answer: AnswerWhen::Durable },
        Command::Read { partition: old, from: Offset(0), bytes_max: 1, records_max: 1, following: false },
        Command::Interest { partition: old, interest: Interest { wanted: true, subscribers: 1 } },
        Command::Stat { partition: old },
        Command::Delete { name: TopicName::new("t").unwrap() },
    ] {
        let told = bench.ask(0, command);
        let [Effect::Reply { reply: Reply::Refused(refusal), .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(refusal.kind, RefusalKind::TopicNotFound);
    }
}

#[test]
fn want_of_descriptors_is_not_told_as_a_fault_of_the_disk() {
    let (descriptors, other) = (Failure::System(24), Failure::System(5));
    for (told, about_the_disk) in [
        (shard_log::log_full(Some(descriptors)), shard_log::log_full(Some(Failure::NoSpace))),
        (loads::unreadable_now(descriptors), loads::unreadable_now(other)),
    ] {
        assert!(told.message.contains("RLIMIT_NOFILE") && !told.message.contains("disk"), "{}", told.message);
        assert!(about_the_disk.message.contains("disk") && about_the_disk.kind == told.kind);
    }
}
