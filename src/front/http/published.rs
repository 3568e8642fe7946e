//! Publishes on their way to the broker, and their answers. On the core of the connection.

use std::borrow::Cow;

use ringmain_driver::Io;
use ringmain_engine::Reply;
use ringmain_model::{Offset, Refusal, RefusalKind, TopicName};
use ringmain_wire::json::timestamp_text;
use serde::Serialize;

use super::HttpFront;
use super::exchange::{Company, Waiting};
use super::gather::Part;
use super::problem::Problem;
use super::publish::{Ack, PublishTask};
use super::respond::{Context, write_json, write_success};
use super::session::Session;
use super::subscribe::check_place;

/// What was stored of a batch, in one partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredBatch {
    first: Offset,
    last: Offset,
    count: u64,
    repeated: u64,
    time_us: i64,
}

/// A batch that is stored in parts, by partition.
#[derive(Debug)]
pub(super) struct Divided {
    topic: TopicName,
    /// Partitions that have not answered.
    left: usize,
    stored: Vec<(u32, StoredBatch)>,
    refused: Vec<(u32, Refusal)>,
}

impl Session {
    pub(super) fn run_publish(
        &mut self,
        front: &mut HttpFront,
        context: Context,
        publish: PublishTask,
        body: Cow<'_, [u8]>,
        io: &mut Io<'_>,
    ) {
        let (topic, ack, company, placing) = (publish.topic.clone(), publish.ack, publish.company(), publish.placing);
        // While its body came the topic may have been made again, with other partitions for the same keys.
        let is_it = check_place(&topic, placing.partitions, io);
        let questions = match is_it.and_then(|()| publish.finish(body, front)) {
            Ok(questions) => questions,
            Err(problem) => return self.refuse(front, context, &problem, io),
        };
        let waiting = match ack {
            Ack::None => Waiting::Nothing,
            _ if placing.is_divided && placing.has_several() => Waiting::Divided(Box::new(Divided {
                topic,
                left: questions.len(),
                stored: Vec::new(),
                refused: Vec::new(),
            })),
            _ => Waiting::Published(topic, placing.has_several()),
        };
        let company = if ack == Ack::None { Company::Any } else { company };
        let number = self.exchanges.push(context, company, waiting);
        for (partition, question) in questions {
            io.ask(Part { number, partition, looks: false }.request(), question);
        }
        if ack == Ack::None {
            self.write_answer(number, io, |context, out| front.write_unwatched(context, out));
        }
    }

    /// A publish was stored whole.
    pub(super) fn on_published(
        &mut self,
        front: &mut HttpFront,
        part: Part,
        (topic, has_several): (&TopicName, bool),
        reply: &Reply,
        io: &mut Io<'_>,
    ) {
        let partition = has_several.then_some(part.partition);
        self.write_answer(part.number, io, |context, out| match *reply {
            Reply::Published { offset, time_us } => {
                front.write_published(context, out, topic, (partition, offset), time_us);
            }
            _ => {
                if let Some(stored) = StoredBatch::of(reply) {
                    front.write_published_all(context, out, topic, partition, stored);
                }
            }
        });
    }

    /// A partition has answered to its part of a batch.
    pub(super) fn on_part_published(
        &mut self,
        front: &mut HttpFront,
        part: Part,
        mut divided: Box<Divided>,
        reply: Reply,
        io: &mut Io<'_>,
    ) {
        divided.left = divided.left.saturating_sub(1);
        if let Some(stored) = StoredBatch::of(&reply) {
            divided.stored.push((part.partition, stored));
        } else if let Reply::Refused(refusal) = reply {
            divided.refused.push((part.partition, refusal));
        }
        if divided.left > 0 {
            return self.wait_for(part.number, Waiting::Divided(divided));
        }
        divided.stored.sort_unstable_by_key(|(partition, _)| *partition);
        divided.refused.sort_unstable_by_key(|(partition, _)| *partition);
        self.write_answer(part.number, io, |context, out| front.write_divided(context, out, *divided));
    }
}

impl StoredBatch {
    fn of(reply: &Reply) -> Option<Self> {
        match *reply {
            Reply::PublishedAll { first, last, count, repeated, time_us } => {
                Some(Self { first, last, count, repeated, time_us })
            }
            _ => None,
        }
    }

    /// How many of its messages had been stored before, unless all had: then this is the first answer again.
    fn repeated(&self) -> Option<u64> {
        Some(self.repeated).filter(|repeated| *repeated > 0 && *repeated < self.count)
    }
}

/// What was stored in one partition, as it is told.
#[derive(Serialize)]
struct PartBody {
    partition: u32,
    first_offset: u64,
    last_offset: u64,
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<u64>,
}

fn part_bodies(stored: &[(u32, StoredBatch)]) -> Vec<PartBody> {
    let body = |(partition, batch): &(u32, StoredBatch)| PartBody {
        partition: *partition,
        first_offset: batch.first.0,
        last_offset: batch.last.0,
        count: batch.count,
        repeated: batch.repeated(),
    };
    stored.iter().map(body).collect()
}

impl HttpFront {
    /// Writes 202 with the place of a message, and its partition when the topic has several.
    fn write_published(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        topic: &TopicName,
        (partition, offset): (Option<u32>, Offset),
        time_us: i64,
    ) {
        #[derive(Serialize)]
        struct Published<'a> {
            offset: u64,
            topic: &'a str,
            timestamp: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            partition: Option<u32>,
        }
        let timestamp = timestamp_text(time_us);
        self.body.clear();
        let published = Published { offset: offset.0, topic: topic.as_str(), timestamp: &timestamp, partition };
        write_success(&mut self.body, &published);
        self.write_body(context, out, 202);
    }

    /// Writes 202 without data: the publish goes on unwatched.
    fn write_unwatched(&mut self, context: &Context, out: &mut Vec<u8>) {
        self.body.clear();
        write_success(&mut self.body, &());
        self.write_body(context, out, 202);
    }

    /// Writes 202 with the places of a batch's messages.
    fn write_published_all(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        topic: &TopicName,
        partition: Option<u32>,
        batch: StoredBatch,
    ) {
        #[derive(Serialize)]
        struct PublishedAll<'a> {
            first_offset: u64,
            last_offset: u64,
            count: u64,
            topic: &'a str,
            timestamp: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            partition: Option<u32>,
            #[serde(skip_serializing_if = "Option::is_none")]
            repeated: Option<u64>,
        }
        let published = PublishedAll {
            first_offset: batch.first.0,
            last_offset: batch.last.0,
            count: batch.count,
            topic: topic.as_str(),
            timestamp: &timestamp_text(batch.time_us),
            partition,
            repeated: batch.repeated(),
        };
        self.body.clear();
        write_success(&mut self.body, &published);
        self.write_body(context, out, 202);
    }

    /// Writes what became of a batch that was divided: 202 when all of it is stored, the refusal when nothing is, and 500 with both
    /// when some is.
    fn write_divided(&mut self, context: &Context, out: &mut Vec<u8>, divided: Divided) {
        #[derive(Serialize)]
        struct DividedBody<'a> {
            count: u64,
            topic: &'a str,
            timestamp: &'a str,
            partitions: Vec<PartBody>,
        }
        let Divided { topic, stored, mut refused, .. } = divided;
        if refused.is_empty() {
            let time_us = stored.iter().map(|(_, batch)| batch.time_us).max().unwrap_or_default();
            let body = DividedBody {
                count: stored.iter().map(|(_, batch)| batch.count).sum(),
                topic: topic.as_str(),
                timestamp: &timestamp_text(time_us),
                partitions: part_bodies(&stored),
            };
            self.body.clear();
            write_success(&mut self.body, &body);
            return self.write_body(context, out, 202);
        }
        if stored.is_empty() {
            // Whether something is stored counts more than why something is not.
            let worst = refused.iter().position(|(_, refusal)| refusal.kind == RefusalKind::OutcomeUnknown);
            let (_, refusal) = refused.swap_remove(worst.unwrap_or(0));
            return context.write_problem(out, &self.date, &Problem::from(refusal));
        }
        self.write_stored_in_part(context, out, &stored, &refused);
    }

    fn write_stored_in_part(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        stored: &[(u32, StoredBatch)],
        refused: &[(u32, Refusal)],
    ) {
        #[derive(Serialize)]
        struct RefusedPart<'a> {
            partition: u32,
            code: &'a str,
            message: &'a str,
        }
        #[derive(Serialize)]
        struct InPart<'a> {
            status: &'a str,
            message: &'a str,
            code: &'a str,
            stored: Vec<PartBody>,
            refused: Vec<RefusedPart<'a>>,
        }
        let numbers: Vec<_> = refused.iter().map(|(partition, _)| partition.to_string()).collect();
        let message = format!(
            "the batch is stored in part: `stored` lists what is; publish the messages of partition {} again, for the reason that \
             `refused` gives",
            numbers.join(", ")
        );
        let part = |(partition, refusal)| {
            let refusal: &Refusal = refusal;
            RefusedPart { partition, code: refusal.kind.code(), message: &refusal.message }
        };
        let body = InPart {
            status: "error",
            message: &message,
            code: RefusalKind::OutcomeUnknown.code(),
            stored: part_bodies(stored),
            refused: refused.iter().map(|(partition, refusal)| part((*partition, refusal))).collect(),
        };
        self.body.clear();
        write_json(&mut self.body, &body);
        self.write_body(context, out, 500);
    }
}
