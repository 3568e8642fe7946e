//! Promise: topics of several partitions that are made and deleted under `kill -9` are whole or gone. An answered creation stays
//! with all its partitions and messages, an answered deletion stays too, and nothing of an earlier life comes back, in no file.

use crate::broker::{Broker, topic_path};
use crate::chance::{Chance, scaled};
use crate::deadline::wait_until;
use crate::http::{Connection, request_bytes};
use crate::inspect::inspect;
use crate::stored_directory::DataDirectory;
use crate::wal_kill::KillWhenDropped;
use crate::wal_kill_load::Load;
use crate::wal_kill_model::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Kills of one test. The suite runs it with 1, 2 and 4 shards.
const KILLS: usize = 20;

/// Answers after which the broker is killed, at most.
const ANSWERS_MAX: usize = 250;

/// Topics that one connection each makes and deletes, so that everything is known of them.
const OWNED: usize = 4;

/// Topics that several connections make and delete at once.
const SHARED: [&str; 2] = ["shared", "shared/ü"];

const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];

/// Payloads begin with that and a blank, and go on with the number of the message.
fn life_of(topic: &str, number: u64) -> String {
    format!("{topic}#{number}")
}

/// One life of a topic.
#[derive(Debug, Clone, Default)]
struct Life {
    number: u64,
    partitions: u64,
    /// What is stored for sure, by place.
    stored: BTreeMap<(u64, u64), u64>,
    /// Messages whose publish has no answer.
    open: BTreeSet<u64>,
    messages: u64,
    has_group: bool,
}

/// A topic that one connection makes and deletes.
struct Owned {
    name: String,
    lives: u64,
    /// How it may stand: more than one while a request is unanswered. Lives that follow one another differ in their partitions.
    possible: Vec<Option<Life>>,
    /// One of so many messages is large.
    large_one_of: usize,
}

impl Owned {
    fn new(number: usize, large_one_of: usize) -> Self {
        Self { name: format!("owned {number}"), lives: 0, possible: vec![None], large_one_of }
    }

    fn life(&mut self) -> &mut Life {
        self.possible[0].as_mut().unwrap()
    }

    fn birth(&mut self, chance: &mut Chance) -> (Life, Value) {
        let before = self.possible.iter().flatten().map(|life| life.partitions).max().unwrap_or(self.lives % 2);
        let partitions = *chance.pick(&[1, 2, 3, 5, 8]);
        let partitions = if partitions == before { partitions + 1 } else { partitions };
        self.lives += 1;
        let life = Life { number: self.lives, partitions, ..Life::default() };
        (life, json!({ "name": self.name, "partitions": partitions }))
    }

    /// Makes the topic, uses it, deletes it, and begins again, until the broker ends.
    fn live_and_die(&mut self, load: &Load, chance: &mut Chance) {
        let mut connection = load.connect();
        load.arrive();
        while self.live(load, &mut connection, chance).is_some() {}
    }

    fn live(&mut self, load: &Load, connection: &mut Connection, chance: &mut Chance) -> Option<()> {
        if self.possible[0].is_none() {
            let (life, body) = self.birth(chance);
            self.possible.push(Some(life));
            let made = load.ask(connection, "POST", "/topics", &body)?;
            self.born(&made.expect(201).data());
        }
        for _ in 0..chance.below(4) {
            self.publish(load, connection, 1 + chance.below(12), chance)?;
            if chance.below(3) == 0 {
                self.life().has_group = true;
                let path = topic_path(&self.name, "/groups/g/fetch");
                load.ask(connection, "POST", &path, &json!({ "from_offset": 0, "max": 5 }))?.expect(200);
            }
        }
        let target = topic_path(&self.name, "");
        self.possible.push(None);
        if chance.below(2) == 0 {
            load.ask(connection, "DELETE", &target, &Value::Null)?.expect(200);
            self.possible.remove(0);
            return Some(());
        }
        // The next life in the same packet.
        let (life, body) = self.birth(chance);
        self.possible.push(Some(life));
        let host = load.address.to_string();
        let mut bytes = request_bytes(&host, "DELETE", &target, &[], b"");
        bytes.extend(request_bytes(&host, "POST", "/topics", JSON, body.to_string().as_bytes()));
        connection.try_send(&bytes);
        connection.try_response_to("DELETE")?.expect(200);
        self.possible.remove(0);
        let made = connection.try_response_to("POST")?;
        load.answers.fetch_add(2, Ordering::Relaxed);
        self.born(&made.expect(201).data());
        Some(())
    }

    /// The last of the possible lives has begun.
    fn born(&mut self, made: &Value) {
        self.possible.drain(..self.possible.len() - 1);
        assert_eq!(made["partitions"], self.life().partitions, "{made}");
        assert!(made["message_count"] == 0 && made["groups"] == 0, "something of an earlier life: {made}");
    }

    /// Publishes so many messages at once, some of them large, to partitions of chance.
    fn publish(&mut self, load: &Load, connection: &mut Connection, count: usize, chance: &mut Chance) -> Option<()> {
        let (host, name, large_one_of) = (load.address.to_string(), self.name.clone(), self.large_one_of);
        let life = self.life();
        let (mut bytes, mut sent) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (partition, number) = (chance.below(life.partitions as usize) as u64, life.messages);
            life.messages += 1;
            life.open.insert(number);
            let mut payload = format!("{} {number} ", life_of(&name, life.number)).into_bytes();
            let is_large = chance.below(large_one_of) == 0;
            payload.resize(payload.len() + if is_large { 900_000 } else { chance.below(300) }, b'x');
            let target = topic_path(&name, &format!("/publish?partition={partition}"));
            bytes.extend(request_bytes(&host, "POST", &target, &[], &payload));
            sent.push((partition, number));
        }
        connection.try_send(&bytes);
        for (partition, number) in sent {
            let answer = connection.try_response_to("POST")?;
            load.answers.fetch_add(1, Ordering::Relaxed);
            life.open.remove(&number);
            if answer.status != 503 {
                let offset = answer.expect(202).data()["offset"].as_u64().unwrap();
                let before = life.stored.insert((partition, offset), number);
                assert_eq!(before, None, "{name}: the offset {offset} of {partition} was given twice");
            }
        }
        Some(())
    }

    /// Compares it with a broker that was just started. Gives its incarnation.
    fn settle(&mut self, connection: &mut Connection) -> Option<String> {
        let name = self.name.clone();
        let possible = std::mem::take(&mut self.possible);
        let Some(stats) = whole(connection, &name) else {
            assert!(possible.iter().any(Option::is_none), "{name} is gone: {possible:?}");
            self.possible = vec![None];
            return None;
        };
        let shown: Vec<_> =
            possible.iter().map(|life| life.as_ref().map(|life| (life.number, life.partitions))).collect();
        let mut lives = possible.into_iter().flatten();
        let life = lives.find(|life| stats["partitions"] == life.partitions);
        let mut life = life.unwrap_or_else(|| panic!("{name} may stand as {shown:?}: {stats}"));
        assert!(life.has_group || stats["groups"] == 0, "{name}: the groups of an earlier life: {stats}");
        let begin = life_of(&name, life.number);
        let mut incarnations = BTreeSet::new();
        for partition in 0..life.partitions {
            let mut offsets = 0;
            for message in messages(connection, &name, partition) {
                assert_eq!(message["offset"], offsets, "{name}: offsets of {partition} are dense");
                let payload = STANDARD.decode(message["payload"].as_str().unwrap()).unwrap();
                let text = String::from_utf8(payload).unwrap();
                let mut words = text.rsplitn(3, ' ');
                let (_, number) = (words.next(), words.next().unwrap().parse::<u64>().unwrap());
                assert_eq!(words.next(), Some(begin.as_str()), "{name}: a message of an earlier life");
                match life.stored.get(&(partition, offsets)) {
                    Some(stored) => assert_eq!(*stored, number, "{name}: another at {partition}, {offsets}"),
                    None => assert!(life.open.remove(&number), "{name}: {number} was not sent, or is there twice"),
                }
                life.stored.insert((partition, offsets), number);
                incarnations.insert(incarnation_of(&message));
                offsets += 1;
            }
            let promised = life.stored.range((partition, 0)..(partition + 1, 0)).count() as u64;
            assert_eq!(offsets, promised, "{name}: what was promised of {partition} is there");
            // The next offset is the one after the last.
            let target = topic_path(&name, &format!("/publish?partition={partition}"));
            let payload = format!("{begin} {} ", life.messages);
            connection.send_request("POST", &target, &[], payload.as_bytes());
            let told = connection.response_to("POST").expect(202).data();
            assert_eq!(told["offset"], offsets, "{name}: {partition} goes on without a gap");
            life.stored.insert((partition, offsets), life.messages);
            life.messages += 1;
            let last = topic_path(&name, &format!("/messages?partition={partition}&from_offset={offsets}"));
            let told = get(connection, &last).expect(200).data();
            assert_eq!(told["messages"].as_array().map(Vec::len), Some(1), "{told}");
            incarnations.insert(incarnation_of(&told["messages"][0]));
        }
        life.open.clear();
        self.possible = vec![Some(life)];
        assert_eq!(incarnations.len(), 1, "{name} has one life in all its partitions");
        incarnations.pop_first()
    }
}

fn incarnation_of(message: &Value) -> String {
    message["id"].as_str().unwrap().split('-').next().unwrap().to_owned()
}

fn messages(connection: &mut Connection, name: &str, partition: u64) -> Vec<Value> {
    let mut messages = Vec::new();
    loop {
        let from = messages.len();
        let target = topic_path(name, &format!("/messages?partition={partition}&from_offset={from}&limit=10000"));
        let page = get(connection, &target).expect(200).data();
        let some = page["messages"].as_array().unwrap();
        if some.is_empty() {
            assert_eq!(page["latest_offset"], from as i64 - 1, "{name}: {partition} ends early");
            return messages;
        }
        messages.extend(some.iter().cloned());
    }
}

/// The stats of a topic, which must be there in all its partitions; nothing if it is not there.
fn whole(connection: &mut Connection, name: &str) -> Option<Value> {
    let answer = get(connection, &topic_path(name, ""));
    if answer.status == 404 {
        return None;
    }
    let stats = answer.expect(200).data();
    assert_eq!(stats["storage"], "wal", "{stats}");
    let partitions = stats["partitions"].as_u64().unwrap();
    let parts = stats["partition_stats"].as_array();
    let told = parts.into_iter().flatten().map(|part| part["partition"].as_u64().unwrap());
    let all: Vec<u64> = if partitions == 1 { Vec::new() } else { (0..partitions).collect() };
    assert_eq!(told.collect::<Vec<_>>(), all, "{stats}");
    Some(stats)
}

/// Makes and deletes a topic that others make and delete as well, and publishes into whatever life it has.
fn quarrel(load: &Load, chance: &mut Chance) {
    let mut connection = load.connect();
    load.arrive();
    loop {
        let name = *chance.pick(&SHARED);
        let partitions = 1 + chance.below(8);
        let (method, target, body, allowed) = match chance.below(4) {
            // Another may delete it before anybody knows of it.
            0 => {
                let body = json!({ "name": name, "partitions": partitions });
                ("POST", "/topics".to_owned(), body, &[201, 409, 404][..])
            }
            1 => ("DELETE", topic_path(name, ""), Value::Null, &[200, 404][..]),
            _ => ("POST", topic_path(name, "/publish"), json!({ "payload": "bQ==" }), &[202, 404][..]),
        };
        let Some(answer) = load.ask(&mut connection, method, &target, &body) else { return };
        assert!(allowed.contains(&answer.status) || answer.status == 503, "{method} {target}: {answer:?}");
    }
}

/// A topic of which little is known: it is there in all partitions, in one life, or it is gone. Gives its incarnation.
fn settle_shared(connection: &mut Connection, name: &str) -> Option<String> {
    let stats = whole(connection, name)?;
    let partitions = stats["partitions"].as_u64().unwrap();
    let incarnations: HashSet<String> = (0..partitions)
        .flat_map(|partition| {
            let target = topic_path(name, &format!("/publish?partition={partition}"));
            post(connection, &target, &json!({ "payload": "bQ==" })).expect(202);
            messages(connection, name, partition)
        })
        .map(|message| incarnation_of(&message))
        .collect();
    assert_eq!(incarnations.len(), 1, "{name} has one life in all its partitions");
    incarnations.into_iter().next()
}

/// Compares everything with a broker that was just started. Gives the incarnations that are there.
fn check(broker: &Broker, owned: &mut [Owned]) -> HashSet<String> {
    let mut connection = broker.connect();
    let listed = get(&mut connection, "/topics").expect(200).data();
    let mut there: Vec<String> = Vec::new();
    let mut incarnations = HashSet::new();
    for topic in owned {
        if let Some(incarnation) = topic.settle(&mut connection) {
            incarnations.insert(incarnation);
            there.push(topic.name.clone());
        }
    }
    for name in SHARED {
        if let Some(incarnation) = settle_shared(&mut connection, name) {
            incarnations.insert(incarnation);
            there.push(name.to_owned());
        }
    }
    let listed: Vec<_> = listed.as_array().unwrap().iter().map(|topic| topic["name"].as_str().unwrap()).collect();
    assert_eq!(listed, there, "the list has what answers");
    assert_eq!(incarnations.len(), there.len(), "each has a life of its own");
    incarnations
}

fn use_and_kill(broker: &Broker, owned: &mut [Owned], chance: &mut Chance) {
    let wanted = chance.below(ANSWERS_MAX);
    let everybody = owned.len() + 3;
    let load = &Load {
        address: broker.address(),
        everybody: everybody + 1,
        may_lose: false,
        ready: AtomicUsize::new(0),
        answers: AtomicUsize::new(0),
    };
    thread::scope(|scope| {
        let kill = KillWhenDropped(broker);
        for topic in owned {
            let mut chance = chance.fork();
            scope.spawn(move || topic.live_and_die(load, &mut chance));
        }
        for _ in 0..3 {
            let mut chance = chance.fork();
            scope.spawn(move || quarrel(load, &mut chance));
        }
        load.arrive();
        wait_until("enough is answered", || load.answers.load(Ordering::Relaxed) >= wanted);
        drop(kill);
    });
}

/// Incarnations of the topics that have segments of their own.
fn stored_lives(data: &DataDirectory) -> BTreeSet<String> {
    let names = data.files().into_iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
    let lives = names.filter(|name| name.ends_with(".segment")).map(|name| name.split('-').nth(1).unwrap().to_owned());
    lives.collect()
}

/// Lets topics come and go and kills the broker, again and again. `large_one_of`: one of so many messages is large.
fn kill_again_and_again(kills: usize, large_one_of: usize) {
    let mut chance = Chance::for_test();
    let data = DataDirectory::new();
    let mut broker = data.setup().variable("WAL_SEGMENT_SIZE", 1 << 20).variable("WAL_MAX_SEGMENTS", 1000).start();
    let mut owned: Vec<Owned> = (0..OWNED).map(|number| Owned::new(number, large_one_of)).collect();
    let mut stored = BTreeSet::new();
    for round in 0..kills {
        use_and_kill(&broker, &mut owned, &mut chance);
        // Some starts are killed, too.
        while chance.below(4) == 0 {
            broker.restart_within(Duration::from_micros(chance.below(60_000) as u64));
            broker.kill();
        }
        broker.wait_for_exit();
        if round % 6 == 3 {
            inspect(data.path(), &[]).expect(0);
        }
        stored.extend(stored_lives(&data));
        broker.restart();
        check(&broker, &mut owned);
    }
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
    inspect(data.path(), &[]).expect(0);
    broker.restart();
    let living = check(&broker, &mut owned);
    wait_until("the files of topics that are gone are gone", || {
        stored_lives(&data).iter().all(|life| living.contains(life))
    });
    // Nor does a topic that is deleted now leave any, in no shard.
    let listed = broker.get("/topics").expect(200).data();
    listed.as_array().unwrap().iter().for_each(|topic| broker.delete_topic(topic["name"].as_str().unwrap()));
    wait_until("the files of all topics are gone", || stored_lives(&data).is_empty());
    let lives: u64 = owned.iter().map(|topic| topic.lives).sum();
    println!("{lives} lives, {} of them in segments", stored.len());
}

#[test]
fn topics_that_come_and_go_are_whole_or_gone_after_kills() {
    kill_again_and_again(scaled(KILLS), 40);
}

#[test]
fn topics_that_have_left_the_log_are_whole_or_gone_after_kills() {
    // So much that checkpoints move messages to segments of the topics.
    kill_again_and_again(scaled(KILLS / 4), 2);
}
