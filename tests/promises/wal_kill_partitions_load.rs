//! Who uses topics of several partitions until their broker is killed: publishers that say again what got no answer, a reader that
//! resumes by its token, workers and members of groups.

use crate::broker::topic_path;
use crate::chance::Chance;
use crate::deadline::LIMIT;
use crate::events::{EventStream, Step};
use crate::http::{Connection, Response, request_bytes};
use crate::wal_kill_load::Load;
use crate::wal_kill_partitions_model::{FREE, Ledger, ONCE, Place, Standing, Told, is_said_once, key_of, payload_of};
use crate::websocket::{Heard, LAST, TEXT, WebSocket, frame_bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Keys of each publisher.
const KEYS: usize = 6;

/// One publish: its request, and the names of its messages.
#[derive(Debug, Clone)]
pub(crate) struct Publish {
    query: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    names: Vec<String>,
}

impl Publish {
    fn bytes(&self, host: &str, topic: &str) -> Vec<u8> {
        let headers: Vec<(&str, &str)> = self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let target = topic_path(topic, &format!("/publish{}", self.query));
        request_bytes(host, "POST", &target, &headers, &self.body)
    }

    /// A message as a raw body, or in JSON. Without an id nobody may say it again.
    fn single(name: String, has_id: bool, is_raw: bool) -> Self {
        let mut headers = Vec::new();
        if !is_raw {
            let body = line(&name, has_id).into_bytes();
            headers.push(("Content-Type", "application/json".to_owned()));
            return Self { query: "", headers, body, names: vec![name] };
        }
        headers.extend(key_of(&name).map(|key| ("X-Key", key.to_owned())));
        headers.extend(has_id.then(|| ("Idempotency-Key", name.clone())));
        Self { query: "", headers, body: payload_of(&name), names: vec![name] }
    }

    fn batch(names: Vec<String>, query: &'static str) -> Self {
        let body: String = names.iter().map(|name| line(name, true) + "\n").collect();
        let headers = vec![("Content-Type", "application/x-ndjson".to_owned())];
        Self { query, headers, body: body.into_bytes(), names }
    }
}

fn line(name: &str, has_id: bool) -> String {
    let mut body = json!({ "payload": STANDARD.encode(payload_of(name)) });
    if let Some(key) = key_of(name) {
        body["key"] = json!(key);
    }
    if has_id {
        body["id"] = json!(name);
    }
    body.to_string()
}

/// The places that an answer tells of the messages of a publish, as far as it tells them.
fn places(answer: &Value, names: &[String]) -> Vec<Option<Place>> {
    let partition = |told: &Value| told.get("partition").map_or(0, |partition| partition.as_u64().unwrap());
    if let Some(offset) = answer.get("offset") {
        return vec![Some((partition(answer), offset.as_u64().unwrap()))];
    }
    assert_eq!(answer["count"], names.len(), "{answer}");
    let first = answer["first_offset"].as_u64().filter(|_| answer.get("repeated").is_none());
    names.iter().zip(0..).map(|(_, at)| Some((partition(answer), first? + at))).collect()
}

/// One that publishes, over all lives of the broker's process.
#[derive(Debug)]
pub(crate) struct Publisher {
    name: String,
    numbers: [u64; KEYS + 2],
    /// Publishes that got no answer, in the order in which they were sent. Each is said again until it is answered.
    pub(crate) open: Vec<Publish>,
}

impl Publisher {
    pub(crate) fn new(number: usize) -> Self {
        Self { name: format!("p{number}"), numbers: [0; KEYS + 2], open: Vec::new() }
    }

    /// The next name of a key; behind the keys with ids stand the free messages, and a key whose messages have no ids.
    fn name(&mut self, key: usize) -> String {
        let number = self.numbers[key];
        self.numbers[key] += 1;
        match key {
            KEYS => format!("{}-{FREE}/{number}", self.name),
            _ if key > KEYS => format!("{}-{ONCE}/{number}", self.name),
            _ => format!("{}-k{key}/{number}", self.name),
        }
    }

    fn next(&mut self, chance: &mut Chance) -> Publish {
        let count = 1 + chance.below(12);
        match chance.below(10) {
            0 => Publish::single(self.name(KEYS + 1), false, chance.below(2) == 0),
            1..6 => Publish::single(self.name(chance.below(KEYS + 1)), true, chance.below(2) == 0),
            6 | 7 => {
                let key = chance.below(KEYS);
                Publish::batch((0..count).map(|_| self.name(key)).collect(), "")
            }
            _ => Publish::batch((0..count).map(|_| self.name(chance.below(KEYS + 1))).collect(), "?atomic=false"),
        }
    }

    /// Says again what got no answer, then publishes with several requests in flight until the broker ends.
    pub(crate) fn publish(&mut self, load: &Load, ledger: &Mutex<Ledger>, chance: &mut Chance) {
        let mut connection = load.connect();
        load.arrive();
        let depth = *chance.pick(&[1, 4, 24]);
        let again = std::mem::take(&mut self.open);
        if !self.say(load, &mut connection, again, ledger) {
            return;
        }
        loop {
            let some = (0..1 + chance.below(depth)).map(|_| self.next(chance)).collect();
            if !self.say(load, &mut connection, some, ledger) {
                return;
            }
        }
    }

    /// Sends publishes at once and takes their answers; whether the broker is still there.
    pub(crate) fn say(
        &mut self,
        load: &Load,
        connection: &mut Connection,
        some: Vec<Publish>,
        ledger: &Mutex<Ledger>,
    ) -> bool {
        let (host, topic) = (load.address.to_string(), ledger.lock().unwrap().name.clone());
        let bytes: Vec<u8> = some.iter().flat_map(|publish| publish.bytes(&host, &topic)).collect();
        some.iter().flat_map(|publish| &publish.names).for_each(|name| ledger.lock().unwrap().open(name));
        let mut is_there = connection.try_send(&bytes);
        for publish in some {
            let answer = if is_there { connection.try_response_to("POST") } else { None };
            is_there = answer.is_some();
            match answer {
                Some(answer) => {
                    load.answers.fetch_add(1, Ordering::Relaxed);
                    take(&mut ledger.lock().unwrap(), &publish, answer);
                }
                // Only what has an id may be said again.
                None if !is_said_once(&publish.names[0]) => self.open.push(publish),
                None => {}
            }
        }
        is_there
    }
}

fn take(ledger: &mut Ledger, publish: &Publish, answer: Response) {
    if answer.status == 503 {
        return publish.names.iter().for_each(|name| ledger.refused(name));
    }
    let answer = answer.expect(202).data();
    let Some(parts) = answer["partitions"].as_array() else {
        let places = places(&answer, &publish.names);
        return publish.names.iter().zip(places).for_each(|(name, place)| ledger.stored(name, place));
    };
    let told: u64 = parts.iter().map(|part| part["count"].as_u64().unwrap()).sum();
    assert!(told == publish.names.len() as u64 && answer["count"] == told, "{answer}");
    publish.names.iter().for_each(|name| ledger.stored(name, None));
}

/// A reader that goes on by its last token, over all lives of the broker's process.
#[derive(Debug)]
pub(crate) struct Resumer {
    token: String,
    next: Vec<u64>,
}

impl Resumer {
    pub(crate) fn new(partitions: u64) -> Self {
        Self { token: String::new(), next: vec![0; partitions as usize] }
    }

    pub(crate) fn count(&self) -> u64 {
        self.next.iter().sum()
    }

    fn open(&self, load: &Load, topic: &str) -> EventStream {
        let headers = [("Last-Event-ID", self.token.as_str())];
        let headers = if self.token.is_empty() { &[][..] } else { &headers[..] };
        EventStream::open(load.address, &topic_path(topic, "/subscribe/sse?from_offset=0"), headers)
    }

    /// Reads until the broker ends, or until it has had `until` messages in all.
    pub(crate) fn read(&mut self, load: &Load, topic: &str, until: Option<u64>) -> Vec<Told> {
        let mut stream = self.open(load, topic);
        load.arrive();
        let mut seen = Vec::new();
        while until.is_none_or(|until| self.count() < until) {
            match stream.step(LIMIT) {
                Step::Event(event) if event.name == "message" => {
                    let told = Told::of(&event.json());
                    let next = &mut self.next[told.place.0 as usize];
                    assert_eq!(told.place.1, *next, "{topic}: a gap or a double: {told:?}");
                    *next += 1;
                    seen.push(told);
                }
                Step::Event(event) => panic!("{topic}: {event:?}"),
                Step::Ended(_) => break,
                Step::Quiet => assert!(until.is_none(), "{topic}: nothing came after {}", self.count()),
            }
        }
        if !stream.last_id.is_empty() {
            self.token.clone_from(&stream.last_id);
        }
        seen
    }
}

/// One that works for a group without a stream: fetches, acknowledges by ids, and gives back.
pub(crate) fn work(load: &Load, path: &str, standing: &Mutex<Standing>, chance: &mut Chance) -> Vec<Told> {
    let mut connection = load.connect();
    load.arrive();
    let mut seen = Vec::new();
    while work_once(load, &mut connection, path, standing, chance, &mut seen).is_some() {}
    seen
}

fn work_once(
    load: &Load,
    connection: &mut Connection,
    path: &str,
    standing: &Mutex<Standing>,
    chance: &mut Chance,
    seen: &mut Vec<Told>,
) -> Option<()> {
    let wish = json!({ "max": 1 + chance.below(50), "wait_ms": 100, "from_offset": 0 });
    let fetched = load.ask(connection, "POST", &format!("{path}/fetch"), &wish)?.expect(200).data();
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for message in fetched["messages"].as_array().unwrap() {
        let told = Told::of(message);
        standing.lock().unwrap().given(&told);
        parts[[0, 0, 0, 0, 0, 0, 1, 2][chance.below(8)]].push(told.id.clone());
        seen.push(told);
    }
    let [done, back, _] = parts;
    if !done.is_empty() {
        standing.lock().unwrap().asked(&done);
        let answer = load.ask(connection, "POST", &format!("{path}/ack"), &json!({ "ids": done }))?;
        assert_eq!(answer.expect(200).data()["acknowledged"], done.len(), "{path}");
        standing.lock().unwrap().acknowledged(&done);
    }
    if !back.is_empty() {
        let answer = load.ask(connection, "POST", &format!("{path}/nack"), &json!({ "ids": back }))?;
        assert_eq!(answer.expect(200).data()["acknowledged"], back.len(), "{path}");
    }
    Some(())
}

/// A member of a group over WebSocket, acknowledging with and without asking for an answer.
pub(crate) fn follow(
    load: &Load,
    (topic, group): (&str, &str),
    partitions: u64,
    standing: &Mutex<Standing>,
    chance: &mut Chance,
) -> Vec<Told> {
    let target = topic_path(topic, &format!("/subscribe/ws?group={group}&from_offset=0"));
    let mut socket = WebSocket::open(load.address, &target, &[]);
    socket.may_be_cut = true;
    load.arrive();
    let (mut seen, mut held, mut asked) = (Vec::new(), Vec::<Told>::new(), HashMap::new());
    for number in 0_u64.. {
        let told = match socket.step(LIMIT) {
            Heard::Message(message) => Told::of(&message.value),
            Heard::Other(answer) => {
                load.answers.fetch_add(1, Ordering::Relaxed);
                let (word, ids): (Value, Vec<String>) = asked.remove(&answer["ref"].as_u64().unwrap()).unwrap();
                assert!(answer["acked"] == word && answer["count"] == ids.len(), "{answer}");
                standing.lock().unwrap().acknowledged(&ids);
                continue;
            }
            Heard::Cut => break,
            Heard::Quiet => continue,
            Heard::Closed(..) => panic!("closed"),
        };
        standing.lock().unwrap().given(&told);
        held.push(told.clone());
        seen.push(told);
        if chance.below(5) == 0 {
            let done: Vec<Told> = std::mem::take(&mut held).into_iter().filter(|_| chance.below(10) > 0).collect();
            let ids: Vec<String> = done.iter().map(|told| told.id.clone()).collect();
            standing.lock().unwrap().asked(&ids);
            let offsets: Vec<u64> = done.iter().map(|told| told.place.1).collect();
            let word = if partitions == 1 { json!(offsets) } else { json!(ids) };
            let mut frame = json!({ "ack": word });
            if chance.below(4) > 0 {
                frame["ref"] = json!(number);
                asked.insert(number, (word, ids));
            }
            socket.connection.try_send(&frame_bytes(LAST | TEXT, frame.to_string().as_bytes()));
        }
    }
    seen
}
