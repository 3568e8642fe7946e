//! Who uses a broker until it is killed: publishers, readers, members and workers of groups. Each opens its connections first, goes on until they end, and gives what it was told.

use crate::broker::topic_path;
use crate::chance::Chance;
use crate::deadline::{LIMIT, wait_until};
use crate::events::{EventStream, Step};
use crate::http::{Connection, Response, request_bytes};
use crate::wal_kill_model::{Digest, GroupModel, Open, Standing, Told, TopicModel, digest, payload_of};
use crate::websocket::{Heard, LAST, TEXT, WebSocket, frame_bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];

/// The name of the topic that keeps few messages.
pub(crate) const KEEPS_FEW: &str = "keeps few";

/// How large payloads are: most of them small.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// One of that many is large.
    pub(crate) large_one_of: usize,
    pub(crate) large_bytes_max: usize,
}

impl Sizes {
    fn length(self, chance: &mut Chance) -> usize {
        if chance.below(self.large_one_of) == 0 {
            return 1 + chance.below(self.large_bytes_max);
        }
        match chance.below(20) {
            0 | 1 => 0,
            2 => chance.below(16),
            3..8 => chance.below(6000),
            _ => chance.below(300),
        }
    }
}

/// One that publishes.
#[derive(Debug)]
pub(crate) struct Sender<'t> {
    pub(crate) topic: &'t str,
    pub(crate) number: u64,
    pub(crate) sizes: Sizes,
    /// It asks with `ack=memory`: an answer promises nothing but the offset.
    pub(crate) promises_nothing: bool,
}

/// What all of them share during one life of the broker's process.
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    /// How many there are, and how many of them have their connections open: from then on the broker may be killed.
    pub(crate) everybody: usize,
    pub(crate) ready: AtomicUsize,
    /// Whether retention may take what readers and members have not had.
    pub(crate) may_lose: bool,
    /// Requests that were answered.
    pub(crate) answers: AtomicUsize,
}

impl Load {
    /// Waits until everybody's connections are open.
    pub(crate) fn arrive(&self) {
        self.ready.fetch_add(1, Ordering::SeqCst);
        wait_until("everybody is ready", || self.ready.load(Ordering::SeqCst) == self.everybody);
    }

    fn count(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    fn bytes(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        request_bytes(&self.address.to_string(), method, target, headers, body)
    }

    /// One request; nothing when the broker has ended.
    pub(crate) fn ask(
        &self,
        connection: &mut Connection,
        method: &str,
        target: &str,
        body: &Value,
    ) -> Option<Response> {
        let bytes = self.bytes(method, target, JSON, body.to_string().as_bytes());
        let answer = if connection.try_send(&bytes) { connection.try_response_to(method) } else { None };
        answer.inspect(|_| self.count())
    }

    /// Publishes with several requests in flight until the broker ends.
    pub(crate) fn publish(&self, sender: &Sender<'_>, chance: &mut Chance) -> Published {
        let mut connection = self.connect();
        self.arrive();
        let mut published = Published::default();
        let depth = *chance.pick(&[1, 4, 32]);
        while self.publish_some(&mut connection, sender, 1 + chance.below(depth), chance, &mut published) {}
        published
    }

    /// Publishes `count` messages at once and takes their answers; whether the broker is still there.
    pub(crate) fn publish_some(
        &self,
        connection: &mut Connection,
        sender: &Sender<'_>,
        count: usize,
        chance: &mut Chance,
        published: &mut Published,
    ) -> bool {
        let query = if sender.promises_nothing { "?ack=memory" } else { "" };
        let target = topic_path(sender.topic, &format!("/publish{query}"));
        let mut bytes = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..count {
            let payload = payload_of(sender.sizes.length(chance));
            if chance.below(4) == 0 {
                let body = json!({ "payload": STANDARD.encode(&payload) }).to_string();
                bytes.extend(self.bytes("POST", &target, JSON, body.as_bytes()));
            } else {
                bytes.extend(self.bytes("POST", &target, &[], &payload));
            }
            sent.push(digest(&payload));
        }
        let mut is_there = connection.try_send(&bytes);
        for digest in sent {
            let answer = if is_there { connection.try_response_to("POST") } else { None };
            is_there = answer.is_some();
            let mut open = Open { sender: sender.number, digest, offset: None };
            match answer {
                None => published.open.push(open),
                // Nothing was stored.
                Some(answer) if answer.status == 503 => published.refused += 1,
                Some(answer) => {
                    self.count();
                    let offset = answer.expect(202).data()["offset"].as_u64().unwrap();
                    let before = published.last.replace(offset);
                    assert!(before.is_none_or(|before| before < offset), "{}: {offset} after {before:?}", sender.topic);
                    if sender.promises_nothing {
                        open.offset = Some(offset);
                        published.open.push(open);
                    } else {
                        published.answered.push((offset, digest));
                    }
                }
            }
        }
        is_there
    }

    /// Reads a topic over SSE.
    pub(crate) fn read_stream(&self, topic: &str, from: Option<u64>) -> Vec<Told> {
        let query = from.map_or(String::new(), |from| format!("?from_offset={from}"));
        let mut stream = EventStream::open(self.address, &topic_path(topic, &format!("/subscribe/sse{query}")), &[]);
        self.arrive();
        let mut seen = Vec::new();
        loop {
            match stream.step(LIMIT) {
                Step::Event(event) if event.name == "message" => self.push(&mut seen, &event.json(), topic, from),
                Step::Event(event) => assert!(self.may_skip(topic) && event.name == "gap", "{topic}: {event:?}"),
                Step::Ended(_) => return seen,
                Step::Quiet => {}
            }
        }
    }

    /// Reads a topic over WebSocket.
    pub(crate) fn read_socket(&self, topic: &str, from: Option<u64>) -> Vec<Told> {
        let mut socket = self.socket(topic, &from.map_or(String::new(), |from| format!("?from_offset={from}")));
        self.arrive();
        let mut seen = Vec::new();
        loop {
            match socket.step(LIMIT) {
                Heard::Message(message) => self.push(&mut seen, &message.value, topic, from),
                Heard::Cut => return seen,
                Heard::Quiet => {}
                other => panic!("{topic}: {other:?}"),
            }
        }
    }

    fn socket(&self, topic: &str, query: &str) -> WebSocket {
        let mut socket = WebSocket::open(self.address, &topic_path(topic, &format!("/subscribe/ws{query}")), &[]);
        socket.may_be_cut = true;
        socket
    }

    /// Reads a topic by pages.
    pub(crate) fn read_pages(&self, topic: &str, from: u64, chance: &mut Chance) -> Vec<Told> {
        let mut connection = self.connect();
        self.arrive();
        let (mut seen, mut next) = (Vec::new(), from);
        loop {
            let limit = 1 + chance.below(300);
            let target = topic_path(topic, &format!("/messages?from_offset={next}&limit={limit}&wait_ms=1000"));
            let Some(answer) = self.ask(&mut connection, "GET", &target, &Value::Null) else { return seen };
            let page = answer.expect(200).data();
            for message in page["messages"].as_array().unwrap() {
                self.push(&mut seen, message, topic, Some(from));
            }
            next = page["next_offset"].as_u64().unwrap();
        }
    }

    /// Notes a message of a reader, which gets them without a gap.
    fn push(&self, seen: &mut Vec<Told>, value: &Value, topic: &str, from: Option<u64>) {
        let told = Told::of(value);
        let expected = seen.last().map(|last: &Told| last.offset + 1).or(from).unwrap_or(told.offset);
        let goes_on = told.offset == expected || (self.may_skip(topic) && told.offset > expected);
        assert!(goes_on, "{topic}: {} came instead of {expected}", told.offset);
        seen.push(told);
    }

    /// Whether a reader of the topic may be late for some of it.
    fn may_skip(&self, topic: &str) -> bool {
        self.may_lose || topic == KEEPS_FEW
    }

    /// Works for a group without a stream: fetches, acknowledges, gives back, seeks and deletes, one after the other.
    pub(crate) fn work(&self, group: &mut GroupModel, last_known: u64, chance: &mut Chance) -> Vec<Told> {
        let mut connection = self.connect();
        self.arrive();
        let mut seen = Vec::new();
        while self.work_once(&mut connection, group, last_known, chance, &mut seen).is_some() {}
        seen
    }

    /// One of the things that a worker does; nothing when the broker has ended.
    pub(crate) fn work_once(
        &self,
        connection: &mut Connection,
        group: &mut GroupModel,
        last_known: u64,
        chance: &mut Chance,
        seen: &mut Vec<Told>,
    ) -> Option<()> {
        let is_there = group.standings[0].is_some();
        match chance.below(60) {
            0 if is_there => {
                group.standings.push(None);
                self.ask(connection, "DELETE", &group.path(""), &Value::Null)?.expect(200);
                group.standings = vec![None];
            }
            1..4 if is_there => {
                // Not far back, so that there is time for more than repeating.
                let offset = last_known.saturating_sub(chance.below(200) as u64);
                group.standings.push(Some(Standing { floor: offset, ..Standing::default() }));
                self.ask(connection, "POST", &group.path("/seek"), &json!({ "offset": offset }))?.expect(200);
                group.standings.remove(0);
            }
            _ => {
                let wish = json!({ "max": 1 + chance.below(50), "wait_ms": 100, "from_offset": 0 });
                if !is_there {
                    group.standings.push(Some(Standing::default()));
                }
                let fetched = self.ask(connection, "POST", &group.path("/fetch"), &wish)?.expect(200).data();
                let standing = group.standings.pop().unwrap();
                group.standings = vec![standing];
                let told: Vec<Told> = fetched["messages"].as_array().unwrap().iter().map(Told::of).collect();
                let offsets: Vec<u64> = told.iter().map(|told| told.offset).collect();
                seen.extend(told);
                self.work_off(connection, group, offsets, chance)?;
            }
        }
        Some(())
    }

    /// Acknowledges some of what was fetched, gives back others, and keeps the rest.
    fn work_off(
        &self,
        connection: &mut Connection,
        group: &mut GroupModel,
        offsets: Vec<u64>,
        chance: &mut Chance,
    ) -> Option<()> {
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        offsets.into_iter().for_each(|offset| parts[[0, 0, 0, 0, 0, 0, 1, 2][chance.below(8)]].push(offset));
        let [done, back, _] = parts;
        if !done.is_empty() {
            let path = group.path("/ack");
            let standing = group.standings[0].as_mut().unwrap();
            standing.maybe.extend(&done);
            let answer = self.ask(connection, "POST", &path, &json!({ "offsets": done }))?;
            let counted = answer.expect(200).data()["acknowledged"].as_u64().unwrap() as usize;
            assert!(counted == done.len() || self.may_lose, "{path}: {counted} of {done:?}");
            standing.maybe.retain(|offset| !done.contains(offset));
            standing.acknowledged.extend(done);
        }
        if !back.is_empty() {
            self.ask(connection, "POST", &group.path("/nack"), &json!({ "offsets": back }))?.expect(200);
        }
        Some(())
    }

    /// Is a member of a group over WebSocket, acknowledging with and without asking for an answer.
    pub(crate) fn follow(&self, group: &mut GroupModel, chance: &mut Chance) -> Vec<Told> {
        let mut socket = self.socket(&group.topic, &format!("?group={}&from_offset=0", group.name));
        self.arrive();
        if group.standings[0].is_none() {
            group.standings.push(Some(Standing::default()));
        }
        let (mut seen, mut asked, mut held) = (Vec::new(), HashMap::new(), Vec::new());
        for number in 0.. {
            let told = match socket.step(LIMIT) {
                Heard::Message(message) => Told::of(&message.value),
                Heard::Other(answer) => {
                    self.count();
                    let number = answer["ref"].as_u64().unwrap_or_else(|| panic!("{answer}"));
                    let offsets: Vec<u64> = asked.remove(&number).unwrap();
                    assert_eq!(answer["acked"], json!(offsets));
                    let standing = group.standings[0].as_mut().unwrap();
                    standing.maybe.retain(|offset| !offsets.contains(offset));
                    standing.acknowledged.extend(offsets);
                    continue;
                }
                Heard::Cut => break,
                Heard::Quiet => continue,
                Heard::Closed(..) => panic!("closed"),
            };
            // What it got shows that the group is there.
            let standing = group.standings.pop().unwrap();
            group.standings = vec![standing];
            held.push(told.offset);
            seen.push(told);
            if chance.below(5) == 0 {
                let offsets: Vec<u64> = std::mem::take(&mut held);
                let offsets: Vec<u64> = offsets.into_iter().filter(|_| chance.below(10) > 0).collect();
                group.standings[0].as_mut().unwrap().maybe.extend(&offsets);
                let mut frame = json!({ "ack": offsets });
                if chance.below(4) > 0 {
                    frame["ref"] = json!(number);
                    asked.insert(number, offsets);
                }
                socket.connection.try_send(&frame_bytes(LAST | TEXT, frame.to_string().as_bytes()));
            }
        }
        seen
    }
}

/// What a publisher was told.
#[derive(Debug, Default)]
pub(crate) struct Published {
    answered: Vec<(u64, Digest)>,
    open: Vec<Open>,
    last: Option<u64>,
    pub(crate) refused: usize,
}

impl TopicModel {
    pub(crate) fn take(&mut self, published: Published) {
        published.answered.into_iter().for_each(|(offset, digest)| self.answered(offset, digest));
        self.open.extend(published.open);
    }
}

/// Long enough that what is held comes again for no other reason than a new start.
pub(crate) const ACK_WAIT_MS: u64 = 600_000;
