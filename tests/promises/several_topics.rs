//! One stream of several topics, over either protocol, as the promises about such streams watch it.

use crate::broker::Broker;
use crate::events::EventStream;
use crate::http::path_segment;
use crate::websocket::{EXTENDED, WebSocket};
use serde_json::Value;

/// The path of a stream of those topics; `more` is empty or begins with `&`.
pub(crate) fn target(kind: &str, topics: &[&str], more: &str) -> String {
    let names: Vec<_> = topics.iter().map(|topic| format!("topic={}", path_segment(topic))).collect();
    format!("/subscribe/{kind}?{}{more}", names.join("&"))
}

/// Which topic a message is of, and its offset there.
pub(crate) fn topic_and_offset(message: &Value) -> (&str, u64) {
    (message["topic"].as_str().expect("a topic"), message["offset"].as_u64().expect("an offset"))
}

impl Broker {
    /// An event stream of several topics that must be granted.
    pub(crate) fn subscribe_to_all(&self, topics: &[&str], more: &str, last_id: &str) -> EventStream {
        let headers = [("Last-Event-ID", last_id)];
        let headers = if last_id.is_empty() { &[][..] } else { &headers[..] };
        EventStream::open(self.address(), &target("sse", topics, more), headers)
    }

    /// A WebSocket of several topics, of a client of ours.
    pub(crate) fn socket_of_all(&self, topics: &[&str], more: &str) -> WebSocket {
        WebSocket::open(self.address(), &target("ws", topics, more), &[EXTENDED])
    }

    pub(crate) fn create_topics(&self, names: &[&str]) {
        names.iter().for_each(|name| self.create_topic(name));
    }
}
