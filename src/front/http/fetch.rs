//! Fetching: a page of messages over HTTP, waited for if there is none yet. On the core of the connection.

use ringmain_driver::{Io, Request};
use ringmain_engine::{Page, Record};
use ringmain_model::limit::{
    FETCH_BYTES_MAX, FETCH_MESSAGES_DEFAULT, FETCH_MESSAGES_MAX, FETCH_WAIT_MS_MAX, SPARE_BODY_BYTES_MAX,
};
use ringmain_model::{Offset, PartitionRef, TopicName};
use ringmain_wire::http::Target;
use ringmain_wire::json::{Message, encode_message};
use smallvec::SmallVec;

use super::HttpFront;
use super::partition::named_or_only;
use super::problem::Problem;
use super::query::{number, number_within, word};
use super::respond::{Context, Response};
use super::topics::latest;

/// How a page is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageFormat {
    Json,
    JsonLines,
    /// Repeated: u32 little-endian length, then that many payload bytes.
    Batch,
}

/// What a fetch wants.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) topic: TopicName,
    /// The partition that the query names.
    named: Option<u64>,
    /// The one that is read.
    pub(super) partition: u32,
    /// The topic has several partitions.
    several: bool,
    /// `None` is the earliest message.
    from: Option<u64>,
    limit: u64,
    /// How long it waits for a first message.
    pub(super) wait_ms: u64,
    format: PageFormat,
    /// Until when it waits, once it has begun.
    pub(super) until_ms: Option<u64>,
    /// It waits for news of the topic.
    pub(super) listening: bool,
    /// The page to answer with when the wait is over.
    pub(super) empty_page: Option<Page>,
}

impl Fetch {
    pub(super) fn read(topic: TopicName, target: &Target<'_>) -> Result<Self, Problem> {
        let formats = [("json", PageFormat::Json), ("ndjson", PageFormat::JsonLines), ("batch", PageFormat::Batch)];
        Ok(Self {
            topic,
            named: number(target, "partition")?,
            partition: 0,
            several: false,
            from: number(target, "from_offset")?,
            limit: number_within(target, "limit", 1..=FETCH_MESSAGES_MAX, FETCH_MESSAGES_DEFAULT)?,
            wait_ms: number_within(target, "wait_ms", 0..=FETCH_WAIT_MS_MAX, 0)?,
            format: word(target, "format", &formats)?.unwrap_or(PageFormat::Json),
            until_ms: None,
            listening: false,
            empty_page: None,
        })
    }

    /// Finds the partition that is meant.
    pub(super) fn locate(&mut self, io: &Io<'_>) -> Result<(), Problem> {
        let place = io.place_of(&self.topic);
        self.partition = named_or_only(self.named, place, "say which one to read with partition=")?;
        self.several = place.is_some_and(|place| place.partitions > 1);
        Ok(())
    }

    pub(super) fn request(&self) -> Request {
        Request::Fetch {
            partition: self.partition,
            name: self.topic.clone(),
            from: Offset(self.from.unwrap_or(0)),
            bytes_max: FETCH_BYTES_MAX,
            records_max: self.limit,
        }
    }

    /// Whether a page is no answer yet: it is empty, and nothing about it needs telling.
    pub(super) fn waits_for_more(&self, page: &Page, now_ms: u64) -> bool {
        let time_left = self.until_ms.is_none_or(|until_ms| now_ms < until_ms);
        page.batches.is_empty() && self.wait_ms > 0 && time_left && self.gap(page).is_none()
    }

    /// What was asked for and what is there, when they differ.
    fn gap(&self, page: &Page) -> Option<(u64, u64)> {
        self.from.filter(|from| *from != page.from.0).map(|from| (from, page.from.0))
    }
}

/// Puts a record into JSON as all faces send it: with its partition when the topic has several.
pub(super) fn encode_record(
    out: &mut Vec<u8>,
    partition: PartitionRef,
    several: bool,
    topic: &TopicName,
    record: &Record<'_>,
    attempt: Option<u32>,
) {
    let id = format!("{partition}-{}", record.offset);
    // A header's name came as text.
    let headers: SmallVec<[(&str, &[u8]); 8]> =
        record.headers.map(|(name, value)| (str::from_utf8(name).unwrap_or_default(), value)).collect();
    let message = Message {
        id: &id,
        offset: record.offset.0,
        topic: topic.as_str(),
        payload: record.payload,
        timestamp_us: record.time_us,
        partition: several.then_some(partition.partition),
        key: record.key,
        headers: &headers,
        attempt,
    };
    encode_message(out, &message);
}

impl HttpFront {
    /// Writes a page.
    pub(super) fn write_page(&mut self, context: &Context, out: &mut Vec<u8>, fetch: &Fetch, page: &Page) {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let (next, sum) = write_records(&mut body, fetch, page);
        debug_assert!(sum <= fetch.limit, "a page holds at most what was asked for");
        let earliest = page.log_start.offset().0;
        let latest_offset = latest(page.high_water.offset().0);
        let gap = fetch.gap(page);
        if fetch.format == PageFormat::Json {
            let mut tail =
                format!(r#"],"next_offset":{next},"earliest_offset":{earliest},"latest_offset":{latest_offset}"#);
            if let Some((requested, resumed)) = gap {
                tail.push_str(&format!(r#","gap":{{"requested":{requested},"resumed":{resumed}}}"#));
            }
            tail.push_str("}}");
            body.extend_from_slice(tail.as_bytes());
        }
        let mut numbers: SmallVec<[(&str, String); 5]> = SmallVec::new();
        if fetch.format != PageFormat::Json {
            numbers.push(("X-Next-Offset", next.to_string()));
            numbers.push(("X-Earliest-Offset", earliest.to_string()));
            numbers.push(("X-Latest-Offset", latest_offset.to_string()));
            if let Some((requested, resumed)) = gap {
                numbers.push(("X-Gap-Requested", requested.to_string()));
                numbers.push(("X-Gap-Resumed", resumed.to_string()));
            }
        }
        let headers: SmallVec<[(&str, &str); 5]> =
            numbers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let content_type = match fetch.format {
            PageFormat::Json => "application/json",
            PageFormat::JsonLines => "application/x-ndjson",
            PageFormat::Batch => "application/vnd.ringmain.batch",
        };
        let response = Response { status: 200, content_type: Some(content_type), headers: &headers, body: &body };
        context.write(out, &self.date, &response);
        body.clear();
        body.shrink_to(SPARE_BODY_BYTES_MAX);
        self.body = body;
    }
}

/// Writes the records of a page, and says which offset follows them and how many there are.
fn write_records(body: &mut Vec<u8>, fetch: &Fetch, page: &Page) -> (u64, u64) {
    if fetch.format == PageFormat::Json {
        body.extend_from_slice(br#"{"status":"success","data":{"messages":["#);
    }
    let records = page.batches.iter().flat_map(|batch| batch.records_from(page.from));
    let (mut next, mut count) = (page.from.0, 0);
    for record in records.take(usize::try_from(fetch.limit).unwrap_or(usize::MAX)) {
        match fetch.format {
            PageFormat::Json => {
                if count > 0 {
                    body.push(b',');
                }
                encode_record(body, page.partition, fetch.several, &fetch.topic, &record, None);
            }
            PageFormat::JsonLines => {
                encode_record(body, page.partition, fetch.several, &fetch.topic, &record, None);
                body.push(b'\n');
            }
            PageFormat::Batch => {
                body.extend_from_slice(&u32::try_from(record.payload.len()).unwrap_or(u32::MAX).to_le_bytes());
                body.extend_from_slice(record.payload);
            }
        }
        next = record.offset.0 + 1;
        count += 1;
    }
    (next, count)
}
