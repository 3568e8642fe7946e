//! Promise: a change of a topic's settings holds in all its partitions or in none, also when the broker is killed in the middle of it;
//! one that was answered stays.

use crate::broker::{Broker, topic_path};
use crate::chance::{Chance, scaled};
use crate::deadline::wait_until;
use crate::http::{Connection, request_bytes};
use crate::stored_directory::DataDirectory;
use crate::wal_kill::KillWhenDropped;
use crate::wal_kill_load::Load;
use crate::wal_kill_model::get;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Kills of one test. The suite runs it with 1, 2 and 4 shards.
const KILLS: usize = 12;

/// Answers after which the broker is killed, at most.
const ANSWERS_MAX: usize = 150;

const KEPT_MIN: u64 = 5;
const KEPT_MAX: u64 = 40;

const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];

/// Messages that are kept in each partition, and the wait for acknowledgements in milliseconds.
type Settings = (u64, u64);

/// A topic whose settings change.
struct Changing {
    name: &'static str,
    partitions: u64,
    changes: u64,
    /// How it may be set: as the last answer said, or as a later change wants that got none.
    possible: Vec<Settings>,
}

impl Changing {
    fn new(broker: &Broker, name: &'static str, partitions: u64) -> Self {
        let settings = (KEPT_MAX, 50_000);
        let made = json!({ "retention": { "max_messages": settings.0 }, "ack_wait_ms": settings.1 });
        broker.create_partitions(name, partitions as u32, made);
        Self { name, partitions, changes: 0, possible: vec![settings] }
    }

    /// Changes the settings, some times several in one packet, until the broker ends.
    fn change(&mut self, load: &Load, chance: &mut Chance) {
        let mut connection = load.connect();
        load.arrive();
        let (host, target) = (load.address.to_string(), topic_path(self.name, ""));
        loop {
            let mut bytes = Vec::new();
            let count = *chance.pick(&[1, 1, 2, 5]);
            for _ in 0..count {
                self.changes += 1;
                let kept = KEPT_MIN + chance.below((KEPT_MAX - KEPT_MIN + 1) as usize) as u64;
                let wanted: Settings = (kept, 50_000 + self.changes);
                self.possible.push(wanted);
                let body = json!({ "retention": { "max_messages": wanted.0 }, "ack_wait_ms": wanted.1 }).to_string();
                bytes.extend(request_bytes(&host, "PATCH", &target, JSON, body.as_bytes()));
            }
            connection.try_send(&bytes);
            for _ in 0..count {
                let Some(answer) = connection.try_response_to("PATCH") else { return };
                load.answers.fetch_add(1, Ordering::Relaxed);
                answer.expect(200);
                self.possible.remove(0);
            }
        }
    }

    /// Compares it with a broker that was just started: what each partition keeps shows how it is set.
    fn settle(&mut self, connection: &mut Connection) {
        let stats = get(connection, &topic_path(self.name, "")).expect(200).data();
        let settings = settings_of(&stats);
        assert!(self.possible.contains(&settings), "{} may be set as {:?}: {stats}", self.name, self.possible);
        self.possible = vec![settings];
        let counts = self.counts(&stats);
        assert!(counts.iter().all(|count| *count <= settings.0), "{} keeps {}: {stats}", self.name, settings.0);
        let body = json!({ "payload": "bQ==" }).to_string();
        for partition in 0..self.partitions {
            let target = topic_path(self.name, &format!("/publish?partition={partition}"));
            for _ in 0..=KEPT_MAX {
                connection.send_request("POST", &target, JSON, body.as_bytes());
            }
        }
        for _ in 0..self.partitions * (KEPT_MAX + 1) {
            connection.response_to("POST").expect(202);
        }
        let stats = get(connection, &topic_path(self.name, "")).expect(200).data();
        assert_eq!(self.counts(&stats), vec![settings.0; self.partitions as usize], "{}: {stats}", self.name);
        assert_eq!(settings_of(&stats), settings);
    }

    /// How many messages each partition has.
    fn counts(&self, stats: &Value) -> Vec<u64> {
        let count = |part: &Value| part["message_count"].as_u64().unwrap();
        if self.partitions == 1 {
            return vec![count(stats)];
        }
        stats["partition_stats"].as_array().unwrap().iter().map(count).collect()
    }
}

fn settings_of(stats: &Value) -> Settings {
    (stats["retention"]["max_messages"].as_u64().unwrap(), stats["ack_wait_ms"].as_u64().unwrap())
}

#[test]
fn a_change_holds_in_all_partitions_after_kills() {
    let mut chance = Chance::for_test();
    let data = DataDirectory::new();
    let mut broker = data.setup().start();
    let mut topics = [("one", 1), ("three", 3), ("eight", 8)].map(|(name, count)| Changing::new(&broker, name, count));
    for _ in 0..scaled(KILLS) {
        let wanted = chance.below(ANSWERS_MAX);
        let load = &Load {
            address: broker.address(),
            everybody: topics.len() + 1,
            may_lose: false,
            ready: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
        };
        thread::scope(|scope| {
            let kill = KillWhenDropped(&broker);
            for topic in &mut topics {
                let mut chance = chance.fork();
                scope.spawn(move || topic.change(load, &mut chance));
            }
            load.arrive();
            wait_until("enough is answered", || load.answers.load(Ordering::Relaxed) >= wanted);
            drop(kill);
        });
        while chance.below(4) == 0 {
            broker.restart_within(Duration::from_micros(chance.below(60_000) as u64));
            broker.kill();
        }
        broker.restart();
        let mut connection = broker.connect();
        topics.iter_mut().for_each(|topic| topic.settle(&mut connection));
    }
    // A start without a change before it finds the same.
    broker.terminate();
    broker.restart();
    let mut connection = broker.connect();
    topics.iter_mut().for_each(|topic| topic.settle(&mut connection));
}
