//! Consumer groups over HTTP: how they stand, seek, and work without a stream. On the core of the connection.

use ringmain_driver::{GroupWish, Request};
use ringmain_engine::{Assignment, GroupStart, GroupStats, SeekTo};
use ringmain_model::limit::{FETCH_MESSAGES_MAX, FETCH_WAIT_MS_MAX, NACK_DELAY_MS_MAX};
use ringmain_model::{GroupName, Offset, PartitionRef, TopicName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::HttpFront;
use super::fetch::encode_record;
use super::problem::Problem;
use super::respond::{Context, write_success};
use super::sse::assigned_records;
use super::topics::object_from_slice;
use super::ws::offsets;

/// What a request wants of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GroupVerb {
    Stat,
    Delete,
    Seek,
    Fetch,
    Ack,
    Nack,
}

/// A request to a group, before its body is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GroupTask {
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) verb: GroupVerb,
}

#[derive(Deserialize)]
struct FetchBody {
    max: Option<u64>,
    wait_ms: Option<u64>,
    from_offset: Option<u64>,
}

#[derive(Deserialize)]
struct SeekBody {
    offset: Option<u64>,
    time: Option<String>,
    #[serde(default)]
    earliest: bool,
    #[serde(default)]
    latest: bool,
}

#[derive(Deserialize)]
struct AckBody {
    offset: Option<Value>,
    offsets: Option<Value>,
    epoch: Option<u64>,
    delay_ms: Option<u64>,
}

fn read<'b, T: Deserialize<'b>>(body: &'b [u8], example: &str) -> Result<T, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    object_from_slice(body).map_err(|error| {
        let why: String = error.to_string().chars().take(160).collect();
        Problem::new(400, "invalid_body", format!("the body cannot be used ({why}): send {example}"))
    })
}

impl GroupTask {
    /// Makes the request for the broker.
    pub(super) fn finish(self, body: &[u8]) -> Result<Request, Problem> {
        let wish = match self.verb {
            GroupVerb::Stat => GroupWish::Stat,
            GroupVerb::Delete => GroupWish::Delete,
            GroupVerb::Seek => GroupWish::Seek(seek_to(read(
                body,
                r#"{"offset":7}, {"time":"2026-01-02T03:04:05Z"}, {"earliest":true} or {"latest":true}"#,
            )?)?),
            GroupVerb::Fetch => {
                let body: FetchBody = read(body, r#"{"max":10,"wait_ms":1000}"#)?;
                let count = within("max", body.max.unwrap_or(1), 1, FETCH_MESSAGES_MAX)?;
                let wait_ms = within("wait_ms", body.wait_ms.unwrap_or(0), 0, FETCH_WAIT_MS_MAX)?;
                let start = body.from_offset.map_or(GroupStart::Tail, |offset| GroupStart::Offset(Offset(offset)));
                GroupWish::Pull { start, count: u32::try_from(count).unwrap_or(u32::MAX), wait_ms }
            }
            GroupVerb::Ack => {
                let (offsets, epoch, _) = acked(body)?;
                GroupWish::Ack { epoch, offsets }
            }
            GroupVerb::Nack => {
                let (offsets, epoch, delay_ms) = acked(body)?;
                GroupWish::Nack { epoch, offsets, delay_ms: within("delay_ms", delay_ms, 0, NACK_DELAY_MS_MAX)? }
            }
        };
        Ok(Request::Group { topic: self.topic, partition: 0, group: self.group, wish })
    }
}

fn acked(body: &[u8]) -> Result<(Vec<Offset>, Option<u64>, u64), Problem> {
    let body: AckBody = read(body, r#"{"offsets":[7,9]}"#)?;
    let word = body.offsets.or(body.offset);
    let word =
        word.ok_or_else(|| Problem::new(400, "invalid_body", r#"the body names no offsets: send {"offsets":[7,9]}"#))?;
    Ok((offsets(&word)?, body.epoch, body.delay_ms.unwrap_or(0)))
}

fn within(name: &str, number: u64, least: u64, most: u64) -> Result<u64, Problem> {
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(Problem::parameter(format!("{name} is {number}: choose {least} to {most}")))
}

fn seek_to(body: SeekBody) -> Result<SeekTo, Problem> {
    match (body.offset, body.time, body.earliest, body.latest) {
        (Some(offset), None, false, false) => Ok(SeekTo::Offset(Offset(offset))),
        (None, Some(time), false, false) => match ringmain_wire::json::timestamp_us(&time) {
            Some(time_us) => Ok(SeekTo::Time(time_us)),
            None => Err(Problem::parameter(format!("time={time:?} is no time: write it like 2026-01-02T03:04:05Z"))),
        },
        (None, None, true, false) => Ok(SeekTo::Earliest),
        (None, None, false, true) => Ok(SeekTo::Latest),
        _ => Err(Problem::parameter("seek wants exactly one of offset, time, earliest and latest")),
    }
}

#[derive(Serialize)]
struct GroupBody<'a> {
    name: &'a str,
    topic: &'a str,
    committed_offset: u64,
    next_offset: u64,
    lag: u64,
    members: u64,
    pending: u64,
    redelivering: u64,
    lost: u64,
    dead: u64,
    epoch: u64,
}

fn group_body<'a>(stats: &'a GroupStats, topic: &'a TopicName) -> GroupBody<'a> {
    GroupBody {
        name: stats.name.as_str(),
        topic: topic.as_str(),
        committed_offset: stats.committed.0,
        next_offset: stats.next.0,
        lag: stats.lag,
        members: stats.members,
        pending: stats.pending,
        redelivering: stats.redelivering,
        lost: stats.lost,
        dead: stats.dead,
        epoch: stats.epoch,
    }
}

impl HttpFront {
    pub(super) fn write_groups(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        topic: &TopicName,
        groups: &[GroupStats],
    ) {
        let list: Vec<_> = groups.iter().map(|stats| group_body(stats, topic)).collect();
        self.body.clear();
        write_success(&mut self.body, &list);
        self.write_body(context, out, 200);
    }

    pub(super) fn write_group(&mut self, context: &Context, out: &mut Vec<u8>, topic: &TopicName, stats: &GroupStats) {
        self.body.clear();
        write_success(&mut self.body, &group_body(stats, topic));
        self.write_body(context, out, 200);
    }

    pub(super) fn write_acknowledged(&mut self, context: &Context, out: &mut Vec<u8>, acknowledged: u64) {
        #[derive(Serialize)]
        struct Acknowledged {
            acknowledged: u64,
        }
        self.body.clear();
        write_success(&mut self.body, &Acknowledged { acknowledged });
        self.write_body(context, out, 200);
    }

    /// Writes what a worker without a stream was given.
    pub(super) fn write_pulled(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        topic: &TopicName,
        partition: PartitionRef,
        epoch: u64,
        assignments: &[Assignment],
    ) {
        let several = partition.partition > 0;
        self.body.clear();
        self.body.extend_from_slice(br#"{"status":"success","data":{"messages":["#);
        let records = assignments.iter().flat_map(assigned_records);
        for (at, (record, attempt)) in records.enumerate() {
            if at > 0 {
                self.body.push(b',');
            }
            encode_record(&mut self.body, partition, several, topic, &record, attempt);
        }
        self.body.extend_from_slice(format!(r#"],"epoch":{epoch}}}}}"#).as_bytes());
        self.write_body(context, out, 200);
        self.body.shrink_to(super::topics::CREATE_BYTES_MAX);
    }
}
