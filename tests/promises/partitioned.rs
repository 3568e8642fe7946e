//! Topics with several partitions: made, published to by key, and watched partition by partition.

use crate::broker::{Broker, topic_path};
use crate::chance::Chance;
use crate::http::request_bytes;
use crate::partitions::key_of;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Which partition a message is of, and its offset there; its id must say the same.
#[track_caller]
pub(crate) fn place_of(message: &Value) -> (u64, u64) {
    let partition = message["partition"].as_u64().unwrap_or_else(|| panic!("no partition: {message}"));
    let offset = message["offset"].as_u64().expect("an offset");
    let id = message["id"].as_str().expect("an id");
    let mut parts = id.split('-');
    assert_eq!(parts.next().map(str::len), Some(16), "{id}");
    assert_eq!(parts.next(), Some(partition.to_string().as_str()), "{id}");
    assert_eq!(parts.next(), Some(offset.to_string().as_str()), "{id}");
    (partition, offset)
}

/// The id of a message, by which it is acknowledged.
pub(crate) fn id_of(message: &Value) -> &str {
    message["id"].as_str().expect("an id")
}

/// A key of each partition.
pub(crate) fn key_of_each(partitions: u32) -> Vec<String> {
    (0..partitions).map(|partition| key_of(partition, partitions)).collect()
}

impl Broker {
    /// A topic of so many partitions, which keeps everything that a test publishes and takes nothing back in a hurry.
    pub(crate) fn create_roomy(&self, name: &str, partitions: u32) {
        self.create_partitions(
            name,
            partitions,
            json!({ "retention": { "max_messages": 10_000_000 }, "ack_wait_ms": 600_000 }),
        );
    }

    /// Publishes one message behind its key.
    pub(crate) fn publish_keyed(&self, topic: &str, key: &str, payload: &[u8]) {
        self.request("POST", &topic_path(topic, "/publish"), &[("X-Key", key)], payload).expect(202);
    }

    /// Publishes one message to each of so many partitions; gives a key of each.
    pub(crate) fn publish_to_each(&self, topic: &str, partitions: u32) -> Vec<String> {
        let keys = key_of_each(partitions);
        keys.iter().for_each(|key| self.publish_keyed(topic, key, key.as_bytes()));
        keys
    }

    /// Publishes so many messages with keys of chance, some in each packet; each says its key and how many of the key came before.
    pub(crate) fn publish_by_keys(&self, topic: &str, name: &str, total: u64, chance: &mut Chance) {
        let mut connection = self.connect();
        let (target, host) = (topic_path(topic, "/publish"), self.address().to_string());
        let mut sent: BTreeMap<String, u64> = BTreeMap::new();
        let mut left = total;
        while left > 0 {
            let count = (1 + chance.below(24) as u64).min(left);
            let mut bytes = Vec::new();
            for _ in 0..count {
                let key = format!("{name}-{}", chance.below(40));
                let number = sent.entry(key.clone()).or_default();
                // Some are larger than what is copied behind an id.
                let length = if chance.below(8) == 0 { 6000 } else { chance.below(200) };
                let payload = format!("{key}/{number}/{}", "x".repeat(length));
                *number += 1;
                bytes.extend(request_bytes(&host, "POST", &target, &[("X-Key", &key)], payload.as_bytes()));
            }
            connection.send(&bytes);
            (0..count).for_each(|_| drop(connection.response_to("POST").expect(202)));
            left -= count;
        }
    }
}

/// What a reader of all partitions has seen: each must go on by one, and the messages of a key must come in their order.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Where each partition goes on.
    pub(crate) next: BTreeMap<u64, u64>,
    keys: BTreeMap<String, u64>,
    pub(crate) count: u64,
}

impl Seen {
    #[track_caller]
    pub(crate) fn take(&mut self, message: &Value, payload: &[u8]) {
        let (partition, offset) = place_of(message);
        let next = self.next.entry(partition).or_default();
        assert_eq!(offset, *next, "partition {partition}: a gap or a double");
        *next += 1;
        self.count += 1;
        let text = std::str::from_utf8(payload).unwrap();
        let mut parts = text.split('/');
        let (key, number) = (parts.next().unwrap(), parts.next().unwrap().parse::<u64>().unwrap());
        assert_eq!(message["key"], key, "the message of another key");
        let next = self.keys.entry(key.to_owned()).or_default();
        assert_eq!(number, *next, "{key}: the messages of a key keep their order");
        *next += 1;
    }

    /// The partitions that something came of.
    pub(crate) fn partitions(&self) -> BTreeSet<u64> {
        self.next.keys().copied().collect()
    }
}
