//! Events of a stream of several partitions, each with an id of its own that says where all stand. On the core of the subscriber.
//!
//! The data behind the id is encoded once, and shared by the core's subscribers.

use std::io::Write as _;

use bytes::Bytes;
use ringmain_driver::{Delivery, Io};
use ringmain_engine::RecordBatch;
use ringmain_model::limit::{COPIED_BYTES_MAX, OUTPUT_BYTES_MAX};
use ringmain_model::{MarkedPosition, Offset, ResumeToken, TopicName};
use ringmain_wire::http::Version;
use ringmain_wire::sse;

use super::fetch::encode_record;
use super::notices::Subject;
use super::several::SeveralOpening;
use super::sse::{EncodedBatch, raw_event};
use super::subscribe::Format;

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

/// A partition of the stream.
#[derive(Debug)]
struct Place {
    topic: TopicName,
    at: MarkedPosition,
    /// Its topic has several partitions.
    several: bool,
    ended: bool,
}

/// Where a stream stands in each of its partitions; a partition's place in the list is the number of its subscription. Those of a
/// topic which was deleted stay in the ids: should the topic be made again, the client is told.
#[derive(Debug)]
pub(super) struct Places {
    list: Box<[Place]>,
    /// All are of the one topic of the route, whose tokens need no marks.
    of_route: bool,
}

impl Places {
    pub(super) fn of(opening: &SeveralOpening) -> Self {
        let places = opening.parts.iter().filter_map(|wanted| {
            let (topic, several) = (wanted.topic.clone(), wanted.partitions > 1);
            Some(Place { topic, at: wanted.begins_at()?, several, ended: false })
        });
        Self { list: places.collect(), of_route: opening.of_route }
    }

    fn get_mut(&mut self, subscription: u32) -> Option<&mut Place> {
        self.list.get_mut(usize::try_from(subscription).ok()?)
    }

    /// Of what a notice about that subscription tells.
    pub(super) fn subject(&self, subscription: u32) -> Subject<'_> {
        let place = usize::try_from(subscription).ok().and_then(|at| self.list.get(at));
        place.map_or(Subject::default(), |place| Subject {
            topic: (!self.of_route).then_some(&place.topic),
            partition: place.several.then_some(place.at.position.partition.partition),
        })
    }

    /// The place in all partitions as a resume token.
    pub(super) fn token(&self) -> String {
        let mut token = ResumeToken::START.to_owned();
        self.list.iter().for_each(|place| self.write_position(&mut token, place.at));
        token
    }

    fn write_position(&self, token: &mut String, at: MarkedPosition) {
        if self.of_route {
            ResumeToken::write_position(token, at.position);
        } else {
            ResumeToken::write_marked(token, at);
        }
    }

    /// Reading goes on at `next` in that topic's present life.
    pub(super) fn move_to(&mut self, subscription: u32, next: Offset, io: &Io<'_>) {
        if let Some(place) = self.get_mut(subscription) {
            let at = &mut place.at.position;
            at.next = next;
            if let Some(partition) = io.place_of(&place.topic).map(|place| place.partition(at.partition.partition)) {
                at.partition = partition;
            }
        }
    }

    /// A partition is gone, and so is its topic: its other partitions end with it. Nothing when that is known already, else whether
    /// others are left.
    pub(super) fn end(&mut self, subscription: u32, io: &mut Io<'_>) -> Option<bool> {
        let topic = self.get_mut(subscription).filter(|place| !place.ended)?.topic.clone();
        for (number, place) in (0..).zip(&mut self.list) {
            if place.topic == topic {
                place.ended = true;
                io.unsubscribe(number);
            }
        }
        Some(self.list.iter().any(|place| !place.ended))
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
        let Some(at) = usize::try_from(subscription).ok().filter(|at| *at < self.list.len()) else {
            return batch.end();
        };
        let mut marked = self.list[at].at;
        marked.position.partition = batch.partition();
        let (mut before, mut after, mut id) = (ResumeToken::START.to_owned(), String::new(), String::new());
        self.list[..at].iter().for_each(|place| self.write_position(&mut before, place.at));
        self.list[at + 1..].iter().for_each(|place| self.write_position(&mut after, place.at));
        let (mut out, mut messages) = (Vec::new(), 0);
        let skipped = usize::try_from(from.max(events.first).since(events.first)).unwrap_or(usize::MAX);
        for index in skipped..events.ends.len() {
            let data = events.range(index, version);
            marked.position.next = events.first.plus(index as u64 + 1);
            id.clear();
            id.push_str(&before);
            self.write_position(&mut id, marked);
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
        self.list[at].at = marked;
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
