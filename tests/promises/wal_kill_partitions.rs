//! Promise: `kill -9` takes nothing of what was answered of a topic of several partitions. What got no answer and is said again
//! under its id is stored once; groups and readers go on where they were, in all partitions, whatever the number of cores.

use crate::broker::{Broker, topic_path};
use crate::chance::{Chance, scaled};
use crate::deadline::wait_until;
use crate::partitioned::place_of;
use crate::stored_directory::DataDirectory;
use crate::wal_kill::KillWhenDropped;
use crate::wal_kill_load::{ACK_WAIT_MS, Load};
use crate::wal_kill_partitions_load::{Publisher, Resumer, follow, work};
use crate::wal_kill_partitions_model::{Ledger, Standing, Told};
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Kills of one test. The suite runs it with 1, 2 and 4 shards.
const KILLS: usize = 12;

/// Answers after which the broker is killed, at most.
const ANSWERS_MAX: usize = 900;

const PUBLISHERS: usize = 2;

/// The groups of each topic: name, workers over HTTP, members over WebSocket.
const GROUPS: [(&str, usize, usize); 2] = [("workers", 2, 0), ("members", 1, 2)];

/// A topic, and who uses it.
struct Used {
    name: String,
    partitions: u64,
    ledger: Mutex<Ledger>,
    publishers: Vec<Publisher>,
    reader: Resumer,
    groups: Vec<Mutex<Standing>>,
}

impl Used {
    fn new(broker: &Broker, name: &str, partitions: u64) -> Self {
        broker.create_partitions(name, partitions as u32, json!({ "ack_wait_ms": ACK_WAIT_MS }));
        Self {
            name: name.to_owned(),
            partitions,
            ledger: Mutex::new(Ledger::new(name, partitions)),
            publishers: (0..PUBLISHERS).map(Publisher::new).collect(),
            reader: Resumer::new(partitions),
            groups: GROUPS.iter().map(|_| Mutex::default()).collect(),
        }
    }

    /// How many use it at once.
    fn everybody(&self) -> usize {
        let in_groups: usize = GROUPS.iter().map(|(_, workers, members)| workers + members).sum();
        self.publishers.len() + 1 + in_groups
    }

    /// Lets everybody use it, each in a thread, until the broker ends.
    fn spawn<'s>(&'s mut self, scope: &'s thread::Scope<'s, '_>, load: &'s Load, chance: &mut Chance) {
        let (ledger, topic, partitions) = (&self.ledger, self.name.as_str(), self.partitions);
        let note = move |seen: Vec<Told>| ledger.lock().unwrap().seen.extend(seen);
        for publisher in &mut self.publishers {
            let mut chance = chance.fork();
            scope.spawn(move || publisher.publish(load, ledger, &mut chance));
        }
        let reader = &mut self.reader;
        scope.spawn(move || note(reader.read(load, topic, None)));
        for ((group, workers, members), standing) in GROUPS.iter().zip(&self.groups) {
            for number in 0..workers + members {
                let mut chance = chance.fork();
                scope.spawn(move || {
                    if number < *workers {
                        note(work(load, &topic_path(topic, &format!("/groups/{group}")), standing, &mut chance));
                    } else {
                        note(follow(load, (topic, group), partitions, standing, &mut chance));
                    }
                });
            }
        }
    }

    /// Reads everything back.
    fn check(&mut self, broker: &Broker, whole: bool, left_of: usize, chance: &mut Chance) {
        let mut connection = broker.connect();
        let ledger = self.ledger.get_mut().unwrap();
        ledger.settle(&mut connection, whole);
        for ((group, ..), standing) in GROUPS.iter().zip(&mut self.groups) {
            let path = topic_path(&self.name, &format!("/groups/{group}"));
            standing.get_mut().unwrap().settle(&mut connection, &path, ledger, left_of, chance);
        }
    }

    /// Says again what got no answer, and lets the reader come to the end.
    fn finish(&mut self, broker: &Broker, chance: &mut Chance) {
        let load = load(broker, 1);
        let mut connection = broker.connect();
        for publisher in &mut self.publishers {
            let again = std::mem::take(&mut publisher.open);
            assert!(publisher.say(&load, &mut connection, again, &self.ledger), "the broker is there");
        }
        self.check(broker, true, 0, chance);
        let ledger = self.ledger.get_mut().unwrap();
        assert!(ledger.is_all_known(), "{}: what was said again is there", self.name);
        ledger.seen = self.reader.read(&load, &self.name, Some(ledger.count()));
        ledger.settle(&mut connection, true);
        for (group, ..) in GROUPS {
            let stats = broker.group(&self.name, group);
            assert!(stats["lag"] == 0 && stats["pending"] == 0, "{stats}");
        }
    }
}

fn load(broker: &Broker, everybody: usize) -> Load {
    Load {
        address: broker.address(),
        everybody,
        may_lose: false,
        ready: AtomicUsize::new(0),
        answers: AtomicUsize::new(0),
    }
}

fn all_topics(broker: &Broker) -> Vec<Used> {
    [("one", 1), ("three/ü", 3), ("eight", 8)].map(|(name, partitions)| Used::new(broker, name, partitions)).into()
}

/// Uses the broker from all sides and kills it in the middle of it.
fn use_and_kill(broker: &Broker, topics: &mut [Used], chance: &mut Chance) {
    let wanted = chance.below(ANSWERS_MAX);
    let everybody: usize = topics.iter().map(Used::everybody).sum();
    let load = &load(broker, everybody + 1);
    thread::scope(|scope| {
        let kill = KillWhenDropped(broker);
        topics.iter_mut().for_each(|topic| topic.spawn(scope, load, chance));
        load.arrive();
        wait_until("enough is answered", || load.answers.load(Ordering::Relaxed) >= wanted);
        drop(kill);
    });
}

fn data() -> (DataDirectory, crate::broker::Setup) {
    let data = DataDirectory::new();
    let setup = data.setup().variable("WAL_SEGMENT_SIZE", 1 << 20).variable("WAL_MAX_SEGMENTS", 1000);
    (data, setup)
}

#[test]
fn what_is_answered_of_all_partitions_survives_kills() {
    let mut chance = Chance::for_test();
    let (_data, setup) = data();
    let mut broker = setup.start();
    let mut topics = all_topics(&broker);
    for round in 0..scaled(KILLS) {
        use_and_kill(&broker, &mut topics, &mut chance);
        // Some starts are killed, too.
        while chance.below(4) == 0 {
            broker.restart_within(Duration::from_micros(chance.below(60_000) as u64));
            broker.kill();
        }
        broker.restart();
        topics.iter_mut().for_each(|topic| topic.check(&broker, round % 4 == 3, 50, &mut chance));
    }
    topics.iter_mut().for_each(|topic| topic.finish(&broker, &mut chance));
    let count: u64 = topics.iter().map(|topic| topic.ledger.lock().unwrap().count()).sum();
    println!("{count} messages");
}

#[test]
fn another_number_of_cores_opens_the_same_directory() {
    let mut chance = Chance::for_test();
    let (_data, setup) = data();
    let mut broker = setup.clone().flag("--cores", 2).start();
    let mut topics = all_topics(&broker);
    for cores in (0..scaled(2)).flat_map(|_| [1, 4, 3, 2]) {
        use_and_kill(&broker, &mut topics, &mut chance);
        broker.wait_for_exit();
        broker = setup.clone().flag("--cores", cores).start();
        topics.iter_mut().for_each(|topic| topic.check(&broker, true, 50, &mut chance));
    }
    topics.iter_mut().for_each(|topic| topic.finish(&broker, &mut chance));
}

#[test]
fn a_group_that_was_answered_stands_in_all_partitions_after_a_kill() {
    const PARTITIONS: u32 = 8;
    let (_data, setup) = data();
    let mut broker = setup.start();
    for round in 0..scaled(6) {
        let topic = format!("t{round}");
        broker.create_roomy(&topic, PARTITIONS);
        broker.publish_to_each(&topic, PARTITIONS);
        // It begins at the end of each partition.
        let fetched = broker.group_post(&topic, "g", "fetch", json!({}));
        assert_eq!(fetched["messages"], json!([]));
        broker.kill();
        broker.restart();
        broker.publish_to_each(&topic, PARTITIONS);
        let mut came = Vec::new();
        wait_until("one came of each", || {
            let fetched = broker.group_post(&topic, "g", "fetch", json!({ "wait_ms": 100 }));
            came.extend(fetched["messages"].as_array().unwrap().iter().map(place_of));
            came.len() >= PARTITIONS as usize
        });
        came.sort_unstable();
        assert_eq!(came, (0..PARTITIONS.into()).map(|partition| (partition, 1)).collect::<Vec<_>>());
    }
}
