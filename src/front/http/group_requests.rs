//! Requests to groups: which partitions each asks for what, and how the answers become one. On the core of the connection.

use ringmain_driver::{GroupAction, Io, Request, TopicPlace};
use ringmain_engine::{GroupStart, GroupStats, Reply, SeekTo};
use ringmain_model::limit::{FETCH_MESSAGES_MAX, FETCH_WAIT_MS_MAX, NACK_DELAY_MS_MAX};
use ringmain_model::{GroupName, Offset, Refusal, TopicName};
use serde::Deserialize;

use super::HttpFront;
use super::acks::Acks;
use super::exchange::{Company, Waiting};
use super::gather::{Gather, Gathered, Part};
use super::partition::{named, named_or_only};
use super::problem::Problem;
use super::respond::Context;
use super::session::Session;
use super::topics::object_from_slice;
use super::worker::{Moment, Step, Wanted, Worker};

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

/// A request to a group that waits for its answers.
#[derive(Debug)]
pub(super) struct GroupWait {
    topic: TopicName,
    /// How many the topic has.
    partitions: u32,
    answers: GroupAnswers,
}

#[derive(Debug)]
enum GroupAnswers {
    /// Each partition that was asked answers once.
    Each(Gather),
    /// Partitions are asked until one has messages.
    Worker(Worker),
}

impl GroupWait {
    /// When it has something to do if no answer comes before, monotonic milliseconds.
    pub(super) fn due_ms(&self) -> Option<u64> {
        match &self.answers {
            GroupAnswers::Worker(worker) => worker.due_ms(),
            GroupAnswers::Each(_) => None,
        }
    }
}

/// What is asked of whom.
enum Plan {
    /// Of partitions, all at the same time; at least one.
    Each(Vec<(u32, GroupAction)>),
    /// Of all partitions, for messages.
    Work(TopicPlace, Wanted),
}

#[derive(Deserialize)]
struct FetchBody {
    max: Option<u64>,
    wait_ms: Option<u64>,
    from_offset: Option<u64>,
    partition: Option<u64>,
}

#[derive(Deserialize)]
struct SeekBody {
    offset: Option<u64>,
    time: Option<String>,
    #[serde(default)]
    earliest: bool,
    #[serde(default)]
    latest: bool,
    partition: Option<u64>,
}

pub(super) fn read<'b, T: Deserialize<'b>>(body: &'b [u8], example: &str) -> Result<T, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    object_from_slice(body).map_err(|error| {
        let why: String = error.to_string().chars().take(160).collect();
        Problem::new(400, "invalid_body", format!("the body cannot be used ({why}): send {example}"))
    })
}

impl GroupTask {
    /// Decides which partitions are asked for what. Of a topic that is not there the first one is, so that somebody says so.
    fn plan(&self, body: &[u8], place: Option<TopicPlace>, now_ms: u64) -> Result<Plan, Problem> {
        let partitions = place.map_or(1, |place| place.partitions);
        let all = |action: GroupAction| (0..partitions).map(|partition| (partition, action.clone())).collect();
        Ok(Plan::Each(match self.verb {
            GroupVerb::Stat => all(GroupAction::Stat),
            GroupVerb::Delete => all(GroupAction::Delete),
            GroupVerb::Seek => plan_seek(body, place)?,
            GroupVerb::Fetch => return plan_fetch(body, place, now_ms),
            GroupVerb::Ack => {
                let Acks { offsets, epoch, .. } = Acks::read(body, &self.topic, place)?;
                let ack = |(partition, offsets)| (partition, GroupAction::Ack { epoch, offsets, by: None });
                offsets.into_iter().map(ack).collect()
            }
            GroupVerb::Nack => {
                let Acks { offsets, epoch, delay_ms } = Acks::read(body, &self.topic, place)?;
                let delay_ms = within("delay_ms", delay_ms, 0, NACK_DELAY_MS_MAX)?;
                let nack = |(partition, offsets)| (partition, GroupAction::Nack { epoch, offsets, delay_ms });
                offsets.into_iter().map(nack).collect()
            }
        }))
    }
}

/// All partitions seek, or the one that is named; the others only say how they stand.
fn plan_seek(body: &[u8], place: Option<TopicPlace>) -> Result<Vec<(u32, GroupAction)>, Problem> {
    let body: SeekBody =
        read(body, r#"{"offset":7}, {"time":"2026-01-02T03:04:05Z"}, {"earliest":true} or {"latest":true}"#)?;
    let number = body.partition;
    let to = seek_to(body)?;
    let only = match to {
        SeekTo::Offset(_) => Some(named_or_only(number, place, r#"say whose offset this is with "partition""#)?),
        _ => named(number, place)?,
    };
    let action = |partition| {
        let seeks = only.is_none_or(|only| only == partition);
        (partition, if seeks { GroupAction::Seek(to) } else { GroupAction::Stat })
    };
    Ok((0..place.map_or(1, |place| place.partitions)).map(action).collect())
}

fn plan_fetch(body: &[u8], place: Option<TopicPlace>, now_ms: u64) -> Result<Plan, Problem> {
    let body: FetchBody = read(body, r#"{"max":10,"wait_ms":1000}"#)?;
    let count = within("max", body.max.unwrap_or(1), 1, FETCH_MESSAGES_MAX)?;
    let wait_ms = within("wait_ms", body.wait_ms.unwrap_or(0), 0, FETCH_WAIT_MS_MAX)?;
    let start = body.from_offset.map_or(GroupStart::Tail, |offset| GroupStart::Offset(Offset(offset)));
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    match (named(body.partition, place)?, place) {
        (None, Some(place)) if place.partitions > 1 => {
            Ok(Plan::Work(place, Wanted { start, count, until_ms: now_ms + wait_ms }))
        }
        (number, _) => Ok(Plan::Each(vec![(number.unwrap_or(0), GroupAction::Pull { start, count, wait_ms })])),
    }
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

impl Session {
    pub(super) fn run_group(
        &mut self,
        front: &mut HttpFront,
        context: Context,
        task: GroupTask,
        body: &[u8],
        io: &mut Io<'_>,
    ) {
        let place = io.place_of(&task.topic);
        let partitions = place.map_or(1, |place| place.partitions);
        let plan = match task.plan(body, place, io.now().monotonic_ms) {
            Ok(plan) => plan,
            Err(problem) => return self.refuse(front, context, &problem, io),
        };
        let GroupTask { topic, group, .. } = task;
        match plan {
            Plan::Each(wishes) => {
                let question = |(partition, action)| {
                    let (topic, group) = (topic.clone(), group.clone());
                    (partition, Request::Group { topic, partition, group, action })
                };
                let questions = wishes.into_iter().map(question).collect();
                let number = self.exchanges.push(context, Company::None, Waiting::Nothing);
                let answers = GroupAnswers::Each(Gather::ask(number, questions, io));
                self.wait_for(number, Waiting::Group(Box::new(GroupWait { topic, partitions, answers })));
            }
            Plan::Work(place, wanted) => {
                let first = self.exchanges.turn.unwrap_or_else(|| chance_of(io));
                self.exchanges.turn = Some(first.wrapping_add(1));
                let begun = self.exchanges.begun.take().map(|begun| *begun);
                let mut worker = Worker::new(place, group, wanted, first, begun);
                let step = worker.begin();
                let wait = Box::new(GroupWait { topic, partitions, answers: GroupAnswers::Worker(worker) });
                let number = self.exchanges.push(context, Company::None, Waiting::Nothing);
                self.step_worker(front, number, wait, step, io);
            }
        }
    }

    /// An answer to a request to a group has come.
    pub(super) fn on_group_reply(
        &mut self,
        front: &mut HttpFront,
        part: Part,
        mut wait: Box<GroupWait>,
        reply: Reply,
        io: &mut Io<'_>,
    ) {
        if let GroupAnswers::Worker(worker) = &mut wait.answers {
            let reply = match reply {
                // It named no partition: the topic was made again, with fewer.
                Reply::Refused(_) if !has_partition(&wait.topic, part.partition, io) => {
                    Reply::Refused(Refusal::topic_not_found(wait.topic.as_str()))
                }
                reply => reply,
            };
            let step = worker.take((part.partition, part.looks), reply, self.moment(io));
            return self.step_worker(front, part.number, wait, step, io);
        }
        let GroupWait { topic, partitions, answers } = *wait;
        let GroupAnswers::Each(gather) = answers else { return };
        match gather.take(part.partition, reply, io) {
            Gathered::Refused(refusal) => self.write_refusal(front, part.number, refusal, io),
            Gathered::Some(gather) => {
                let wait = GroupWait { topic, partitions, answers: GroupAnswers::Each(gather) };
                self.wait_for(part.number, Waiting::Group(Box::new(wait)));
            }
            Gathered::All(replies) => self.write_answer(part.number, io, |context, out| {
                front.write_group_replies(context, out, (&topic, partitions), replies);
            }),
        }
    }

    /// A fetch over partitions may have something to do without an answer: its time has come, or the broker goes down.
    pub(super) fn wake_worker(&mut self, front: &mut HttpFront, io: &mut Io<'_>) {
        let moment = self.moment(io);
        let Some((number, exchange)) = self.exchanges.oldest() else { return };
        match std::mem::replace(&mut exchange.waiting, Waiting::Nothing) {
            Waiting::Group(mut wait) => {
                let step = match &mut wait.answers {
                    GroupAnswers::Worker(worker) => worker.on_time(moment),
                    GroupAnswers::Each(_) => Step::Wait,
                };
                match step {
                    Step::Wait => self.wait_for(number, Waiting::Group(wait)),
                    step => {
                        self.step_worker(front, number, wait, step, io);
                        self.resume(front, io);
                    }
                }
            }
            other => exchange.waiting = other,
        }
    }

    fn moment(&self, io: &Io<'_>) -> Moment {
        Moment { now_ms: io.now().monotonic_ms, is_draining: self.draining }
    }

    fn step_worker(&mut self, front: &mut HttpFront, number: u64, wait: Box<GroupWait>, step: Step, io: &mut Io<'_>) {
        let GroupAnswers::Worker(worker) = &wait.answers else { return };
        match step {
            Step::Wait => self.wait_for(number, Waiting::Group(wait)),
            Step::Ask(asks) => {
                for ask in asks {
                    let part = Part { number, partition: ask.partition, looks: ask.looks };
                    let (topic, group) = (wait.topic.clone(), worker.group().clone());
                    io.ask(
                        part.request(),
                        Request::Group { topic, partition: ask.partition, group, action: ask.action },
                    );
                }
                self.wait_for(number, Waiting::Group(wait));
            }
            Step::Give { partition, epoch, assignments } => {
                let (topic, several) = (self.end_work(*wait, io), true);
                self.write_answer(number, io, |context, out| {
                    front.write_pulled(context, out, &topic, several, (partition, epoch), &assignments);
                });
            }
            Step::Refuse(refusal) => {
                self.end_work(*wait, io);
                self.write_refusal(front, number, refusal, io);
            }
        }
    }

    /// A fetch over partitions is over: nothing of it is left waiting, and what it found out is remembered.
    fn end_work(&mut self, wait: GroupWait, io: &mut Io<'_>) -> TopicName {
        if let GroupAnswers::Worker(worker) = wait.answers {
            if worker.has_looks() {
                io.take_back_pulls();
            }
            self.exchanges.begun = worker.into_begun().map(Box::new);
        }
        wait.topic
    }

    pub(super) fn write_refusal(&mut self, front: &HttpFront, number: u64, refusal: Refusal, io: &mut Io<'_>) {
        let problem = Problem::from(refusal);
        self.write_answer(number, io, |context, out| context.write_problem(out, &front.date, &problem));
    }
}

fn has_partition(topic: &TopicName, number: u32, io: &Io<'_>) -> bool {
    io.place_of(topic).is_some_and(|place| number < place.partitions)
}

/// A number that others do not have, for a first partition: connections that fetch once must not all begin at the same one.
fn chance_of(io: &Io<'_>) -> u32 {
    let mixed = io.now().unix_us.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    u32::try_from(mixed).unwrap_or(0)
}

impl HttpFront {
    /// Writes what the partitions answered, all of the same kind.
    fn write_group_replies(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        (topic, partitions): (&TopicName, u32),
        replies: Vec<(u32, Reply)>,
    ) {
        let (mut standing, mut acknowledged): (Vec<(u32, GroupStats)>, _) = (Vec::new(), None);
        for (number, reply) in replies {
            match reply {
                Reply::Group(stats) => standing.push((number, *stats)),
                Reply::Acknowledged(count) => acknowledged = Some(acknowledged.unwrap_or(0) + count),
                Reply::Pulled { partition, epoch, assignments, .. } => {
                    let several = partitions > 1;
                    return self.write_pulled(context, out, topic, several, (partition, epoch), &assignments);
                }
                _ => {}
            }
        }
        match acknowledged {
            Some(count) => self.write_acknowledged(context, out, count),
            None if standing.is_empty() => self.write_deleted(context, out),
            None => self.write_group(context, out, topic, partitions, &standing),
        }
    }
}
