//! Events of a stream of several topics, each with an id of its own that says where all stand. On the core of the subscriber.
//!
//! The data behind the id is encoded once, and shared by the core's subscribers.

use std::io::Write as _;

use bytes::Bytes;
use ringmain_driver::{Delivery, Io};
use ringmain_engine::RecordBatch;
use ringmain_model::limit::OUTPUT_BYTES_MAX;
use ringmain_model::{MarkedPosition, Offset, ResumeToken, TopicName};
use ringmain_wire::http::Version;
use ringmain_wire::sse;

use super::fetch::encode_record;
use super::several::SeveralOpening;
use super::sse::{EncodedBatch, raw_event};
use super::subscribe::Format;

/// Data up to so many bytes is copied behind its id: a buffer of its own would cost the kernel more.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// The events of one batch without their ids, made once on a core; each is followed by the end of a chunk.
#[derive(Debug)]
pub(super) struct IdlessEvents {
    bytes: Bytes,
    /// Offset of the first.
    first: Offset,
    /// Where each ends in the bytes.
    ends: Box<[usize]>,
}

const CHUNK_END: &[u8] = b"\r\n";

impl IdlessEvents {
    fn of(batch: &RecordBatch, from: Offset, several: bool, topic: &TopicName, format: Format) -> Self {
        let mut out = Vec::with_capacity(batch.bytes().len() * 3 / 2 + 256);
        let (mut json, mut ends) = (Vec::new(), Vec::new());
        for record in batch.records_from(from) {
            match format {
                Format::Json => {
                    json.clear();
                    encode_record(&mut json, batch.partition(), several, topic, &record, None);
                    sse::event(&mut out, None, None, str::from_utf8(&json).unwrap_or_default());
                }
                Format::Raw => raw_event(&mut out, None, &record),
            }
            out.extend_from_slice(CHUNK_END);
            ends.push(out.len());
        }
        out.shrink_to_fit();
        Self { bytes: Bytes::from(out), first: from.max(batch.base()), ends: ends.into() }
    }

    /// The event at `index`, with the end of its chunk or without.
    fn range(&self, index: usize, version: Version) -> std::ops::Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        match version {
            Version::Http11 => start..self.ends[index],
            Version::Http10 => start..self.ends[index] - CHUNK_END.len(),
        }
    }
}

/// A topic of the stream.
#[derive(Debug)]
struct Place {
    topic: TopicName,
    at: MarkedPosition,
    ended: bool,
}

/// Where a stream stands in each of its topics; a topic's place in the list is the number of its subscription. That of a
/// topic which was deleted stays in the ids: should the topic be made again, the client is told.
#[derive(Debug)]
pub(super) struct Places(Vec<Place>);

impl Places {
    pub(super) fn of(opening: &SeveralOpening) -> Self {
        let places = opening
            .topics
            .iter()
            .filter_map(|wanted| Some(Place { topic: wanted.topic.clone(), at: wanted.begins_at()?, ended: false }));
        Self(places.collect())
    }

    fn get_mut(&mut self, subscription: u32) -> Option<&mut Place> {
        self.0.get_mut(usize::try_from(subscription).ok()?)
    }

    pub(super) fn topic(&mut self, subscription: u32) -> Option<&TopicName> {
        self.get_mut(subscription).map(|place| &place.topic)
    }

    /// The place in all topics as a resume token.
    pub(super) fn token(&self) -> String {
        let mut token = ResumeToken::START.to_owned();
        self.0.iter().for_each(|place| ResumeToken::write_marked(&mut token, place.at));
        token
    }

    /// Reading goes on at `next` in that topic's present life.
    pub(super) fn move_to(&mut self, subscription: u32, next: Offset, io: &Io<'_>) {
        if let Some(place) = self.get_mut(subscription) {
            place.at.position.next = next;
            if let Some(partition) = io.place_of(&place.topic).map(|place| place.partition(0)) {
                place.at.position.partition = partition;
            }
        }
    }

    /// A topic is gone; says whether others are left.
    pub(super) fn end(&mut self, subscription: u32) -> bool {
        if let Some(place) = self.get_mut(subscription) {
            place.ended = true;
        }
        self.0.iter().any(|place| !place.ended)
    }

    /// Sends records as far as there is room for them, and says up to where.
    pub(super) fn deliver(
        &mut self,
        delivery: Delivery<'_, EncodedBatch>,
        (format, version): (Format, Version),
        io: &mut Io<'_>,
    ) -> Offset {
        let Delivery { subscription, batch, from, topic, partitions, encoded } = delivery;
        let several = partitions > 1;
        let own;
        let events = match encoded {
            Some(shared) => {
                let place = match format {
                    Format::Json => &mut shared.idless_json,
                    Format::Raw => &mut shared.idless_raw,
                };
                &*place.get_or_insert_with(|| IdlessEvents::of(batch, batch.base(), several, topic, format))
            }
            None => {
                own = IdlessEvents::of(batch, from, several, topic, format);
                &own
            }
        };
        let Some(at) = usize::try_from(subscription).ok().filter(|at| *at < self.0.len()) else { return batch.end() };
        let mut marked = self.0[at].at;
        marked.position.partition = batch.partition();
        let (mut before, mut after, mut id) = (ResumeToken::START.to_owned(), String::new(), String::new());
        self.0[..at].iter().for_each(|place| ResumeToken::write_marked(&mut before, place.at));
        self.0[at + 1..].iter().for_each(|place| ResumeToken::write_marked(&mut after, place.at));
        let (mut out, mut messages) = (Vec::new(), 0);
        let skipped = usize::try_from(from.max(events.first).since(events.first)).unwrap_or(usize::MAX);
        for index in skipped..events.ends.len() {
            let data = events.range(index, version);
            marked.position.next = events.first.plus(index as u64 + 1);
            id.clear();
            id.push_str(&before);
            ResumeToken::write_marked(&mut id, marked);
            id.push_str(&after);
            write_id(&mut out, &id, data.len(), version);
            messages += 1;
            if data.len() <= COPIED_BYTES_MAX {
                out.extend_from_slice(&events.bytes[data]);
            } else {
                io.send(Bytes::from(std::mem::take(&mut out)), subscription, messages - 1);
                io.send(events.bytes.slice(data), subscription, 1);
                messages = 0;
            }
            if io.output_bytes() + out.len() >= OUTPUT_BYTES_MAX {
                break;
            }
        }
        if !out.is_empty() {
            io.send(Bytes::from(out), subscription, messages);
        }
        if skipped >= events.ends.len() {
            return batch.end();
        }
        self.0[at].at = marked;
        marked.position.next
    }
}

/// Writes the start of an event: the size of its chunk, and its id. `data_bytes` follow, the end of the chunk among them.
fn write_id(out: &mut Vec<u8>, id: &str, data_bytes: usize, version: Version) {
    const FIELD: &[u8] = b"id: ";
    if version == Version::Http11 {
        let size = FIELD.len() + id.len() + 1 + data_bytes - CHUNK_END.len();
        // Memory takes all bytes.
        let _ = write!(out, "{size:x}\r\n");
    }
    out.extend_from_slice(FIELD);
    out.extend_from_slice(id.as_bytes());
    out.push(b'\n');
}
