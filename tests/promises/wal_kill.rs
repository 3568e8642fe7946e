//! Promise: whatever is answered survives `kill -9`, and whatever anybody saw is still there. Publishes, acknowledgements,
//! seeks, deletions: all of them are read back after each of many kills under load; what was not answered may have happened or
//! not, but never half.

use crate::broker::{Broker, Setup, topic_path};
use crate::chance::{Chance, scaled};
use crate::deadline::wait_until;
use crate::wal_kill_load::{ACK_WAIT_MS, KEEPS_FEW, Load, Sender, Sizes};
use crate::wal_kill_model::{GroupModel, Keeps, Told, TopicModel, digest, get, payload_of};
use crate::wal_kill_mortals::{Mortal, Presence};
use crate::wal_restart_segments::files_below;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// Kills of one test, or half as many of the largest. The suite runs all three with 1, 2 and 4 shards: 60 kills in all.
const KILLS: usize = 8;

/// Messages that the topic with little retention keeps.
const FEW: u64 = 300;

/// Kills the broker, also when a test fails: nobody who uses it ends before.
pub(crate) struct KillWhenDropped<'b>(pub(crate) &'b Broker);

impl Drop for KillWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// What a test puts on the broker.
#[derive(Debug, Clone, Copy)]
struct Shape {
    kills: usize,
    sizes: Sizes,
    /// Segments that each topic keeps.
    segments: u64,
    /// Answers after which the broker is killed, at most.
    answers_max: usize,
    /// Publishers of each of the first topics.
    publishers: usize,
}

impl Shape {
    /// What a topic may not give up.
    fn keeps(&self, at: usize) -> Keeps {
        match at {
            _ if self.segments < SEGMENTS && at == WITH_FEW => Keeps::Bytes(0),
            WITH_FEW => Keeps::Messages(FEW),
            // Two segments that follow one another hold more than the bytes of one.
            _ if self.segments < SEGMENTS => Keeps::Bytes((self.segments / 2 - 1) << 20),
            _ => Keeps::Everything,
        }
    }
}

/// Everything that is known, over all lives of the broker's process.
struct World {
    shape: Shape,
    topics: Vec<TopicModel>,
    groups: Vec<GroupModel>,
    mortals: Vec<Mortal>,
    refused: usize,
}

/// Payloads of a topic that has few bytes.
const SMALL: Sizes = Sizes { large_one_of: usize::MAX, large_bytes_max: 1 };

/// Segments that hold all that a test publishes.
const SEGMENTS: u64 = 1000;

const STEADY: usize = 0;
const OTHER: usize = 1;
const QUIET: usize = 2;
const WITH_FEW: usize = 3;
const IN_MEMORY_FIRST: usize = 4;

impl World {
    fn new(broker: &Broker, shape: Shape) -> Self {
        let names = ["steady", "other/ü", "quiet", KEEPS_FEW, "in memory first"];
        let topics: Vec<TopicModel> =
            names.iter().enumerate().map(|(at, name)| TopicModel::new(name, shape.keeps(at))).collect();
        for (at, topic) in topics.iter().enumerate() {
            let mut settings = json!({ "ack_wait_ms": ACK_WAIT_MS });
            if at == WITH_FEW {
                settings["retention"] = json!({ "max_messages": FEW });
            }
            broker.create_topic_with(settings, &topic.name);
        }
        let groups = vec![
            GroupModel::new(names[STEADY], "workers"),
            GroupModel::new(names[OTHER], "members"),
            GroupModel::new(names[QUIET], "workers"),
        ];
        let mortals = ["mortal 1", "mortal 2"].map(|name| Mortal::new(name, shape.keeps(STEADY))).into();
        Self { shape, topics, groups, mortals, refused: 0 }
    }

    /// Uses the broker from all sides and kills it in the middle of it.
    fn run(&mut self, broker: &Broker, chance: &mut Chance) {
        let wanted = chance.below(self.shape.answers_max);
        let names: Vec<String> = self.topics.iter().map(|topic| topic.name.clone()).collect();
        let ends: Vec<u64> = self.topics.iter().map(|topic| topic.end).collect();
        let senders = self.senders(&names);
        // Readers, one of each topic, and the thread that kills.
        let everybody = senders.len() + names.len() + self.groups.len() + self.mortals.len() + 1;
        let load = &Load {
            address: broker.address(),
            everybody,
            may_lose: self.shape.segments < SEGMENTS,
            ready: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
        };
        let (sizes, groups, mortals) = (self.shape.sizes, &mut self.groups, &mut self.mortals);
        let (published, seen) = thread::scope(|scope| {
            let mut published = Vec::new();
            for (at, sender) in &senders {
                let mut chance = chance.fork();
                published.push((*at, scope.spawn(move || load.publish(sender, &mut chance))));
            }
            let mut seen = Vec::new();
            for (at, group) in [STEADY, OTHER, QUIET].into_iter().zip(groups) {
                let (mut chance, end) = (chance.fork(), ends[at]);
                let reader = scope.spawn(move || match group.name.as_str() {
                    "members" => load.follow(group, &mut chance),
                    _ => load.work(group, end, &mut chance),
                });
                seen.push((at, reader));
            }
            for (at, name) in names.iter().enumerate() {
                let (chance, end) = (chance.fork(), ends[at]);
                seen.push((at, scope.spawn(move || read(load, name, end, chance))));
            }
            for mortal in mortals {
                let mut chance = chance.fork();
                scope.spawn(move || load.live_and_die(mortal, sizes, &mut chance));
            }
            let kill = KillWhenDropped(broker);
            load.arrive();
            let is_one_done = || published.iter().any(|(_, one)| one.is_finished());
            wait_until("enough is answered", || load.answers.load(Ordering::Relaxed) >= wanted || is_one_done());
            drop(kill);
            (joined(published), joined(seen))
        });
        for (at, one) in published {
            self.refused += one.refused;
            self.topics[at].take(one);
        }
        seen.into_iter().for_each(|(at, some)| self.topics[at].seen.extend(some));
    }

    /// Who publishes to which of the topics.
    fn senders<'n>(&self, names: &'n [String]) -> Vec<(usize, Sender<'n>)> {
        let several = (0..self.shape.publishers as u64).flat_map(|number| [(STEADY, number), (OTHER, number)]);
        let all = several.chain([(QUIET, 0), (WITH_FEW, 0), (IN_MEMORY_FIRST, 0)]);
        all.map(|(at, number)| {
            let sizes = if at == QUIET { SMALL } else { self.shape.sizes };
            (at, Sender { topic: &names[at], number, sizes, promises_nothing: at == IN_MEMORY_FIRST })
        })
        .collect()
    }

    /// Reads everything back.
    fn check(&mut self, broker: &Broker, chance: &mut Chance, whole: bool) {
        let mut connection = broker.connect();
        for topic in &mut self.topics {
            topic.settle(&mut connection, chance, whole);
        }
        for group in &mut self.groups {
            let topic = self.topics.iter_mut().find(|topic| topic.name == group.topic).unwrap();
            group.settle(&mut connection, topic, chance);
        }
        for mortal in &mut self.mortals {
            mortal.settle(&mut connection, chance, whole);
        }
        // The next offset is the one after the last.
        for topic in &mut self.topics {
            let payload = payload_of(20);
            connection.send_request("POST", &topic_path(&topic.name, "/publish"), &[], &payload);
            let offset = connection.response_to("POST").expect(202).data()["offset"].as_u64().unwrap();
            assert_eq!(offset, topic.end, "{}: offsets go on without a gap", topic.name);
            topic.answered(offset, digest(&payload));
        }
        let listed = get(&mut connection, "/topics").expect(200).data();
        let listed: Vec<&Value> = listed.as_array().unwrap().iter().map(|topic| &topic["name"]).collect();
        let alive = self.mortals.iter().filter(|mortal| mortal.presence == Presence::Present);
        assert_eq!(listed.len(), self.topics.len() + alive.count(), "{listed:?}");
    }
}

/// Reads a topic in one of all ways.
fn read(load: &Load, topic: &str, end: u64, mut chance: Chance) -> Vec<Told> {
    let from = end.saturating_sub(chance.below(200) as u64);
    match chance.below(3) {
        0 => load.read_stream(topic, (chance.below(3) > 0).then_some(from)),
        1 => load.read_socket(topic, (chance.below(3) > 0).then_some(from)),
        _ => load.read_pages(topic, from, &mut chance),
    }
}

fn joined<T>(threads: Vec<(usize, ScopedJoinHandle<'_, T>)>) -> Vec<(usize, T)> {
    threads.into_iter().map(|(at, thread)| (at, thread.join().unwrap())).collect()
}

fn kill_again_and_again(shape: Shape) -> Broker {
    let mut chance = Chance::for_test();
    let setup = Setup::new().logged().variable("WAL_SEGMENT_SIZE", 1 << 20);
    let mut broker = setup.variable("WAL_MAX_SEGMENTS", shape.segments).start();
    let mut world = World::new(&broker, shape);
    for round in 0..shape.kills {
        world.run(&broker, &mut chance);
        // Some starts are killed, too.
        while chance.below(4) == 0 {
            broker.restart_within(Duration::from_micros(chance.below(60_000) as u64));
            broker.kill();
        }
        broker.restart();
        world.check(&broker, &mut chance, round % 4 == 3 || round + 1 == shape.kills);
    }
    let records: usize = world.topics.iter().map(|topic| topic.records.len()).sum();
    println!("{records} messages, {} refused", world.refused);
    broker
}

#[test]
fn what_is_answered_and_what_was_seen_survives_kills_under_small_messages() {
    let sizes = Sizes { large_one_of: 400, large_bytes_max: 60_000 };
    let kills = scaled(KILLS);
    kill_again_and_again(Shape { kills, sizes, segments: SEGMENTS, answers_max: 3000, publishers: 2 });
}

#[test]
fn what_is_answered_and_what_was_seen_survives_kills_under_large_messages() {
    let sizes = Sizes { large_one_of: 12, large_bytes_max: 1 << 20 };
    let kills = scaled(KILLS);
    kill_again_and_again(Shape { kills, sizes, segments: SEGMENTS, answers_max: 600, publishers: 1 });
}

#[test]
fn what_is_answered_and_what_was_seen_survives_kills_while_the_log_is_reused() {
    // So much that checkpoints run most of the time, and that segments of the log and of topics come and go.
    let sizes = Sizes { large_one_of: 2, large_bytes_max: 1 << 20 };
    let kills = scaled(KILLS / 2);
    let broker = kill_again_and_again(Shape { kills, sizes, segments: 8, answers_max: 1000, publishers: 1 });
    let names: Vec<String> = files_below(&broker.folder().join("data"))
        .into_keys()
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    assert!(names.iter().any(|name| name.ends_with(".segment")), "nothing left the log: {names:?}");
}
