//! What is known of topics of several partitions whose broker is killed: what was promised of each message, where each is found,
//! and how their groups may stand.

use crate::broker::topic_path;
use crate::chance::Chance;
use crate::http::Connection;
use crate::wal_kill_model::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_model::PartitionRef;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A partition and an offset in it.
pub(crate) type Place = (u64, u64);

/// The key of messages that have none.
pub(crate) const FREE: &str = "free";

/// The end of keys whose messages have no id.
pub(crate) const ONCE: &str = "once";

/// The payload of a message, which its name decides: `<publisher>-<key>/<number>`, and bytes behind it.
pub(crate) fn payload_of(name: &str) -> Vec<u8> {
    let mixed = name.bytes().fold(7_u64, |mixed, byte| (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let length = match mixed >> 32 & 63 {
        0 => mixed % 40_000,
        1..8 => mixed % 5_000,
        _ => mixed % 300,
    };
    let mut payload = format!("{name}/").into_bytes();
    payload.resize(payload.len() + length as usize, b'a' + (mixed % 26) as u8);
    payload
}

/// Key and number of a name; a key is one publisher's alone.
fn key_and_number(name: &str) -> (&str, u64) {
    let (key, number) = name.rsplit_once('/').unwrap();
    (key, number.parse().unwrap())
}

/// The key that a message of that name is sent with.
pub(crate) fn key_of(name: &str) -> Option<&str> {
    let (key, _) = key_and_number(name);
    (!key.ends_with(FREE)).then_some(key)
}

/// Whether a message of that name is sent without an id, so that nobody may say it again.
pub(crate) fn is_said_once(name: &str) -> bool {
    key_and_number(name).0.ends_with(ONCE)
}

/// A message as any protocol told it.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) id: String,
}

impl Told {
    /// Reads the object that all protocols send, and holds its payload and key against its name.
    pub(crate) fn of(value: &Value) -> Self {
        let (id, offset) = (value["id"].as_str().unwrap().to_owned(), value["offset"].as_u64().unwrap());
        let partition = value.get("partition").map_or(0, |partition| partition.as_u64().unwrap());
        assert!(id.ends_with(&format!("-{partition}-{offset}")), "{id}");
        let payload = STANDARD.decode(value["payload"].as_str().unwrap()).unwrap();
        let end = payload.iter().rposition(|byte| *byte == b'/').unwrap();
        let name = String::from_utf8(payload[..end].to_vec()).unwrap();
        assert_eq!(payload, payload_of(&name), "{name}: other bytes");
        assert_eq!(value["key"].as_str(), key_of(&name), "{name}: another key");
        Self { place: (partition, offset), name, id }
    }
}

/// What is known of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its publish has no answer: it may be stored, once.
    Open,
    /// It is stored; where, unless nobody has said.
    Stored(Option<Place>),
    /// It is not stored and must never be.
    Refused,
}

/// What is known of a topic.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) name: String,
    pub(crate) partitions: u64,
    fates: HashMap<String, Fate>,
    /// What a broker that was just started gave out of each partition.
    found: Vec<Vec<Told>>,
    /// The last number of each key in those.
    last_of_key: HashMap<String, u64>,
    /// What readers saw since the last start.
    pub(crate) seen: Vec<Told>,
}

impl Ledger {
    pub(crate) fn new(name: &str, partitions: u64) -> Self {
        Self {
            name: name.to_owned(),
            partitions,
            fates: HashMap::new(),
            found: vec![Vec::new(); partitions as usize],
            last_of_key: HashMap::new(),
            seen: Vec::new(),
        }
    }

    /// A publish was sent and has no answer.
    pub(crate) fn open(&mut self, name: &str) {
        self.fates.entry(name.to_owned()).or_insert(Fate::Open);
    }

    /// A publish was answered as stored.
    pub(crate) fn stored(&mut self, name: &str, place: Option<Place>) {
        let fate = self.fates.entry(name.to_owned()).or_insert(Fate::Open);
        match (*fate, place) {
            (Fate::Stored(Some(before)), Some(place)) => {
                assert_eq!(before, place, "{}: {name} was answered twice, with two places", self.name);
            }
            (Fate::Stored(Some(_)), None) => {}
            (Fate::Refused, _) => panic!("{}: {name} was refused before", self.name),
            _ => *fate = Fate::Stored(place),
        }
    }

    pub(crate) fn refused(&mut self, name: &str) {
        let before = self.fates.insert(name.to_owned(), Fate::Refused);
        assert!(matches!(before, None | Some(Fate::Open)), "{}: {name} is stored and was refused", self.name);
    }

    /// How many messages there are.
    pub(crate) fn count(&self) -> u64 {
        self.found.iter().map(|found| found.len() as u64).sum()
    }

    /// Whether everything that was sent with an id is there, or was refused.
    pub(crate) fn is_all_known(&self) -> bool {
        let is_open = |(name, fate): (&String, &Fate)| *fate == Fate::Open && !is_said_once(name);
        !self.fates.iter().any(is_open)
    }

    fn ids(&self) -> impl Iterator<Item = &str> {
        self.found.iter().flatten().map(|told| told.id.as_str())
    }

    /// Reads what is new in every partition, or all of it if `whole`, from a broker that was just started, and holds it against
    /// what was promised.
    pub(crate) fn settle(&mut self, connection: &mut Connection, whole: bool) {
        if whole {
            let before = std::mem::replace(&mut self.found, vec![Vec::new(); self.partitions as usize]);
            self.last_of_key.clear();
            self.read(connection);
            for (partition, (now, before)) in self.found.iter().zip(&before).enumerate() {
                let name = &self.name;
                assert!(now.len() >= before.len(), "{name}: there were {} in {partition}", before.len());
                let mut both = now.iter().zip(before);
                assert!(both.all(|(now, before)| (&now.id, &now.name) == (&before.id, &before.name)), "{name}: others");
            }
        } else {
            self.read(connection);
        }
        for told in self.found.iter().flatten() {
            let place = (told.place.0 as usize, told.place.1 as usize);
            assert_eq!(self.found[place.0][place.1].name, told.name);
        }
        let missing = |(name, fate): &(&String, &Fate)| match fate {
            Fate::Stored(Some((partition, offset))) => {
                let there = self.found[*partition as usize].get(*offset as usize);
                there.is_none_or(|there| there.name != **name)
            }
            Fate::Stored(None) => panic!("{}: {name} was promised and is not there", self.name),
            Fate::Open | Fate::Refused => false,
        };
        if let Some((name, fate)) = self.fates.iter().find(missing) {
            panic!("{}: {name} was promised and is not there: {fate:?}", self.name);
        }
        for told in std::mem::take(&mut self.seen) {
            let there = self.found[told.place.0 as usize].get(told.place.1 as usize);
            let is_same = there.is_some_and(|there| (&there.id, &there.name) == (&told.id, &told.name));
            assert!(is_same, "{}: a reader saw {told:?}, now there is {there:?}", self.name);
        }
    }

    /// Reads on in every partition.
    fn read(&mut self, connection: &mut Connection) {
        for partition in 0..self.partitions {
            let mut next = self.found[partition as usize].len() as u64;
            loop {
                let query = format!("/messages?partition={partition}&from_offset={next}&limit=10000");
                let page = get(connection, &topic_path(&self.name, &query)).expect(200).data();
                assert!(page.get("gap").is_none(), "{}: {}", self.name, page["gap"]);
                let messages = page["messages"].as_array().unwrap();
                if messages.is_empty() {
                    let latest = page["latest_offset"].as_i64().unwrap();
                    assert_eq!(latest + 1, next as i64, "{}: partition {partition} ends early", self.name);
                    break;
                }
                for message in messages {
                    let told = Told::of(message);
                    assert_eq!(told.place, (partition, next), "{}: offsets are dense", self.name);
                    next += 1;
                    self.find(told);
                }
            }
        }
    }

    fn find(&mut self, told: Told) {
        let Told { name, place, .. } = &told;
        let fate = self.fates.get_mut(name).unwrap_or_else(|| panic!("{}: {told:?} was never sent", self.name));
        match fate {
            Fate::Open | Fate::Stored(None) => *fate = Fate::Stored(Some(*place)),
            Fate::Stored(Some(promised)) => assert_eq!(promised, place, "{}: {name} is there twice", self.name),
            Fate::Refused => panic!("{}: {told:?} was refused", self.name),
        }
        if key_of(name).is_some() {
            let (key, number) = key_and_number(name);
            let partition = PartitionRef::number_of_key(key.as_bytes(), self.partitions as u32);
            assert_eq!(place.0, u64::from(partition), "{}: {told:?} has its key's partition", self.name);
            let before = self.last_of_key.insert(key.to_owned(), number);
            assert!(before.is_none_or(|before| before < number), "{}: {told:?} stands behind {before:?}", self.name);
        }
        self.found[place.0 as usize].push(told);
    }
}

/// What is known of a group: ids that were acknowledged and answered, and ids that perhaps were.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    done: HashSet<String>,
    maybe: HashSet<String>,
    is_there: bool,
}

impl Standing {
    /// A message was given out.
    #[track_caller]
    pub(crate) fn given(&mut self, told: &Told) {
        self.is_there = true;
        assert!(!self.done.contains(&told.id), "{told:?} was acknowledged and came again");
    }

    pub(crate) fn asked(&mut self, ids: &[String]) {
        self.maybe.extend(ids.iter().cloned());
    }

    pub(crate) fn acknowledged(&mut self, ids: &[String]) {
        self.maybe.retain(|id| !ids.contains(id));
        self.done.extend(ids.iter().cloned());
    }

    /// Takes everything that a group of a broker that was just started gives out, holds it against what was acknowledged, and
    /// leaves the group with `left_of` hundredths of that unacknowledged.
    pub(crate) fn settle(
        &mut self,
        connection: &mut Connection,
        path: &str,
        ledger: &Ledger,
        left_of: usize,
        chance: &mut Chance,
    ) {
        let answer = get(connection, path);
        assert!(answer.status == 200 || !self.is_there, "{path}: {answer:?}");
        let given = drain(connection, path, ledger);
        for id in ledger.ids() {
            let (is_given, is_done, is_open) = (given.contains(id), self.done.contains(id), self.maybe.contains(id));
            assert!(!(is_given && is_done), "{path}: {id} was acknowledged and came again");
            assert!(is_given || is_done || is_open, "{path}: {id} was not acknowledged and does not come again");
        }
        self.is_there = true;
        self.maybe.retain(|id| !given.contains(id));
        self.done.extend(self.maybe.drain());
        let (back, done): (Vec<String>, Vec<String>) = given.into_iter().partition(|_| chance.below(100) < left_of);
        for (verb, ids) in [("/ack", &done), ("/nack", &back)] {
            let answer = post(connection, &format!("{path}{verb}"), &json!({ "ids": ids })).expect(200).data();
            assert_eq!(answer["acknowledged"], ids.len(), "{path}{verb}");
        }
        self.done.extend(done);
        let stats = get(connection, path).expect(200).data();
        assert!(stats["lag"] == 0 || !back.is_empty(), "{stats}");
    }
}

/// The ids of everything that a group gives out.
fn drain(connection: &mut Connection, path: &str, ledger: &Ledger) -> BTreeSet<String> {
    let mut given = BTreeSet::new();
    loop {
        let wish = json!({ "max": 10_000, "from_offset": 0 });
        let fetched = post(connection, &format!("{path}/fetch"), &wish).expect(200).data();
        let messages = fetched["messages"].as_array().unwrap();
        if messages.is_empty() {
            return given;
        }
        for told in messages.iter().map(Told::of) {
            let there = ledger.found[told.place.0 as usize].get(told.place.1 as usize);
            assert!(there.is_some_and(|there| there.id == told.id && there.name == told.name), "{path}: {told:?}");
            assert!(given.insert(told.id.clone()), "{path}: {told:?} came twice");
        }
    }
}
