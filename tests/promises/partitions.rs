//! Topics of several partitions for tests: made, and published to in a partition of choice by a key that goes there.

use crate::broker::{Broker, topic_path};
use ringmain_model::PartitionRef;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A key whose messages go to that partition of a topic of `partitions`.
pub(crate) fn key_of(partition: u32, partitions: u32) -> String {
    let is_it = |key: &String| PartitionRef::number_of_key(key.as_bytes(), partitions) == partition;
    (0..).map(|number| format!("key-{number}")).find(is_it).unwrap()
}

/// Offsets of fetched messages by partition.
pub(crate) fn offsets_by_partition(messages: &[Value]) -> BTreeMap<u64, Vec<u64>> {
    let mut offsets: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for message in messages {
        let number = |name: &str| message[name].as_u64().unwrap_or_else(|| panic!("{name} in {message}"));
        offsets.entry(number("partition")).or_default().push(number("offset"));
    }
    offsets
}

impl Broker {
    /// Creates a topic of so many partitions with further settings.
    pub(crate) fn create_partitions(&self, name: &str, partitions: u32, mut settings: Value) {
        settings["partitions"] = json!(partitions);
        self.create_topic_with(settings, name);
    }

    /// Publishes so many messages to a partition of a topic that has `partitions`.
    pub(crate) fn publish_in(&self, topic: &str, (partition, partitions): (u32, u32), count: usize) {
        let (mut connection, key) = (self.connect(), key_of(partition, partitions));
        for _ in 0..count {
            connection.send_request("POST", &topic_path(topic, "/publish"), &[("X-Key", &key)], key.as_bytes());
            connection.response_to("POST").expect(202);
        }
    }

    /// The messages of a page of one partition.
    pub(crate) fn page_of(&self, topic: &str, partition: u32, query: &str) -> Vec<Value> {
        let target = topic_path(topic, &format!("/messages?partition={partition}{query}"));
        self.get(&target).expect(200).data()["messages"].as_array().unwrap().clone()
    }
}
