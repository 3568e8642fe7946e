//! Finds the messages in a subscription's answer, over SSE or WebSocket; pure.
//!
//! It reads what a broker of this wire writes and nothing wider: lines end with LF, and each message is one line of
//! JSON, or one text frame of it. Whatever else comes is an error and not a guess, so that a count is exact.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use ringmain_wire::http::{BodyDecoder, Framing, HeadLimits, Method, decode_response_head};
use ringmain_wire::ws::{Decoder, Event, Role};

use crate::failure::Failure;

/// Characters of a payload's base64 that are looked at: 24, which are 18 bytes without padding.
const PREFIX_CHARACTERS: usize = 24;

/// An event that grows beyond this without an end is an error.
const EVENT_BYTES_MAX: usize = 32 << 20;

/// What is looked for. Made once, because making one costs as much as some hundred bytes of looking.
struct Needles {
    event_end: Finder<'static>,
    offset: Finder<'static>,
    payload: Finder<'static>,
}

static NEEDLES: LazyLock<Needles> = LazyLock::new(|| Needles {
    event_end: Finder::new(b"\n\n"),
    offset: Finder::new(b"\"offset\":"),
    payload: Finder::new(b"\"payload\":\""),
});

/// One message as a subscriber saw it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MessageSeen<'b> {
    /// Its place in the topic.
    pub(crate) offset: u64,
    /// The first 24 characters of its payload in base64; the whole line where events are raw.
    pub(crate) payload_prefix: &'b [u8],
}

/// Where the answer of a subscription stands.
#[derive(Debug)]
enum State {
    Head,
    Body(BodyDecoder),
    Frames(Box<Decoder>),
}

/// Takes a subscription's answer out of its framing and finds its messages.
#[derive(Debug)]
pub(crate) struct EventScanner {
    state: State,
    /// The head or the event that has not come wholly.
    partial: Vec<u8>,
    controls: u64,
    /// Events carry bare payloads, and their offsets only in their ids.
    raw: bool,
}

impl EventScanner {
    pub(crate) fn new() -> EventScanner {
        EventScanner { state: State::Head, partial: Vec::new(), controls: 0, raw: false }
    }

    /// A scanner of `format=raw` over SSE. Payloads are taken to be one line each.
    pub(crate) fn of_raw() -> EventScanner {
        EventScanner { raw: true, ..EventScanner::new() }
    }

    /// Whether the server has accepted the subscription.
    pub(crate) fn is_subscribed(&self) -> bool {
        matches!(self.state, State::Body(_) | State::Frames(_))
    }

    /// Named events so far, such as gaps: a run without faults has none.
    pub(crate) fn controls(&self) -> u64 {
        self.controls
    }

    /// Takes the next bytes and tells each message that they complete.
    ///
    /// # Errors
    ///
    /// For an answer other than 200, an end of the stream, and whatever this scanner does not read.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut seen: impl FnMut(MessageSeen<'_>)) -> Result<(), Failure> {
        match &mut self.state {
            State::Head => {
                self.partial.extend_from_slice(bytes);
                self.read_head()?;
            }
            State::Body(decoder) => take_content(decoder, bytes, &mut self.partial)?,
            State::Frames(decoder) => return take_frames(decoder, bytes, &mut seen),
        }
        match &mut self.state {
            State::Head => Ok(()),
            State::Body(_) => self.scan(&mut seen),
            // The first frames may have come together with the head.
            State::Frames(decoder) => take_frames(decoder, &std::mem::take(&mut self.partial), &mut seen),
        }
    }

    /// Goes on to the body once the head has come wholly.
    fn read_head(&mut self) -> Result<(), Failure> {
        let Some((head, used)) = decode_response_head(&self.partial, &HeadLimits::default(), Method::Get)? else {
            return Ok(());
        };
        if head.status == 101 {
            drop(head);
            self.partial.drain(..used);
            self.state = State::Frames(Box::new(Decoder::new(Role::Client, EVENT_BYTES_MAX)));
            return Ok(());
        }
        if head.status != 200 {
            return Err(Failure::said(format!("the server answers {} to a subscription", head.status)));
        }
        if matches!(head.framing, Framing::None | Framing::Length(_)) {
            return Err(Failure::said("the answer to a subscription has an end"));
        }
        let mut decoder = BodyDecoder::new(head.framing, u64::MAX)?;
        drop(head);
        let rest = self.partial.split_off(used);
        self.partial.clear();
        take_content(&mut decoder, &rest, &mut self.partial)?;
        self.state = State::Body(decoder);
        Ok(())
    }

    /// Takes the whole events from the front of what has come.
    fn scan(&mut self, seen: &mut impl FnMut(MessageSeen<'_>)) -> Result<(), Failure> {
        let mut used = 0;
        while let Some(length) = NEEDLES.event_end.find(&self.partial[used..]) {
            let event = &self.partial[used..used + length];
            used += length + 2;
            if let Some(message) = message_of(event, self.raw, &mut self.controls)? {
                seen(message);
            }
        }
        if used == self.partial.len() {
            self.partial.clear();
        } else {
            self.partial.drain(..used);
        }
        if self.partial.len() > EVENT_BYTES_MAX {
            return Err(Failure::said("an event of a subscription does not end"));
        }
        Ok(())
    }
}

/// Takes messages out of frames; pings are signs of life that need no answer here.
fn take_frames(decoder: &mut Decoder, bytes: &[u8], seen: &mut impl FnMut(MessageSeen<'_>)) -> Result<(), Failure> {
    let mut events = Vec::new();
    decoder.feed(bytes, &mut events).map_err(|fault| Failure::said(fault.message))?;
    for event in events {
        match event {
            Event::Text(json) => {
                seen(read_message(json.as_bytes()).ok_or_else(|| {
                    Failure::said(format!("unexpected data in a subscription: {}", json.escape_debug()))
                })?);
            }
            Event::Close { code, reason } => {
                return Err(Failure::said(format!("the server ended a subscription: {code:?} {reason}")));
            }
            Event::Ping(_) | Event::Pong(_) | Event::Binary(_) => {}
        }
    }
    Ok(())
}

/// Takes content out of its framing.
fn take_content(decoder: &mut BodyDecoder, bytes: &[u8], content: &mut Vec<u8>) -> Result<(), Failure> {
    let (_, ended) = decoder.decode(bytes, content)?;
    if ended { Err(Failure::said("the server ended a subscription")) } else { Ok(()) }
}

/// The message of one event; none for comments, retry times, bare ids, and for named events, which are counted.
fn message_of<'b>(event: &'b [u8], raw: bool, controls: &mut u64) -> Result<Option<MessageSeen<'b>>, Failure> {
    let mut rest = event;
    let mut offset = None;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        if line.starts_with(b"event:") {
            *controls += 1;
            return Ok(None);
        }
        if raw && let Some(token) = line.strip_prefix(b"id: ") {
            offset = offset_before(token);
            continue;
        }
        if let Some(json) = line.strip_prefix(b"data: ") {
            if raw {
                let seen = offset.map(|offset| MessageSeen { offset, payload_prefix: json });
                return seen.map(Some).ok_or_else(|| Failure::said("a message has no id with its offset"));
            }
            return read_message(json)
                .map(Some)
                .ok_or_else(|| Failure::said(format!("unexpected data in a subscription: {}", json.escape_ascii())));
        }
    }
    Ok(None)
}

/// The offset before the one at which a resume token of one position goes on: its last number.
fn offset_before(token: &[u8]) -> Option<u64> {
    let digits = &token[token.iter().rposition(|byte| *byte == b'.')? + 1..];
    str::from_utf8(digits).ok()?.parse::<u64>().ok()?.checked_sub(1)
}

/// The two members that matter, found by their names: quotes inside of strings are escaped, so the names cannot be
/// mistaken for text of a topic.
fn read_message(json: &[u8]) -> Option<MessageSeen<'_>> {
    let digits = after(json, &NEEDLES.offset)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let offset = str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    let payload_prefix = after(digits, &NEEDLES.payload)?.get(..PREFIX_CHARACTERS)?;
    Some(MessageSeen { offset, payload_prefix })
}

fn after<'b>(text: &'b [u8], name: &Finder<'_>) -> Option<&'b [u8]> {
    name.find(text).map(|at| &text[at + name.needle().len()..])
}
