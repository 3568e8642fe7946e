//! Server-sent events: where a stream starts, and how records become its events. On the core of the subscriber.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ringmain_driver::{Delivery, Io, Requested};
use ringmain_engine::{Assignment, Record, RecordBatch};
use ringmain_model::limit::SEND_QUEUE_BYTES_MAX;
use ringmain_model::{Offset, PartitionRef, Position, ResumeToken, TopicName};
use ringmain_wire::http::Version;
use ringmain_wire::sse;

use super::HttpFront;
use super::fetch::encode_record;
use super::frames::SharedFrames;
use super::notices::{Losses, Subject, end_json, gap_json, in_partition, moved_json};
use super::places::{IdlessEvents, Places};
use super::respond::Context;
use super::several::SeveralOpening;
use super::subscribe::{Format, Opening};

/// What a stream reads.
#[derive(Debug)]
enum Reads {
    /// One partition, whose events are shared whole, of a topic that may have several.
    One { partition: PartitionRef, several: bool },
    /// Several topics, or several partitions of one.
    Several(Places),
    /// What a group gives, of a topic that may have several partitions.
    Group { several: bool },
}

/// A running stream.
#[derive(Debug)]
pub(super) struct Stream {
    reads: Reads,
    format: Format,
    version: Version,
    /// When its client comes back after a cut, milliseconds.
    retry_ms: u32,
    losses: Losses,
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
    pub(super) idless_json: Option<IdlessEvents>,
    pub(super) idless_raw: Option<IdlessEvents>,
    pub(super) frames: SharedFrames,
}

impl Stream {
    /// Opens the stream: its head, and first bytes at once.
    pub(super) fn open(opening: &Opening, at: Position, context: &Context, front: &HttpFront, io: &mut Io<'_>) -> Self {
        let several = opening.partitions > 1;
        let reads = match &opening.group {
            Some(_) => Reads::Group { several },
            None => Reads::One { partition: at.partition, several },
        };
        let stream = Self::new(reads, opening.format, context, front, io);
        // A client that is cut before its first message comes back to where it began.
        let id = opening.begins_at(at).map(|next| {
            let mut id = String::new();
            ResumeToken::write_one(&mut id, Position { partition: at.partition, next });
            id
        });
        stream.begin(id.as_deref(), context, front, io);
        // A subscriber may be as slow as it likes: it holds a cursor and not a queue. A member holds messages, and one that
        // takes none is cut off, so that the others get them.
        io.limit_write_stall(opening.group.is_some());
        stream
    }

    /// Opens a stream of several partitions, whose subscriptions all stand.
    pub(super) fn open_several(
        opening: &SeveralOpening,
        context: &Context,
        front: &HttpFront,
        io: &mut Io<'_>,
    ) -> Self {
        let places = Places::of(opening);
        let id = places.token();
        let mut stream = Self::new(Reads::Several(places), opening.format, context, front, io);
        stream.begin(Some(&id), context, front, io);
        for (number, wanted) in (0..).zip(&opening.parts) {
            if let Some((requested, resumed)) = wanted.gap {
                stream.tell_gap(number, requested, resumed, io);
            }
        }
        io.limit_write_stall(false);
        io.hold_batches(false);
        stream
    }

    fn new(reads: Reads, format: Format, context: &Context, front: &HttpFront, io: &Io<'_>) -> Self {
        Self {
            reads,
            format,
            version: context.version,
            retry_ms: front.retry_ms(),
            losses: Losses::default(),
            spoke_ms: io.now().monotonic_ms,
        }
    }

    fn begin(&self, id: Option<&str>, context: &Context, front: &HttpFront, io: &mut Io<'_>) {
        write_head(context, front, io.output());
        let mut first = Vec::new();
        sse::retry(&mut first, self.retry_ms);
        if let Some(id) = id {
            sse::checkpoint(&mut first, id);
        }
        self.say(&first, io);
    }

    /// Sends bytes of the stream in its framing.
    fn say(&self, bytes: &[u8], io: &mut Io<'_>) {
        match self.version {
            Version::Http11 => ringmain_wire::http::encode_chunk(io.output(), bytes),
            Version::Http10 => io.output().extend_from_slice(bytes),
        }
    }

    /// Sends records, and says up to where: shared bytes when the whole batch is wanted, its own otherwise.
    pub(super) fn deliver(&mut self, delivery: Delivery<'_, EncodedBatch>, io: &mut Io<'_>) -> Offset {
        self.spoke_ms = io.now().monotonic_ms;
        if let Reads::Several(places) = &mut self.reads {
            return places.deliver(delivery, (self.format, self.version), io);
        }
        let Delivery { subscription, batch, from, topic, partitions, encoded } = delivery;
        let several = partitions > 1;
        let encoded = match encoded.filter(|_| from <= batch.base()) {
            Some(shared) => {
                let place = match self.format {
                    Format::Json => &mut shared.json,
                    Format::Raw => &mut shared.raw,
                };
                place.get_or_insert_with(|| encode(batch, batch.base(), several, topic, self.format)).clone()
            }
            None => encode(batch, from, several, topic, self.format),
        };
        let bytes = match self.version {
            Version::Http11 => encoded.bytes,
            Version::Http10 => encoded.bytes.slice(encoded.prefix..encoded.bytes.len() - 2),
        };
        io.send(bytes, subscription, encoded.messages);
        batch.end()
    }

    /// Sends what its group gave.
    pub(super) fn assign(&mut self, topic: &TopicName, assignment: &Assignment, io: &mut Io<'_>) {
        self.spoke_ms = io.now().monotonic_ms;
        let (mut out, mut json) = (Vec::new(), Vec::new());
        let partition = assignment.batch.partition();
        let several = matches!(self.reads, Reads::Group { several: true });
        for (record, attempt) in assigned_records(assignment) {
            match self.format {
                Format::Json => {
                    json.clear();
                    encode_record(&mut json, partition, several, topic, &record, attempt);
                    sse::event(&mut out, None, None, str::from_utf8(&json).unwrap_or_default());
                }
                Format::Raw => raw_event(&mut out, None, &record),
            }
        }
        let mut framed = Vec::with_capacity(out.len() + 16);
        match self.version {
            Version::Http11 => ringmain_wire::http::encode_chunk(&mut framed, &out),
            Version::Http10 => framed = out,
        }
        let messages = u32::try_from(assignment.records.len()).unwrap_or(u32::MAX);
        io.send(Bytes::from(framed), partition.partition, messages);
    }

    /// Tells that reading goes on elsewhere, and makes that the place to resume.
    pub(super) fn tell_gap(&mut self, subscription: u32, requested: Requested, resumed: Offset, io: &mut Io<'_>) {
        let mut id = String::new();
        let json = match &mut self.reads {
            Reads::One { partition, several } => {
                ResumeToken::write_one(&mut id, Position { partition: *partition, next: resumed });
                gap_json(in_partition(several.then_some(partition.partition)), requested, resumed)
            }
            Reads::Several(places) => {
                places.move_to(subscription, resumed, io);
                id = places.token();
                gap_json(places.subject(subscription), requested, resumed)
            }
            Reads::Group { .. } => return,
        };
        let mut event = Vec::new();
        sse::control(&mut event, "gap", Some(&id), json.as_bytes());
        self.say(&event, io);
    }

    /// The partition that a notice of the group names.
    fn named(&self, partition: u32) -> Option<u32> {
        matches!(self.reads, Reads::Group { several: true }).then_some(partition)
    }

    /// The group was made to seek.
    pub(super) fn move_to(&mut self, partition: u32, next: Offset, io: &mut Io<'_>) {
        self.tell("moved", &moved_json(self.named(partition), next), io);
    }

    /// Retention took messages of the group: told at once, or with the next sign of life when the client takes nothing now.
    pub(super) fn lose(&mut self, partition: u32, messages: u64, resumed: Offset, io: &mut Io<'_>) {
        self.losses.add(self.named(partition), messages, resumed);
        self.tell_lost(io);
    }

    fn tell_lost(&mut self, io: &mut Io<'_>) {
        if io.output_bytes() < SEND_QUEUE_BYTES_MAX {
            self.losses.take().for_each(|json| self.tell("lost", &json, io));
        }
    }

    /// Tells of something that only clients of ours know.
    pub(super) fn tell(&mut self, event_name: &str, json: &str, io: &mut Io<'_>) {
        let mut event = Vec::new();
        sse::control(&mut event, event_name, None, json.as_bytes());
        self.say(&event, io);
    }

    /// Says why there is no more of a subscription. When it was the last, or `all` are over, it ends the stream as HTTP ends one
    /// and says `true`. A topic ends with all its partitions, and is told of once.
    pub(super) fn end(&mut self, subscription: u32, reason: &str, all: bool, io: &mut Io<'_>) -> bool {
        let (json, goes_on) = match &mut self.reads {
            Reads::One { partition, several } => {
                let too_slow = (*several && all).then_some(partition.partition);
                (end_json(in_partition(too_slow), reason), false)
            }
            Reads::Group { .. } => (end_json(Subject::default(), reason), false),
            Reads::Several(places) => {
                let Some(others_are_left) = places.end(subscription, io) else { return false };
                let mut subject = places.subject(subscription);
                subject.partition = subject.partition.filter(|_| all);
                (end_json(subject, reason), others_are_left && !all)
            }
        };
        self.tell("end", &json, io);
        if goes_on {
            return false;
        }
        if self.version == Version::Http11 {
            io.output().extend_from_slice(ringmain_wire::http::LAST_CHUNK);
        }
        true
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
        self.tell_lost(io);
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

fn encode(batch: &RecordBatch, from: Offset, several: bool, topic: &TopicName, format: Format) -> Encoded {
    /// Digits of a chunk's size at most: their place is kept before the size is known, and what is too much cut off.
    const SIZE_DIGITS: usize = 8;
    let partition = batch.partition();
    let mut out = Vec::with_capacity(batch.bytes().len() * 3 / 2 + 256);
    out.extend_from_slice(b"00000000\r\n");
    let (mut id, mut json, mut messages) = (String::new(), Vec::new(), 0);
    for record in batch.records_from(from) {
        id.clear();
        ResumeToken::write_one(&mut id, Position { partition, next: record.offset.plus(1) });
        match format {
            Format::Json => {
                json.clear();
                encode_record(&mut json, partition, several, topic, &record, None);
                sse::message(&mut out, &id, &json);
            }
            Format::Raw => raw_event(&mut out, Some(&id), &record),
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

/// A payload as text; one that is no UTF-8 as base64, marked.
pub(super) fn raw_event(out: &mut Vec<u8>, id: Option<&str>, record: &Record<'_>) {
    match str::from_utf8(record.payload) {
        Ok(text) => sse::event(out, id, None, text),
        Err(_) => sse::event(out, id, Some("base64"), &STANDARD.encode(record.payload)),
    }
}

/// The records that a group gave, and which attempt each is, when that is not the first.
pub(super) fn assigned_records(assignment: &Assignment) -> impl Iterator<Item = (Record<'_>, Option<u32>)> {
    // They come in the order of their offsets, so that the batch is walked once.
    let mut records = assignment.batch.records();
    let mut next = Offset(0);
    assignment.records.iter().filter_map(move |assigned| {
        if assigned.offset < next {
            records = assignment.batch.records();
        }
        let record = records.find(|record| record.offset >= assigned.offset)?;
        next = record.offset.plus(1);
        Some((record, (assigned.attempt > 1).then_some(assigned.attempt)))
    })
}
