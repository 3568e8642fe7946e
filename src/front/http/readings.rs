//! The topics that one WebSocket reads: added and ended by words of its client, or by the broker. On the core of the connection.

use ringmain_driver::{End, Io, Notice, Protocol, Requested, StartAt, Subscription, TopicPlace};
use ringmain_model::limit::TOPICS_PER_CONNECTION_MAX;
use ringmain_model::{Offset, Refusal, TopicName};
use serde_json::{Value, json};
use smallvec::SmallVec;

use super::notices::{Subject, end_json, gap_json};
use super::problem::Problem;
use super::resume::{Brought, Scope, check_for_topic, decode};
use super::several::check_count;
use super::subscribe::{Opening, check_partition};
use super::ws::{EXTENDED, Socket};

/// A topic that a socket reads: all of its partitions, or one alone.
#[derive(Debug)]
struct Reading {
    /// The number of its first subscription; those of its other partitions follow.
    number: u32,
    topic: TopicName,
    parts: Parts,
    /// Subscriptions that do not stand yet.
    waits: u32,
    /// The reference of the client's question, until it is answered.
    asked: Option<Value>,
}

/// Which partitions of a topic are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parts {
    first: u32,
    count: u32,
    /// The topic has several, whether or not all are read.
    several: bool,
}

impl Parts {
    fn all(partitions: u32) -> Self {
        Self { first: 0, count: partitions, several: partitions > 1 }
    }

    fn one(partition: u32, partitions: u32) -> Self {
        Self { first: partition, count: 1, several: partitions > 1 }
    }
}

impl Reading {
    fn numbers(&self) -> std::ops::Range<u32> {
        self.number..self.number + self.parts.count
    }

    /// The partition of a subscription, where it must be named.
    fn named(&self, number: u32) -> Option<u32> {
        self.parts.several.then(|| self.parts.first + number - self.number)
    }

    /// Not all of several subscriptions stand: what comes of some of them must wait for the answer.
    fn is_partial(&self) -> bool {
        self.parts.count > 1 && self.waits > 0
    }
}

/// The subscriptions of a socket, by numbers that are never used twice.
#[derive(Debug, Default)]
pub(super) struct Readings {
    list: SmallVec<[Reading; 1]>,
    next_number: u32,
}

impl Readings {
    /// All partitions of those topics, which stand; numbered from 0 in their order.
    pub(super) fn of<'t>(topics: impl Iterator<Item = (&'t TopicName, u32)>) -> Self {
        let mut readings = Self::default();
        for (topic, partitions) in topics {
            readings.add(topic.clone(), Parts::all(partitions));
        }
        readings
    }

    /// The one partition of a request, which stands.
    pub(super) fn of_one(opening: &Opening) -> Self {
        let mut readings = Self::default();
        let partition = opening.end().map_or(0, |end| end.partition.partition);
        readings.add(opening.topic.clone(), Parts::one(partition, opening.partitions));
        readings
    }

    fn add(&mut self, topic: TopicName, parts: Parts) -> &mut Reading {
        let number = self.next_number;
        self.next_number += parts.count;
        self.list.push(Reading { number, topic, parts, waits: 0, asked: None });
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// Partitions that are read, of all topics.
    fn count(&self) -> usize {
        self.list.iter().map(|reading| reading.parts.count as usize).sum()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Reading> {
        self.list.iter_mut().find(|reading| reading.numbers().contains(&number))
    }

    /// Holds messages back while some partitions of a topic stand and others do not.
    fn hold_batches(&self, io: &mut Io<'_>) {
        io.hold_batches(self.list.iter().any(Reading::is_partial));
    }

    fn take(&mut self, is_it: impl Fn(&Reading) -> bool) -> Option<Reading> {
        let at = self.list.iter().position(is_it)?;
        Some(self.list.remove(at))
    }
}

/// A frame and the reference of the question that it answers.
fn with_reference(mut frame: Value, reference: Value) -> Value {
    if !reference.is_null() {
        frame["ref"] = reference;
    }
    frame
}

/// The topic that a word names.
pub(super) fn topic_of(word: &Value) -> Result<TopicName, Problem> {
    let name = word.get("topic").and_then(Value::as_str);
    let name = name.ok_or_else(|| Problem::parameter("name the topic: {\"topic\":\"payments\"}"))?;
    TopicName::new(name).map_err(Problem::from)
}

fn given<'w>(word: &'w Value, name: &str) -> Option<&'w Value> {
    word.get(name).filter(|value| !value.is_null())
}

/// Which partitions a word wants.
fn parts_of_word(word: &Value, place: TopicPlace) -> Result<Parts, Problem> {
    let Some(partition) = given(word, "partition") else { return Ok(Parts::all(place.partitions)) };
    let number = partition.as_u64().ok_or_else(|| Problem::parameter("partition is a number: write digits only"))?;
    Ok(Parts::one(check_partition(number, place.partitions)?, place.partitions))
}

/// Where a word wants to start: its token wins over its offset, which a client repeats as it was. Gives what it brings, and
/// where a partition starts of which that says nothing.
fn start_of_word(word: &Value, topic: &TopicName, parts: Parts, io: &Io<'_>) -> Result<(Brought, StartAt), Problem> {
    let from = match given(word, "from_offset") {
        None => StartAt::Tail,
        Some(offset) => {
            let offset =
                offset.as_u64().ok_or_else(|| Problem::parameter("from_offset is a number: write digits only"))?;
            StartAt::Offset(Offset(offset))
        }
    };
    match given(word, "token") {
        None => Ok((Brought::Nothing, from)),
        Some(Value::String(token)) => {
            let token = decode(token)?;
            check_for_topic(&token, topic, parts.count == 1, io)?;
            Ok((Brought::Token(token), from))
        }
        Some(_) => Err(Problem::parameter("token is the text of a resume token")),
    }
}

impl Socket {
    /// `{"subscribe":{"topic":…}}`, perhaps with the number of a `partition`: answered once all that it reads stands, before its
    /// first message.
    pub(super) fn on_subscribe(&mut self, word: &Value, reference: &Value, io: &mut Io<'_>) -> Result<(), Problem> {
        self.check_may_change()?;
        let topic = topic_of(word)?;
        if self.readings.list.iter().any(|reading| reading.topic == topic) {
            let sentence = format!("this connection reads {topic} already: unsubscribe first");
            return Err(Problem::new(409, "already_subscribed", sentence));
        }
        if self.readings.list.len() == TOPICS_PER_CONNECTION_MAX {
            let sentence = format!(
                "at most {TOPICS_PER_CONNECTION_MAX} topics a connection: unsubscribe from one, or open another"
            );
            return Err(Problem::parameter(sentence));
        }
        let place = io.place_of(&topic).ok_or_else(|| Refusal::topic_not_found(topic.as_str()))?;
        let parts = parts_of_word(word, place)?;
        check_count(self.readings.count(), &topic, parts.count)?;
        let (brought, default) = start_of_word(word, &topic, parts, io)?;
        let (protocol, slow) = (Protocol::WebSocket, self.slow);
        let reading = self.readings.add(topic.clone(), parts);
        (reading.waits, reading.asked) = (parts.count, Some(reference.clone()));
        let numbers = reading.numbers();
        if parts.count > 1 {
            self.readings.hold_batches(io);
        }
        for (number, partition) in numbers.zip(parts.first..) {
            let start = brought.start(Scope::OneTopic, &topic, place.partition(partition), default);
            let (name, counts) = (topic.clone(), partition == parts.first);
            io.subscribe(Subscription { number, name, partition, start, protocol, counts, slow });
        }
        Ok(())
    }

    /// Ends the subscriptions of a topic that is not read any more.
    fn stop_reading(&self, reading: &Reading, io: &mut Io<'_>) {
        reading.numbers().for_each(|number| io.unsubscribe(number));
        if reading.is_partial() {
            self.readings.hold_batches(io);
        }
    }

    /// `{"unsubscribe":{"topic":…}}`: no message of the topic comes after the answer.
    pub(super) fn on_unsubscribe(&mut self, word: &Value, reference: &Value, io: &mut Io<'_>) -> Result<(), Problem> {
        self.check_may_change()?;
        let topic = topic_of(word)?;
        let Some(reading) = self.readings.take(|reading| reading.topic == topic) else {
            let sentence = format!("this connection does not read {topic}");
            return Err(Problem::new(404, "not_subscribed", sentence));
        };
        self.stop_reading(&reading, io);
        if let Some(asked) = reading.asked {
            // Every question has its answer, though this one's time has passed.
            self.say(&with_reference(json!({ "subscribed": { "topic": topic.as_str() } }), asked), io);
        }
        let answer = json!({ "unsubscribed": { "topic": topic.as_str() } });
        self.say(&with_reference(answer, reference.clone()), io);
        Ok(())
    }

    fn check_may_change(&mut self) -> Result<(), Problem> {
        if !self.extended {
            let sentence = format!("offer the subprotocol {EXTENDED} to read topics by word: its clients are answered");
            return Err(Problem::parameter(sentence));
        }
        if self.member().is_ok() {
            return Err(Problem::parameter("a member of a group reads for its group alone: open another connection"));
        }
        Ok(())
    }

    /// News of a subscription or of the membership.
    pub(super) fn on_notice(&mut self, subscription: u32, notice: Notice, io: &mut Io<'_>) {
        match notice {
            Notice::Subscribed { .. } => self.answer_subscribe(subscription, io),
            Notice::Gap { requested, resumed } => self.tell_gap(subscription, requested, resumed, io),
            Notice::Moved { epoch, next } => self.move_to(subscription, epoch, next, io),
            Notice::Lost { messages, resumed } => self.lose(subscription, messages, resumed, io),
            Notice::Ended(End::TopicDeleted) => self.end_reading(subscription, io),
            Notice::Ended(End::TooSlow) => {
                self.close(4408, "too slow: messages came faster than they were read", io);
            }
            Notice::Refused(refusal) if self.member().is_err() => self.refuse_reading(subscription, refusal, io),
            Notice::Ended(End::GroupDeleted) | Notice::Refused(_) => self.close(4404, "the group was deleted", io),
            Notice::Joined { .. } => {}
        }
    }

    fn answer_subscribe(&mut self, subscription: u32, io: &mut Io<'_>) {
        let Some(reading) = self.readings.get_mut(subscription) else { return };
        reading.waits = reading.waits.saturating_sub(1);
        if reading.waits > 0 {
            return;
        }
        let is_of_several = reading.parts.count > 1;
        if let Some(reference) = reading.asked.take() {
            let answer = json!({ "subscribed": { "topic": reading.topic.as_str() } });
            self.say(&with_reference(answer, reference), io);
        }
        if is_of_several {
            self.readings.hold_batches(io);
        }
    }

    pub(super) fn tell_gap(&mut self, subscription: u32, requested: Requested, resumed: Offset, io: &mut Io<'_>) {
        // The topic of a route of one topic is the first, and goes without saying.
        let has_route_topic = self.route_topic().is_some();
        let reading = self.readings.get_mut(subscription);
        let subject = reading.map_or(Subject::default(), |reading| Subject {
            topic: Some(&reading.topic).filter(|_| reading.number > 0 || !has_route_topic),
            partition: reading.named(subscription),
        });
        let json = gap_json(subject, requested, resumed);
        self.tell("gap", &json, io);
    }

    fn refuse_reading(&mut self, subscription: u32, refusal: Refusal, io: &mut Io<'_>) {
        if let Some(reading) = self.readings.take(|reading| reading.numbers().contains(&subscription)) {
            self.stop_reading(&reading, io);
            self.complain(&refusal.into(), reading.asked.unwrap_or_default(), io);
        }
    }

    /// A topic was deleted, and all its partitions end. A client that cannot read others by word has nothing left to wait for when it was the last; nor has
    /// one that asked for this topic's route.
    fn end_reading(&mut self, subscription: u32, io: &mut Io<'_>) {
        let reading = self.readings.take(|reading| reading.numbers().contains(&subscription));
        if let Some(reading) = &reading {
            self.stop_reading(reading, io);
        } else if self.member().is_err() {
            return;
        }
        let is_last = self.readings.list.is_empty();
        if is_last && (!self.extended || self.route_topic().is_some()) {
            return self.close(4404, "the topic was deleted", io);
        }
        let Some(Reading { topic, asked, .. }) = reading else { return };
        match asked {
            Some(reference) => self.complain(&Refusal::topic_not_found(topic.as_str()).into(), reference, io),
            None => {
                let subject = Subject { topic: Some(&topic), partition: None };
                self.tell("end", &end_json(subject, "topic_deleted"), io);
            }
        }
    }
}
