//! A subscriber or member over either protocol, whose messages and notices look the same, and that can be made to take little
//! while it does not read.

use crate::broker::{Broker, topic_path};
use crate::deadline::LIMIT;
use crate::events::{End, EventStream, Step, message_of};
use crate::http::request_bytes;
use crate::websocket::{EXTENDED, HANDSHAKE, Heard, WebSocket};
use serde_json::Value;
use std::time::Duration;

/// Bytes that the system takes for one that does not read: little, so that not much is hidden from the broker, and yet more
/// than a segment on the loopback, without which it would send by a timer.
const RECEIVE_BUFFER_BYTES: usize = 128 << 10;

/// Which protocol, and whether notices are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sse,
    /// A WebSocket of one of our own clients.
    Own,
    /// A WebSocket of any other client, which is told of messages only.
    Plain,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Sse, Kind::Own, Kind::Plain];

/// What a reader was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    Message {
        offset: u64,
        payload: Vec<u8>,
    },
    Gap {
        requested: u64,
        resumed: u64,
    },
    /// Another notice, by its name.
    Notice(String, Value),
    /// The end, in words or by a close code.
    End(String),
    /// Nothing until the deadline.
    Quiet,
}

#[derive(Debug)]
pub(crate) enum Reader {
    Stream(EventStream),
    Socket(WebSocket),
}

impl Reader {
    /// Subscribes; `query` is empty or begins with `?`.
    pub(crate) fn open(broker: &Broker, topic: &str, query: &str, kind: Kind) -> Self {
        let mut connection = broker.connect();
        rustix::net::sockopt::set_socket_recv_buffer_size(connection.sender(), RECEIVE_BUFFER_BYTES).unwrap();
        let own = [&HANDSHAKE[..], &[EXTENDED]].concat();
        let (path, headers) = match kind {
            Kind::Sse => ("/subscribe/sse", &[("Accept", "text/event-stream")][..]),
            Kind::Own => ("/subscribe/ws", &own[..]),
            Kind::Plain => ("/subscribe/ws", &HANDSHAKE[..]),
        };
        let target = topic_path(topic, &format!("{path}{query}"));
        connection.send(&request_bytes(&broker.address().to_string(), "GET", &target, headers, b""));
        match kind {
            Kind::Sse => Self::Stream(EventStream::from_connection(connection)),
            Kind::Own | Kind::Plain => Self::Socket(WebSocket::from_connection(connection)),
        }
    }

    /// What comes next. After an end the connection must end as its protocol has it.
    #[track_caller]
    pub(crate) fn step(&mut self, limit: Duration) -> Told {
        match self {
            Self::Stream(stream) => match stream.step(limit) {
                Step::Event(event) if event.name == "message" => {
                    let message = message_of(&event);
                    Told::Message { offset: message.offset, payload: message.payload }
                }
                Step::Event(event) if event.name == "end" => {
                    assert_eq!(stream.wait_for_end(), End::Whole);
                    Told::End(event.json()["reason"].as_str().unwrap().to_owned())
                }
                Step::Event(event) => notice(&event.name, &event.json()),
                Step::Quiet => Told::Quiet,
                Step::Ended(end) => panic!("ended without a word: {end:?}"),
            },
            Self::Socket(socket) => match socket.step(limit) {
                Heard::Message(message) => Told::Message { offset: message.offset, payload: message.payload },
                Heard::Closed(code, _) => {
                    assert_eq!(socket.step(LIMIT), Heard::Cut);
                    Told::End(code.to_string())
                }
                Heard::Other(value) => {
                    let (name, inner) = value.as_object().unwrap().iter().next().unwrap();
                    notice(name, inner)
                }
                Heard::Quiet => Told::Quiet,
                Heard::Cut => panic!("cut without a word"),
            },
        }
    }

    /// The next thing that is told; panics when nothing comes.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Told {
        match self.step(LIMIT) {
            Told::Quiet => panic!("nothing came"),
            told => told,
        }
    }

    /// The next message's offset.
    #[track_caller]
    pub(crate) fn offset(&mut self) -> u64 {
        match self.next() {
            Told::Message { offset, .. } => offset,
            other => panic!("expected a message, got {other:?}"),
        }
    }
}

fn notice(name: &str, inner: &Value) -> Told {
    match name {
        "gap" => {
            Told::Gap { requested: inner["requested"].as_u64().unwrap(), resumed: inner["resumed"].as_u64().unwrap() }
        }
        _ => Told::Notice(name.to_owned(), inner.clone()),
    }
}
