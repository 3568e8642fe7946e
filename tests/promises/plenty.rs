//! Plenty: many messages in few packets, what memory the broker takes for them, and clients that leave them unread.

use crate::broker::{Broker, topic_path};
use crate::http::{Connection, request_bytes};
use serde_json::Value;
use std::fs;

/// Requests that are sent before their answers are read, and their bytes at most.
const AHEAD: usize = 64;
const AHEAD_BYTES: usize = 256 << 10;

/// Bytes that the system takes for a client that does not read: little, so that not much is hidden from the broker.
const RECEIVE_BUFFER_BYTES: usize = 128 << 10;

pub(crate) const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];

impl Broker {
    /// Publishes one payload that many times, in few packets.
    pub(crate) fn publish_many(&self, topic: &str, payload: &[u8], count: usize) {
        let mut connection = self.connect();
        let request = self.request_to("POST", &topic_path(topic, "/publish"), payload);
        let ahead = (AHEAD_BYTES / request.len()).clamp(1, AHEAD);
        let mut left = count;
        while left > 0 {
            let some = left.min(ahead);
            connection.send(&request.repeat(some));
            (0..some).for_each(|_| drop(connection.response_to("POST").expect(202)));
            left -= some;
        }
    }

    /// The bytes of a request whose body is a payload.
    pub(crate) fn request_to(&self, method: &str, target: &str, body: &[u8]) -> Vec<u8> {
        request_bytes(&self.address().to_string(), method, target, &[], body)
    }

    /// The bytes of a request whose body is JSON.
    pub(crate) fn json_request_to(&self, target: &str, body: &Value) -> Vec<u8> {
        request_bytes(&self.address().to_string(), "POST", target, JSON, body.to_string().as_bytes())
    }

    /// A connection for which the system takes little while nobody reads.
    pub(crate) fn connect_narrow(&self) -> Connection {
        let connection = self.connect();
        rustix::net::sockopt::set_socket_recv_buffer_size(connection.sender(), RECEIVE_BUFFER_BYTES).unwrap();
        connection
    }

    /// A topic that keeps that many messages.
    pub(crate) fn create_topic_of(&self, name: &str, messages: u64) {
        self.create_topic_with(serde_json::json!({ "retention": { "max_messages": messages } }), name);
    }

    /// Connections that were answered before, enough of them that each core has some.
    pub(crate) fn probes(&self) -> Vec<Connection> {
        let mut probes: Vec<_> = (0..8).map(|_| self.connect()).collect();
        expect_health(&mut probes);
        probes
    }

    /// Bytes of memory that the process holds.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Bytes of memory that it ever held.
    pub(crate) fn resident_bytes_peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process_id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }
}

/// Asks over all connections whether the broker lives, before reading an answer.
pub(crate) fn expect_health(probes: &mut [Connection]) {
    probes.iter_mut().for_each(|probe| probe.send_request("GET", "/health", &[], b""));
    probes.iter_mut().for_each(|probe| drop(probe.response_to("GET").expect(200)));
}

/// Offsets of the messages in the data of a fetch.
pub(crate) fn offsets(data: &Value) -> Vec<u64> {
    data["messages"].as_array().unwrap().iter().map(|message| message["offset"].as_u64().unwrap()).collect()
}
