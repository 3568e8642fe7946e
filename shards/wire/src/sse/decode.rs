//! The client's side of Server-Sent Events: bytes to events, however they are split; pure, for any core.

/// One event as the standard dispatches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The last event id when the event was dispatched, from this event or an earlier one; `None` if there was none, or
    /// if an empty one reset it.
    pub id: Option<String>,
    /// Name of the event; `message` if it named none.
    pub event: String,
    /// Its data lines, joined by LF. Bytes that are not UTF-8 arrive as U+FFFD.
    pub data: String,
    /// The latest reconnection time in milliseconds, if one came since the event before.
    pub retry: Option<u64>,
}

/// Why decoding stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer sent a line or an event that is larger than the decoder may hold.
    #[error("An event or line of the stream is larger than {event_bytes_max} bytes. Raise the client's limit.")]
    EventTooLarge {
        /// The limit in bytes.
        event_bytes_max: usize,
    },
}

/// Bytes of one event or line that [`Decoder::default`] holds: a message of the largest default size in base64, and then some.
const EVENT_BYTES_DEFAULT: usize = 16 << 20;

/// Decodes an event stream piece by piece. An event that its empty line did not close is never told.
#[derive(Clone, Debug)]
pub struct Decoder {
    event_bytes_max: usize,
    /// The start of a line whose end has not come.
    line: Vec<u8>,
    /// No line has been read yet: a byte order mark may precede it.
    at_start: bool,
    /// The last line ended with CR: an LF that follows belongs to it.
    after_carriage_return: bool,
    /// A limit was exceeded; what follows cannot be trusted.
    failed: bool,
    id: String,
    event: String,
    data: String,
    retry: Option<u64>,
    last_event_id: String,
    retry_ms: Option<u64>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(EVENT_BYTES_DEFAULT)
    }
}

impl Decoder {
    /// A decoder that holds at most `event_bytes_max` bytes of a line, and as many of an event's data.
    #[must_use]
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            line: Vec::new(),
            at_start: true,
            after_carriage_return: false,
            failed: false,
            id: String::new(),
            event: String::new(),
            data: String::new(),
            retry: None,
            last_event_id: String::new(),
            retry_ms: None,
        }
    }

    /// Takes the next bytes of the stream and appends the events that they complete.
    ///
    /// # Errors
    ///
    /// [`Error::EventTooLarge`], then and for ever after, until [`Decoder::restart`].
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<Event>) -> Result<(), Error> {
        if self.failed {
            return Err(self.too_large());
        }
        let mut rest = bytes;
        loop {
            if self.after_carriage_return && !rest.is_empty() {
                self.after_carriage_return = false;
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            let end = memchr::memchr2(b'\r', b'\n', rest);
            let piece = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + piece.len() > self.event_bytes_max {
                return Err(self.too_large());
            }
            let Some(end) = end else {
                self.line.extend_from_slice(piece);
                return Ok(());
            };
            self.after_carriage_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.end_of_line(piece, out)?;
        }
    }

    /// The id to send as `Last-Event-ID` when reconnecting; empty if there is none. Unlike the events, it also follows
    /// blocks that have an id and no data.
    #[must_use]
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// The reconnection time that the server asked for last, in milliseconds.
    #[must_use]
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Prepares for a new connection to the same source: what was half received is dropped, the last event id and the
    /// reconnection time stay.
    pub fn restart(&mut self) {
        let fresh = Self::new(self.event_bytes_max);
        let earlier = std::mem::replace(self, fresh);
        self.id.clone_from(&earlier.last_event_id);
        self.last_event_id = earlier.last_event_id;
        self.retry_ms = earlier.retry_ms;
    }

    fn too_large(&mut self) -> Error {
        self.failed = true;
        Error::EventTooLarge { event_bytes_max: self.event_bytes_max }
    }

    /// A line is whole: the part that was kept, if any, and `piece`.
    fn end_of_line(&mut self, piece: &[u8], out: &mut Vec<Event>) -> Result<(), Error> {
        if self.line.is_empty() {
            return self.read_line(piece, out);
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(piece);
        let result = self.read_line(&line, out);
        line.clear();
        self.line = line;
        result
    }

    fn read_line(&mut self, line: &[u8], out: &mut Vec<Event>) -> Result<(), Error> {
        let first = std::mem::replace(&mut self.at_start, false);
        let line = if first { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) } else { line };
        if line.is_empty() {
            self.dispatch(out);
            return Ok(());
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(0) => return Ok(()),
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if self.data.len() + value.len() > self.event_bytes_max {
                    return Err(self.too_large());
                }
                self.data.push_str(&String::from_utf8_lossy(value));
                self.data.push('\n');
            }
            b"event" => {
                self.event.clear();
                self.event.push_str(&String::from_utf8_lossy(value));
            }
            b"id" if !value.contains(&0) => {
                self.id.clear();
                self.id.push_str(&String::from_utf8_lossy(value));
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                // Digits only, so what fails to convert is a number beyond 64 bits: as good as for ever.
                let milliseconds = str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
                self.retry = Some(milliseconds);
                self.retry_ms = Some(milliseconds);
            }
            _ => {}
        }
        Ok(())
    }

    /// An empty line ends a block: it is an event if it has data.
    fn dispatch(&mut self, out: &mut Vec<Event>) {
        if self.last_event_id != self.id {
            self.last_event_id.clone_from(&self.id);
        }
        let name = std::mem::take(&mut self.event);
        if self.data.is_empty() {
            return;
        }
        let mut data = std::mem::take(&mut self.data);
        // The last line break is only the separator to a line that did not come.
        data.pop();
        out.push(Event {
            id: (!self.id.is_empty()).then(|| self.id.clone()),
            event: if name.is_empty() { "message".to_owned() } else { name },
            data,
            retry: self.retry.take(),
        });
    }
}
