//! What the tests of a killed broker know: what was promised of each topic and group, and what may or may not have happened.

use crate::broker::topic_path;
use crate::chance::Chance;
use crate::http::{Connection, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};

/// Payloads of at least that many bytes are unlike all others.
pub(crate) const UNIQUE_BYTES: usize = 16;

/// A payload's length and hash.
pub(crate) type Digest = (usize, u64);

pub(crate) fn digest(payload: &[u8]) -> Digest {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    (payload.len(), hasher.finish())
}

/// A payload of that length that no other publish sends, unless it is too short to say so.
pub(crate) fn payload_of(length: usize) -> Vec<u8> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut mixed = number;
    let mut payload = format!("{number:016x}").into_bytes();
    payload.truncate(length);
    while payload.len() + 8 <= length {
        mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ number;
        payload.extend(mixed.to_le_bytes());
    }
    payload.resize(length, b'.');
    payload
}

/// A publish of which nobody knows whether it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    /// Whose: the payloads of one sender are stored in the order in which it sent them.
    pub(crate) sender: u64,
    pub(crate) digest: Digest,
    /// Where it is if it is stored, when the broker has said so before it was durable.
    pub(crate) offset: Option<u64>,
}

/// A message as a page or a stream told it.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) offset: u64,
    pub(crate) digest: Digest,
    pub(crate) incarnation: String,
}

impl Told {
    /// Reads the object that all protocols send.
    pub(crate) fn of(value: &Value) -> Self {
        let (id, payload) = (value["id"].as_str().unwrap(), value["payload"].as_str().unwrap());
        let offset = value["offset"].as_u64().unwrap();
        let (rest, last) = id.rsplit_once('-').unwrap();
        assert_eq!(last, offset.to_string(), "{id}");
        let incarnation = rest.rsplit_once('-').unwrap().0.to_owned();
        Self { offset, digest: digest(&STANDARD.decode(payload).unwrap()), incarnation }
    }
}

/// What a topic may not give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    Everything,
    /// The last messages, that many.
    Messages(u64),
    /// The last messages with at least so many bytes of payload. The broker may give up others at any time.
    Bytes(u64),
}

/// What is known of one life of a topic.
#[derive(Debug)]
pub(crate) struct TopicModel {
    pub(crate) name: String,
    pub(crate) keeps: Keeps,
    /// All that is stored for sure, by offset.
    pub(crate) records: BTreeMap<u64, Digest>,
    /// Everything below was read after a start.
    pub(crate) end: u64,
    pub(crate) earliest: u64,
    pub(crate) open: Vec<Open>,
    /// What readers saw since the last start.
    pub(crate) seen: Vec<Told>,
    /// The first part of its messages' ids.
    pub(crate) incarnation: Option<String>,
}

impl TopicModel {
    pub(crate) fn new(name: &str, keeps: Keeps) -> Self {
        Self {
            name: name.to_owned(),
            keeps,
            records: BTreeMap::new(),
            end: 0,
            earliest: 0,
            open: Vec::new(),
            seen: Vec::new(),
            incarnation: None,
        }
    }

    /// Notes an answered publish.
    pub(crate) fn answered(&mut self, offset: u64, digest: Digest) {
        assert!(
            offset >= self.end,
            "{}: the offset {offset} was given twice: there was one before the start",
            self.name
        );
        let other = self.records.insert(offset, digest);
        assert!(other.is_none(), "{}: the offset {offset} was given to two", self.name);
    }

    /// Reads everything back from a broker that was just started, compares it with what was promised, and learns what became of
    /// the rest. A topic that was read before is read from somewhere in the middle, unless `whole`.
    pub(crate) fn settle(&mut self, connection: &mut Connection, chance: &mut Chance, whole: bool) {
        let (earliest, end) = self.bounds(connection);
        let last_promised = self.records.last_key_value().map_or(0, |(offset, _)| offset + 1);
        assert!(end >= last_promised, "{}: {last_promised} were promised, {end} are there", self.name);
        let from = if whole { earliest } else { earliest.max(chance.below(1 + self.end as usize) as u64) };
        let found = self.read(connection, from, end);
        for told in &found {
            let known = self.incarnation.get_or_insert_with(|| told.incarnation.clone());
            assert_eq!(*known, told.incarnation, "{}: another life at {}", self.name, told.offset);
            if let Some(promised) = self.records.get(&told.offset) {
                assert_eq!(*promised, told.digest, "{}: other bytes at {}", self.name, told.offset);
            }
        }
        self.match_open(&found);
        self.end = end;
        self.learn_start(connection);
        for told in std::mem::take(&mut self.seen) {
            let there = self.records.get(&told.offset);
            if there.is_none() && told.offset < self.earliest {
                continue;
            }
            assert_eq!(there, Some(&told.digest), "{}: a reader saw {told:?}, which is not there now", self.name);
            assert_eq!(self.incarnation.as_ref(), Some(&told.incarnation), "{}: {told:?}", self.name);
        }
    }

    /// The first offset and the one after the last.
    fn bounds(&self, connection: &mut Connection) -> (u64, u64) {
        let stats = get(connection, &topic_path(&self.name, "")).expect(200).data();
        assert_eq!(stats["storage"], "wal", "{stats}");
        let latest = stats["latest_offset"].as_i64().unwrap();
        (stats["earliest_offset"].as_u64().unwrap(), u64::try_from(latest + 1).unwrap())
    }

    /// Learns where the topic begins by now: retention only moves on, and takes no more than it may.
    pub(crate) fn learn_start(&mut self, connection: &mut Connection) {
        let (earliest, end) = self.bounds(connection);
        assert!(earliest >= self.earliest, "{}: kept from {} before, now from {earliest}", self.name, self.earliest);
        let is_enough = match self.keeps {
            Keeps::Everything => earliest == 0,
            Keeps::Messages(count) => earliest <= end.saturating_sub(count),
            Keeps::Bytes(least) => {
                let bytes = || self.records.range(earliest..).map(|(_, digest)| digest.0 as u64).sum::<u64>();
                earliest == 0 || bytes() >= least
            }
        };
        assert!(is_enough, "{}: of {end} messages those below {earliest} are gone", self.name);
        self.earliest = earliest;
    }

    /// All messages from `from` up to but without `end`, which must be there without a gap, unless they are given up meanwhile.
    fn read(&self, connection: &mut Connection, from: u64, end: u64) -> Vec<Told> {
        let mut found: Vec<Told> = Vec::new();
        let mut next = from;
        while next < end {
            let target = topic_path(&self.name, &format!("/messages?from_offset={next}&limit=10000"));
            let page = get(connection, &target).expect(200).data();
            if let Some(gap) = page.get("gap") {
                assert!(matches!(self.keeps, Keeps::Bytes(_)), "{}: {gap}", self.name);
                next = gap["resumed"].as_u64().unwrap();
            }
            let messages = page["messages"].as_array().unwrap();
            assert!(!messages.is_empty(), "{}: of {end} nothing at {next}", self.name);
            for message in messages {
                let told = Told::of(message);
                assert_eq!(told.offset, next, "{}: offsets are dense", self.name);
                next += 1;
                found.push(told);
            }
        }
        found
    }

    /// Finds out which of the publishes without an answer are stored. What is found and was not sent is a fault; what is not
    /// found must never come up again.
    fn match_open(&mut self, found: &[Told]) {
        let open = std::mem::take(&mut self.open);
        let mut by_digest: HashMap<Digest, Vec<usize>> = HashMap::new();
        let mut by_offset: HashMap<u64, usize> = HashMap::new();
        for (index, open) in open.iter().enumerate().rev() {
            match open.offset {
                Some(offset) => drop(by_offset.insert(offset, index)),
                None => by_digest.entry(open.digest).or_default().push(index),
            }
        }
        let mut last_of_sender: HashMap<u64, usize> = HashMap::new();
        for told in found {
            if self.records.contains_key(&told.offset) {
                continue;
            }
            let told_before = by_offset.get(&told.offset).copied();
            let index = told_before.or_else(|| by_digest.get_mut(&told.digest).and_then(Vec::pop));
            let index = index.unwrap_or_else(|| panic!("{}: {told:?} was never sent, or is there twice", self.name));
            let sent = &open[index];
            assert_eq!(sent.digest, told.digest, "{}: {told:?} was given to another", self.name);
            if told.digest.0 >= UNIQUE_BYTES
                && let Some(before) = last_of_sender.insert(sent.sender, index)
            {
                assert!(before < index, "{}: {sent:?} went before what its sender sent before", self.name);
            }
            self.records.insert(told.offset, told.digest);
        }
    }
}

/// How a group may stand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    /// Everything below is done with.
    pub(crate) floor: u64,
    /// Acknowledged and answered.
    pub(crate) acknowledged: HashSet<u64>,
    /// Acknowledged, perhaps.
    pub(crate) maybe: HashSet<u64>,
}

/// What is known of one group.
#[derive(Debug)]
pub(crate) struct GroupModel {
    pub(crate) topic: String,
    pub(crate) name: String,
    /// How it may stand: more than one while a request is unanswered. `None` when it is not there.
    pub(crate) standings: Vec<Option<Standing>>,
}

impl GroupModel {
    /// A group that does not exist.
    pub(crate) fn new(topic: &str, name: &str) -> Self {
        Self { topic: topic.to_owned(), name: name.to_owned(), standings: vec![None] }
    }

    pub(crate) fn path(&self, verb: &str) -> String {
        topic_path(&self.topic, &format!("/groups/{}{verb}", self.name))
    }

    /// Takes everything that a group of a broker that was just started gives out, compares it with what was acknowledged, and
    /// leaves the group with some of it acknowledged.
    pub(crate) fn settle(&mut self, connection: &mut Connection, topic: &mut TopicModel, chance: &mut Chance) {
        let answer = get(connection, &self.path(""));
        if answer.status == 404 {
            assert!(self.standings.iter().any(Option::is_none), "{}/{}: it is gone", self.topic, self.name);
            self.standings = vec![None];
            return;
        }
        answer.expect(200);
        let mut given = self.drain(connection, topic);
        topic.learn_start(connection);
        given.retain(|offset| *offset >= topic.earliest);
        let faults: Vec<String> =
            self.standings.iter().flatten().filter_map(|standing| fault(standing, topic, &given)).collect();
        let possible = self.standings.iter().flatten().count();
        assert!(
            faults.len() < possible,
            "{}/{}: {faults:?}; it gave {} from {:?}, of {possible} it may be {:?}",
            self.topic,
            self.name,
            given.len(),
            given.first(),
            self.standings.iter().map(|standing| standing.as_ref().map(|standing| standing.floor)).collect::<Vec<_>>()
        );
        let (acknowledged, left): (BTreeSet<u64>, BTreeSet<u64>) = given.iter().partition(|_| chance.below(2) == 0);
        let may_lose = matches!(topic.keeps, Keeps::Bytes(_));
        self.tell(connection, "/ack", &acknowledged, may_lose);
        self.tell(connection, "/nack", &left, may_lose);
        let stats = get(connection, &self.path("")).expect(200).data();
        let committed = left.first().copied().unwrap_or(topic.end);
        let is_there = stats["committed_offset"] == committed;
        assert!(is_there || may_lose, "{}/{}: {committed}, but {stats}", self.topic, self.name);
        let acknowledged = (committed..topic.end).filter(|offset| !left.contains(offset)).collect();
        self.standings = vec![Some(Standing { floor: committed, acknowledged, maybe: HashSet::new() })];
    }

    /// Everything that the group gives out.
    fn drain(&self, connection: &mut Connection, topic: &TopicModel) -> BTreeSet<u64> {
        let mut given = BTreeSet::new();
        loop {
            let fetched = post(connection, &self.path("/fetch"), &json!({ "max": 10_000 })).expect(200).data();
            let messages = fetched["messages"].as_array().unwrap();
            if messages.is_empty() {
                return given;
            }
            for told in messages.iter().map(Told::of) {
                let known = topic.records.get(&told.offset);
                assert_eq!(known, Some(&told.digest), "{}/{}: {told:?} is another", self.topic, self.name);
                assert!(given.insert(told.offset), "{}/{}: {} came twice", self.topic, self.name, told.offset);
            }
        }
    }

    fn tell(&self, connection: &mut Connection, verb: &str, offsets: &BTreeSet<u64>, may_lose: bool) {
        if !offsets.is_empty() {
            let answer = post(connection, &self.path(verb), &json!({ "offsets": offsets })).expect(200).data();
            let is_all = answer["acknowledged"] == offsets.len();
            assert!(is_all || may_lose, "{}/{}{verb}: {answer}, not {}", self.topic, self.name, offsets.len());
        }
    }
}

/// What speaks against a group standing so when it gave out that.
fn fault(standing: &Standing, topic: &TopicModel, given: &BTreeSet<u64>) -> Option<String> {
    let again = given.iter().find(|offset| **offset < standing.floor || standing.acknowledged.contains(offset));
    if let Some(offset) = again {
        return Some(format!("{offset} was acknowledged and came again (floor {})", standing.floor));
    }
    let is_done = |offset: &u64| standing.acknowledged.contains(offset) || standing.maybe.contains(offset);
    let expected = standing.floor.max(topic.earliest)..topic.end;
    let missing = expected.clone().find(|offset| !given.contains(offset) && !is_done(offset));
    missing.map(|offset| format!("{offset} of {expected:?} was never acknowledged and does not come again"))
}

pub(crate) fn get(connection: &mut Connection, target: &str) -> Response {
    connection.send_request("GET", target, &[], b"");
    connection.response_to("GET")
}

pub(crate) fn post(connection: &mut Connection, target: &str, body: &Value) -> Response {
    connection.send_request("POST", target, &[("Content-Type", "application/json")], body.to_string().as_bytes());
    connection.response_to("POST")
}
