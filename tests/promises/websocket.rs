//! A WebSocket client over a plain socket, written from RFC 6455, strict about what it reads and free in what it sends. It
//! shares no code with the broker, so that the broker's own codec is not its own judge.

use crate::broker::{Broker, topic_path};
use crate::deadline::LIMIT;
use crate::http::{Connection, Filled, Response, request_bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The key of the RFC's own example, and what it must be answered with.
pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub(crate) const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The subprotocol whose clients are told of what is not a message.
pub(crate) const EXTENDED: (&str, &str) = ("Sec-WebSocket-Protocol", "ringmain.v1");

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
/// Added to the opcode of a message's last frame.
pub(crate) const LAST: u8 = 0x80;

/// The headers of a handshake.
pub(crate) const HANDSHAKE: [(&str, &str); 4] = [
    ("Upgrade", "websocket"),
    ("Connection", "keep-alive, Upgrade"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
];

/// A frame of the broker; it never splits a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
}

/// A message of the topic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Received {
    pub(crate) offset: u64,
    pub(crate) payload: Vec<u8>,
    /// Which attempt it is; 1 when the message does not say.
    pub(crate) attempt: u64,
    /// The whole object.
    pub(crate) value: Value,
}

/// What came next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    Message(Received),
    /// A text frame that is no message: an answer or a notice.
    Other(Value),
    /// The broker's close frame: code and reason.
    Closed(u16, String),
    /// The connection ended without one.
    Cut,
    /// Nothing until the deadline.
    Quiet,
}

/// An open WebSocket.
#[derive(Debug)]
pub(crate) struct WebSocket {
    pub(crate) connection: Connection,
    pub(crate) head: Response,
    /// Bytes of `connection.pending` that were read as frames and not taken out yet.
    used: usize,
    /// Pings of the broker so far; each is answered.
    pub(crate) pings: usize,
    /// Whether the broker may end in the middle of a frame, because the test kills it.
    pub(crate) may_be_cut: bool,
}

/// The bytes of a frame, masked as a client must. `first` is the opcode, [`LAST`] unless more follows, and reserved bits.
pub(crate) fn frame_bytes(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length @ 126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ MASK[at % 4]));
    bytes
}

impl WebSocket {
    /// Opens a WebSocket and panics unless it is granted.
    pub(crate) fn open(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Self {
        let mut connection = Connection::open(address);
        let all = [&HANDSHAKE, headers].concat();
        connection.send(&request_bytes(&address.to_string(), "GET", target, &all, b""));
        Self::from_connection(connection)
    }

    /// Takes over a connection on which a handshake has been sent.
    pub(crate) fn from_connection(mut connection: Connection) -> Self {
        let head = connection.head(Instant::now() + LIMIT).expect("closed instead of a WebSocket");
        assert!(head.status == 101, "no WebSocket: {head:?} {:?}", connection.pending_text());
        assert_eq!(head.header("sec-websocket-accept"), Some(ACCEPT));
        assert!(head.lists("upgrade", "websocket") && head.lists("connection", "upgrade"), "{head:?}");
        assert!(head.header("sec-websocket-extensions").is_none(), "none was offered: {head:?}");
        assert!(head.header("content-length").is_none() && head.header("transfer-encoding").is_none(), "{head:?}");
        Self { connection, head, used: 0, pings: 0, may_be_cut: false }
    }

    /// Sends a frame; see [`frame_bytes`].
    pub(crate) fn send_frame(&mut self, first: u8, payload: &[u8]) {
        self.connection.send(&frame_bytes(first, payload));
    }

    /// Sends a JSON text frame.
    pub(crate) fn say(&mut self, value: Value) {
        self.send_frame(LAST | TEXT, value.to_string().as_bytes());
    }

    /// Acknowledges offsets, and waits until the broker has it.
    #[track_caller]
    pub(crate) fn acknowledge(&mut self, offsets: &[u64]) {
        self.say(json!({ "ack": offsets, "ref": "acknowledge" }));
        let answer = self.other();
        assert_eq!((&answer["acked"], &answer["ref"]), (&json!(offsets), &json!("acknowledge")));
    }

    /// The next frame; nothing when the deadline passes first. `Err` when the connection ends.
    pub(crate) fn frame(&mut self, until: Instant) -> Result<Option<Frame>, ()> {
        loop {
            if let Some(frame) = self.frame_of_pending() {
                return Ok(Some(frame));
            }
            self.connection.pending.drain(..std::mem::take(&mut self.used));
            match self.connection.fill(until) {
                Filled::Bytes => {}
                Filled::Quiet => return Ok(None),
                Filled::Ended => {
                    assert!(
                        self.may_be_cut || self.connection.pending.is_empty(),
                        "a frame was cut: {:?}",
                        self.connection.pending_text()
                    );
                    return Err(());
                }
            }
        }
    }

    fn frame_of_pending(&mut self) -> Option<Frame> {
        let bytes = &self.connection.pending[self.used..];
        let (first, second) = (*bytes.first()?, *bytes.get(1)?);
        assert!(first & 0xf0 == LAST, "the broker splits no message and uses no reserved bit: {first:#x}");
        assert!(second & 0x80 == 0, "a server masks nothing");
        let (length, start) = match second {
            126 => (usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap())), 4),
            127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap()) as usize, 10),
            length => (usize::from(length), 2),
        };
        let least = [0, 0, 0, 0, 126, 0, 0, 0, 0, 0, 65_536][start];
        assert!(length >= least, "a length that is not written in its shortest form");
        let payload = bytes.get(start..start + length)?.to_vec();
        let opcode = first & 0x0f;
        assert!(opcode < CLOSE || length <= 125, "a control frame of {length} bytes");
        self.used += start + length;
        Some(Frame { opcode, payload })
    }

    /// The next thing that is no ping; pings are answered.
    pub(crate) fn step(&mut self, limit: Duration) -> Heard {
        let until = Instant::now() + limit;
        loop {
            let frame = match self.frame(until) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Heard::Quiet,
                Err(()) => return Heard::Cut,
            };
            match frame.opcode {
                TEXT => return heard_of(&frame.payload),
                PING => {
                    self.pings += 1;
                    self.connection.try_send(&frame_bytes(LAST | PONG, &frame.payload));
                }
                CLOSE => {
                    let (code, reason) = frame.payload.split_at(2);
                    let reason = String::from_utf8(reason.to_vec()).expect("a reason in UTF-8");
                    return Heard::Closed(u16::from_be_bytes(code.try_into().unwrap()), reason);
                }
                _ => panic!("not a frame that a subscriber gets: {frame:?}"),
            }
        }
    }

    /// The next message; panics when something else comes.
    #[track_caller]
    pub(crate) fn message(&mut self) -> Received {
        match self.step(LIMIT) {
            Heard::Message(message) => message,
            other => panic!("expected a message, got {other:?}"),
        }
    }

    /// Offsets of the next messages.
    #[track_caller]
    pub(crate) fn offsets(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.message().offset).collect()
    }

    /// The next text frame, which must be no message.
    #[track_caller]
    pub(crate) fn other(&mut self) -> Value {
        match self.step(LIMIT) {
            Heard::Other(value) => value,
            other => panic!("expected an answer or a notice, got {other:?}"),
        }
    }

    /// Panics if anything comes before the answer to a ping in the broker's own words.
    #[track_caller]
    pub(crate) fn expect_nothing_before_pong(&mut self) {
        self.say(json!({ "ping": "nothing else" }));
        assert_eq!(self.other(), json!({ "pong": "nothing else" }));
    }

    /// Passes over messages until the close frame; gives its code and that the connection ends after it.
    #[track_caller]
    pub(crate) fn close_code(&mut self) -> u16 {
        let code = loop {
            match self.step(LIMIT) {
                Heard::Closed(code, _) => break code,
                Heard::Message(_) | Heard::Other(_) => {}
                other => panic!("expected a close frame, got {other:?}"),
            }
        };
        self.connection.try_send(&frame_bytes(LAST | CLOSE, &code.to_be_bytes()));
        assert_eq!(self.step(LIMIT), Heard::Cut, "a close frame is the last, and the broker ends the connection");
        code
    }
}

fn heard_of(text: &[u8]) -> Heard {
    let value: Value = serde_json::from_slice(text).unwrap();
    let Some(payload) = value["payload"].as_str() else { return Heard::Other(value) };
    let offset = value["offset"].as_u64().unwrap_or_else(|| panic!("no offset: {value}"));
    let attempt = value.get("attempt").map_or(1, |attempt| attempt.as_u64().unwrap());
    Heard::Message(Received { offset, payload: STANDARD.decode(payload).unwrap(), attempt, value })
}

impl Broker {
    /// Subscribes over WebSocket. `query` is empty or begins with `?`.
    pub(crate) fn websocket(&self, topic: &str, query: &str, headers: &[(&str, &str)]) -> WebSocket {
        WebSocket::open(self.address(), &topic_path(topic, &format!("/subscribe/ws{query}")), headers)
    }

    /// Creates a topic with further settings.
    pub(crate) fn create_topic_with(&self, mut settings: Value, name: &str) {
        settings["name"] = json!(name);
        self.post("/topics", &settings).expect(201);
    }

    /// Posts JSON.
    pub(crate) fn post(&self, target: &str, body: &Value) -> Response {
        self.request("POST", target, &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    /// Descriptors that the process has open.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process_id())).unwrap().count()
    }

    /// How a group stands.
    pub(crate) fn group(&self, topic: &str, group: &str) -> Value {
        self.get(&topic_path(topic, &format!("/groups/{group}"))).expect(200).data()
    }

    /// Posts to a group: `seek`, `fetch`, `ack` or `nack`. Gives the data of the answer.
    #[track_caller]
    pub(crate) fn group_post(&self, topic: &str, group: &str, verb: &str, body: Value) -> Value {
        self.post(&topic_path(topic, &format!("/groups/{group}/{verb}")), &body).expect(200).data()
    }

    /// Waits until a number of a group's stats is `wanted`.
    #[track_caller]
    pub(crate) fn wait_for_group(&self, topic: &str, group: &str, name: &str, wanted: u64) {
        let what = format!("{name} of the group {group} is {wanted}");
        crate::deadline::wait_until(&what, || self.group(topic, group)[name] == wanted);
    }
}
