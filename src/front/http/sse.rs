//! Server-sent events: where a stream starts, and how records become its events. On the core of the subscriber.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ringmain_driver::{Delivery, Io, Requested, StartAt};
use ringmain_engine::RecordBatch;
use ringmain_model::{Offset, PartitionRef, Position, ResumeToken, TopicName};
use ringmain_wire::http::{RequestHead, Target, Version};
use ringmain_wire::sse;

use super::HttpFront;
use super::fetch::encode_record;
use super::problem::Problem;
use super::query::{number, word};
use super::respond::Context;

/// What an event's data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// The message as JSON, its payload in base64.
    Json,
    /// The payload as text, split at its line ends; one that is no UTF-8 is sent as `event: base64`.
    Raw,
}

/// A stream that is asked for.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) topic: TopicName,
    pub(super) start: StartAt,
    format: Format,
}

impl Opening {
    pub(super) fn read(topic: TopicName, head: &RequestHead<'_>, target: &Target<'_>) -> Result<Self, Problem> {
        if target.query_value("group").is_some() {
            return Err(Problem::not_offered(
                "consumer groups are not offered by this version: leave `group` out to get every message",
            ));
        }
        word(target, "slow", &[("lag", ())])?;
        let format = word(target, "format", &[("json", Format::Json), ("raw", Format::Raw)])?.unwrap_or(Format::Json);
        let from_offset = number(target, "from_offset")?;
        // Browsers never come back after a refusal, and send what they last heard, from whomever: an unreadable header is told
        // as a gap. A query was written by somebody who can mend it.
        let start = match resume_texts(head, target) {
            (Some(text), _) => start_of(&text).unwrap_or(StartAt::Lost),
            (None, Some(text)) => start_of(&text)?,
            (None, None) => from_offset.map_or(StartAt::Tail, |offset| StartAt::Offset(Offset(offset))),
        };
        Ok(Self { topic, start, format })
    }
}

impl Opening {
    /// Where reading begins, when the end of the partition is `at`; `None` when a gap will say it.
    fn begins_at(&self, at: Position) -> Option<Offset> {
        match self.start {
            StartAt::Tail => Some(at.next),
            StartAt::Offset(offset) => Some(offset.min(at.next)),
            StartAt::Position(position) if position.partition == at.partition => Some(position.next.min(at.next)),
            StartAt::Position(_) | StartAt::Lost => None,
        }
    }
}

/// The cursor that a client brings back: the header wins, because after the first reconnect a browser sends both, and the
/// query is the older one. The names in the query are those that polyfills use.
fn resume_texts(head: &RequestHead<'_>, target: &Target<'_>) -> (Option<String>, Option<String>) {
    let header = head.headers.get("last-event-id").map(|value| String::from_utf8_lossy(value).into_owned());
    let names = ["last_event_id", "lastEventId", "evs_last_event_id", "Last-Event-ID"];
    let query = names.iter().find_map(|name| target.query_value(name)).map(std::borrow::Cow::into_owned);
    (header.filter(|text| !text.is_empty()), query.filter(|text| !text.is_empty()))
}

fn start_of(text: &str) -> Result<StartAt, Problem> {
    match ResumeToken::decode(text).map_err(|error| Problem::new(400, "invalid_resume_token", error.to_string()))? {
        ResumeToken::LastSeen(offset) => Ok(StartAt::Offset(offset.plus(1))),
        ResumeToken::Positions(positions) => match positions[..] {
            [position] => Ok(StartAt::Position(position)),
            _ => Err(Problem::new(
                400,
                "invalid_resume_token",
                "this resume token is of a stream of several topics: leave it out",
            )),
        },
    }
}

/// A running stream.
#[derive(Debug)]
pub(super) struct Stream {
    partition: PartitionRef,
    format: Format,
    version: Version,
    /// When its client comes back after a cut, milliseconds.
    retry_ms: u32,
    /// When something was last sent, monotonic milliseconds.
    pub(super) spoke_ms: u64,
}

/// One batch as events, for clients with and without chunks.
#[derive(Clone, Debug)]
struct Encoded {
    /// Chunk size, events, chunk end.
    bytes: Bytes,
    /// Bytes of the chunk size and its line end.
    prefix: usize,
    messages: u32,
}

/// The encodings of one batch on one core.
#[derive(Debug, Default)]
pub(crate) struct EncodedBatch {
    json: Option<Encoded>,
    raw: Option<Encoded>,
}

impl Stream {
    /// Opens the stream: its head, and first bytes at once.
    pub(super) fn open(opening: &Opening, at: Position, context: &Context, front: &HttpFront, io: &mut Io<'_>) -> Self {
        let stream = Self {
            partition: at.partition,
            format: opening.format,
            version: context.version,
            retry_ms: front.retry_ms(),
            spoke_ms: io.now().monotonic_ms,
        };
        write_head(context, front, io.output());
        let mut first = Vec::new();
        sse::retry(&mut first, stream.retry_ms);
        if let Some(next) = opening.begins_at(at) {
            // A client that is cut before its first message comes back to where it began.
            let mut id = String::new();
            ResumeToken::write_one(&mut id, Position { partition: at.partition, next });
            sse::checkpoint(&mut first, &id);
        }
        stream.say(&first, io);
        // A subscriber may be as slow as it likes: it holds a cursor and not a queue.
        io.limit_write_stall(false);
        stream
    }

    /// Sends bytes of the stream in its framing.
    fn say(&self, bytes: &[u8], io: &mut Io<'_>) {
        match self.version {
            Version::Http11 => ringmain_wire::http::encode_chunk(io.output(), bytes),
            Version::Http10 => io.output().extend_from_slice(bytes),
        }
    }

    /// Sends records: shared bytes when the whole batch is wanted, its own otherwise.
    pub(super) fn deliver(&mut self, delivery: Delivery<'_, EncodedBatch>, io: &mut Io<'_>) {
        self.spoke_ms = io.now().monotonic_ms;
        let Delivery { batch, from, topic, encoded } = delivery;
        let encoded = match encoded.filter(|_| from <= batch.base()) {
            Some(shared) => {
                let place = match self.format {
                    Format::Json => &mut shared.json,
                    Format::Raw => &mut shared.raw,
                };
                place.get_or_insert_with(|| encode(batch, batch.base(), topic, self.format)).clone()
            }
            None => encode(batch, from, topic, self.format),
        };
        let bytes = match self.version {
            Version::Http11 => encoded.bytes,
            Version::Http10 => encoded.bytes.slice(encoded.prefix..encoded.bytes.len() - 2),
        };
        io.send(bytes, encoded.messages);
    }

    /// Tells that reading goes on elsewhere, and makes that the place to resume.
    pub(super) fn tell_gap(&mut self, requested: Requested, resumed: Offset, io: &mut Io<'_>) {
        let mut id = String::new();
        ResumeToken::write_one(&mut id, Position { partition: self.partition, next: resumed });
        let requested = match requested {
            Requested::Offset(offset) => offset.to_string(),
            Requested::Unreadable => "null".to_owned(),
        };
        let data = format!(r#"{{"requested":{requested},"resumed":{resumed}}}"#);
        let mut event = Vec::new();
        sse::control(&mut event, "gap", Some(&id), data.as_bytes());
        self.say(&event, io);
    }

    /// Says that the topic is gone, and ends the stream as HTTP ends one.
    pub(super) fn end_deleted(&mut self, io: &mut Io<'_>) {
        let mut event = Vec::new();
        sse::control(&mut event, "end", None, br#"{"reason":"topic_deleted"}"#);
        self.say(&event, io);
        if self.version == Version::Http11 {
            io.output().extend_from_slice(ringmain_wire::http::LAST_CHUNK);
        }
    }

    /// Says when to come back. The stream is cut after that, without the end of its last chunk: clients that stop at a clean
    /// end would not come back at all.
    pub(super) fn end_shutdown(&mut self, io: &mut Io<'_>) {
        let mut retry = Vec::new();
        sse::retry(&mut retry, self.retry_ms);
        self.say(&retry, io);
    }

    /// Shows that the connection lives, unless earlier bytes are still on their way.
    pub(super) fn beat(&mut self, io: &mut Io<'_>) {
        if io.output_bytes() == 0 {
            let mut comment = Vec::new();
            sse::comment(&mut comment, "");
            self.say(&comment, io);
        }
        self.spoke_ms = io.now().monotonic_ms;
    }
}

/// Writes the head of a stream.
pub(super) fn write_head(context: &Context, front: &HttpFront, out: &mut Vec<u8>) {
    let headers = [
        ("Content-Type", "text/event-stream"),
        ("Cache-Control", "no-store, no-transform"),
        ("X-Accel-Buffering", "no"),
    ];
    context.write_stream_head(out, &front.date, &headers);
}

impl HttpFront {
    /// When a subscriber is to come back: spread over half the time, so that not all come at once.
    fn retry_ms(&self) -> u32 {
        let base = self.settings.retry_ms;
        base + self.opened.wrapping_mul(2_654_435_761) % (base / 2 + 1)
    }
}

fn encode(batch: &RecordBatch, from: Offset, topic: &TopicName, format: Format) -> Encoded {
    /// Digits of a chunk's size at most: their place is kept before the size is known, and what is too much cut off.
    const SIZE_DIGITS: usize = 8;
    let partition = batch.partition();
    let mut out = Vec::with_capacity(batch.bytes().len() * 3 / 2 + 256);
    out.extend_from_slice(b"00000000\r\n");
    let (mut id, mut json, mut messages) = (String::new(), Vec::new(), 0);
    for record in batch.records_from(from) {
        id.clear();
        ResumeToken::write_one(&mut id, Position { partition, next: record.offset.plus(1) });
        match (format, str::from_utf8(record.payload)) {
            (Format::Json, _) => {
                json.clear();
                encode_record(&mut json, partition, topic, &record);
                sse::message(&mut out, &id, &json);
            }
            (Format::Raw, Ok(text)) => sse::event(&mut out, Some(&id), None, text),
            (Format::Raw, Err(_)) => {
                let text = STANDARD.encode(record.payload);
                sse::event(&mut out, Some(&id), Some("base64"), &text);
            }
        }
        messages += 1;
    }
    let size = format!("{:08x}", out.len() - SIZE_DIGITS - 2);
    out[..SIZE_DIGITS].copy_from_slice(&size.as_bytes()[..SIZE_DIGITS]);
    out.extend_from_slice(b"\r\n");
    out.shrink_to_fit();
    let zeros = size.bytes().take_while(|digit| *digit == b'0').count();
    Encoded { bytes: Bytes::from(out).slice(zeros..), prefix: SIZE_DIGITS + 2 - zeros, messages }
}
