//! An `EventSource` over a plain socket, written from the HTML standard, that also keeps what a browser hides: comments,
//! the space after a colon, and whether the stream ended in order or was cut.

use crate::deadline::LIMIT;
use crate::http::{Connection, Filled, Response, request_bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// `message` unless the stream named another.
    pub(crate) name: String,
    /// The lines of data, joined by line feeds.
    pub(crate) data: String,
    /// Number of `data` lines.
    pub(crate) data_lines: usize,
    /// Whether a space followed the colon of the last `data` line.
    pub(crate) has_space: bool,
    /// The last event id after this event.
    pub(crate) last_id: String,
}

impl Event {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// A message of a topic, as an event carried it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) offset: u64,
    pub(crate) payload: Vec<u8>,
    /// The resume token that came with it.
    pub(crate) last_id: String,
    /// The whole object.
    pub(crate) value: serde_json::Value,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With the final chunk: the response is whole.
    Whole,
    /// Without it: the connection was cut.
    Cut,
}

/// What came next.
#[derive(Debug)]
pub(crate) enum Step {
    Event(Event),
    Ended(End),
    /// Nothing until the deadline.
    Quiet,
}

/// An open event stream.
#[derive(Debug)]
pub(crate) struct EventStream {
    connection: Connection,
    pub(crate) head: Response,
    is_chunked: bool,
    /// Decoded bytes that are not yet whole lines.
    text: Vec<u8>,
    block: Block,
    end: Option<End>,
    /// The last id that a line gave; it counts when its block is whole.
    id_buffer: String,
    /// The last event id, kept over events.
    pub(crate) last_id: String,
    /// Values of all `retry` lines so far, in milliseconds.
    pub(crate) retries: Vec<u64>,
    /// Number of comment lines so far.
    pub(crate) comments: usize,
}

/// Fields of the event that is being read.
#[derive(Debug, Default)]
struct Block {
    name: String,
    data: Vec<String>,
    has_space: bool,
}

impl EventStream {
    /// Asks for a stream and panics unless it is granted.
    pub(crate) fn open(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Self {
        let mut connection = Connection::open(address);
        let mut all = vec![("Accept", "text/event-stream"), ("Cache-Control", "no-cache")];
        all.extend_from_slice(headers);
        connection.send(&request_bytes(&address.to_string(), "GET", target, &all, b""));
        Self::from_connection(connection)
    }

    /// Takes over a connection on which the request for a stream has been sent.
    pub(crate) fn from_connection(mut connection: Connection) -> Self {
        let head = connection.head(Instant::now() + LIMIT).expect("closed instead of a stream");
        if head.status != 200 {
            let body = String::from_utf8_lossy(&connection.pending).into_owned();
            panic!("no stream: {head:?} {body}");
        }
        let kind = head.header("content-type").unwrap_or_default().to_owned();
        assert!(kind.starts_with("text/event-stream"), "not an event stream: {kind:?}");
        assert!(head.header("content-length").is_none(), "a stream has no length");
        let is_chunked = head.header("transfer-encoding").is_some_and(|coding| coding == "chunked");
        Self {
            connection,
            head,
            is_chunked,
            text: Vec::new(),
            block: Block::default(),
            end: None,
            id_buffer: String::new(),
            last_id: String::new(),
            retries: Vec::new(),
            comments: 0,
        }
    }

    /// The next event, the end, or quiet when the deadline passes first.
    pub(crate) fn step(&mut self, limit: Duration) -> Step {
        let until = Instant::now() + limit;
        loop {
            if let Some(event) = self.next_of_text() {
                return Step::Event(event);
            }
            if let Some(end) = self.end {
                return Step::Ended(end);
            }
            if !self.read_more(until) {
                return Step::Quiet;
            }
        }
    }

    /// The next event; panics when there is none in time.
    #[track_caller]
    pub(crate) fn event(&mut self) -> Event {
        match self.step(LIMIT) {
            Step::Event(event) => event,
            other => panic!("expected an event, got {other:?}"),
        }
    }

    /// The next event, which must be a message.
    #[track_caller]
    pub(crate) fn message(&mut self) -> Message {
        let event = self.event();
        assert!(event.name == "message", "expected a message, got {event:?}");
        message_of(&event)
    }

    /// Offsets and payloads of the next messages.
    #[track_caller]
    pub(crate) fn messages(&mut self, count: usize) -> Vec<Message> {
        (0..count).map(|_| self.message()).collect()
    }

    /// The next event, which must be a control event of that name, written so that streamq's clients skip it.
    #[track_caller]
    pub(crate) fn control(&mut self, name: &str) -> serde_json::Value {
        let event = self.event();
        assert!(event.name == name, "expected {name}, got {event:?}");
        assert!(!event.has_space, "data of control events has no space after the colon: {event:?}");
        event.json()
    }

    /// Waits for the end of the stream; events before it are passed over.
    pub(crate) fn wait_for_end(&mut self) -> End {
        loop {
            match self.step(LIMIT) {
                Step::Event(_) => {}
                Step::Ended(end) => return end,
                Step::Quiet => panic!("the stream did not end"),
            }
        }
    }

    /// Reads until `condition` holds of what has been seen so far; panics at an event or the end.
    pub(crate) fn read_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !condition(self) {
            assert!(self.read_more(until) && self.end.is_none(), "waited in vain until {what}");
            let event = self.next_of_text();
            assert!(event.is_none(), "an event while waiting until {what}: {event:?}");
        }
    }

    /// Reads once and decodes the chunks that are whole; whether anything happened before the deadline.
    fn read_more(&mut self, until: Instant) -> bool {
        // Chunks that arrived together with the head are there before the first read.
        if self.is_chunked && self.decode_chunks() {
            return true;
        }
        if !self.is_chunked && !self.connection.pending.is_empty() {
            self.text.append(&mut self.connection.pending);
            return true;
        }
        match self.connection.fill(until) {
            Filled::Quiet => return false,
            Filled::Ended => self.end = Some(End::Cut),
            Filled::Bytes => {}
        }
        true
    }

    /// Moves whole chunks to the text; whether there was one.
    fn decode_chunks(&mut self) -> bool {
        let mut has_decoded = false;
        loop {
            let pending = &mut self.connection.pending;
            let Some(line) = pending.windows(2).position(|bytes| bytes == b"\r\n") else { return has_decoded };
            let size = std::str::from_utf8(&pending[..line]).ok().and_then(|line| usize::from_str_radix(line, 16).ok());
            let size = size.unwrap_or_else(|| panic!("no chunk size: {:?}", String::from_utf8_lossy(&pending[..line])));
            let whole = line + 2 + size + 2;
            if pending.len() < whole {
                return has_decoded;
            }
            assert!(&pending[whole - 2..whole] == b"\r\n", "a chunk does not end where its size says");
            self.text.extend_from_slice(&pending[line + 2..whole - 2]);
            pending.drain(..whole);
            has_decoded = true;
            if size == 0 {
                self.end = Some(End::Whole);
                return true;
            }
        }
    }

    /// Takes lines from the text until an event is complete.
    fn next_of_text(&mut self) -> Option<Event> {
        while let Some(length) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=length).collect();
            let line = String::from_utf8(line[..length].to_vec()).expect("a stream in UTF-8");
            assert!(!line.contains('\r'), "a carriage return inside the stream would end a line: {line:?}");
            if let Some(event) = self.take_line(&line) {
                return Some(event);
            }
        }
        None
    }

    fn take_line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let block = std::mem::take(&mut self.block);
            self.id_buffer.clone_into(&mut self.last_id);
            if block.data.is_empty() {
                return None;
            }
            let name = if block.name.is_empty() { "message".to_owned() } else { block.name };
            let (data_lines, data) = (block.data.len(), block.data.join("\n"));
            return Some(Event { name, data, data_lines, has_space: block.has_space, last_id: self.last_id.clone() });
        }
        let (field, raw) = line.split_once(':').unwrap_or((line, ""));
        let value = raw.strip_prefix(' ').unwrap_or(raw);
        match field {
            "" => self.comments += 1,
            "data" => {
                self.block.has_space = raw.starts_with(' ');
                self.block.data.push(value.to_owned());
            }
            "event" => value.clone_into(&mut self.block.name),
            "id" if !value.contains('\0') => value.clone_into(&mut self.id_buffer),
            "retry" => self.retries.push(value.parse().unwrap_or_else(|_| panic!("retry of digits only: {value:?}"))),
            _ => panic!("a line that no client knows: {line:?}"),
        }
        None
    }
}

/// Reads the message out of an event and checks its form.
#[track_caller]
pub(crate) fn message_of(event: &Event) -> Message {
    assert!(event.data_lines == 1 && event.has_space, "one `data: ` line a message: {event:?}");
    let value = event.json();
    let payload = value["payload"].as_str().unwrap_or_else(|| panic!("no payload: {event:?}"));
    Message {
        offset: value["offset"].as_u64().unwrap_or_else(|| panic!("no offset: {event:?}")),
        payload: STANDARD.decode(payload).expect("standard base64"),
        last_id: event.last_id.clone(),
        value,
    }
}
