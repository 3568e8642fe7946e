//! The topics that one WebSocket reads: added and ended by words of its client, or by the broker. On the core of the connection.

use ringmain_driver::{End, Io, Notice, Protocol, Requested, StartAt, Subscription};
use ringmain_model::limit::TOPICS_PER_CONNECTION_MAX;
use ringmain_model::{Offset, Refusal, TopicName};
use serde_json::{Value, json};
use smallvec::SmallVec;

use super::problem::Problem;
use super::subscribe::{end_json, gap_json, start_of};
use super::ws::{EXTENDED, Socket};

/// One subscription of a socket.
#[derive(Debug)]
struct Reading {
    number: u32,
    topic: TopicName,
    /// The reference of the client's question, until it is answered.
    asked: Option<Value>,
}

/// The subscriptions of a socket, by numbers that are never used twice.
#[derive(Debug, Default)]
pub(super) struct Readings {
    list: SmallVec<[Reading; 1]>,
    next_number: u32,
}

impl Readings {
    /// Those of the request, numbered from 0 in the order of its topics.
    pub(super) fn of<'t>(topics: impl Iterator<Item = &'t TopicName>) -> Self {
        let mut readings = Self::default();
        topics.for_each(|topic| {
            readings.add(topic.clone(), None);
        });
        readings
    }

    fn add(&mut self, topic: TopicName, asked: Option<Value>) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        self.list.push(Reading { number, topic, asked });
        number
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Reading> {
        self.list.iter_mut().find(|reading| reading.number == number)
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

/// Where a word wants to start: its token wins over its offset, which a client repeats as it was.
fn start_of_word(word: &Value, topic: &TopicName, io: &Io<'_>) -> Result<StartAt, Problem> {
    let given = |name: &str| word.get(name).filter(|value| !value.is_null());
    let from = match given("from_offset") {
        None => StartAt::Tail,
        Some(offset) => {
            let offset =
                offset.as_u64().ok_or_else(|| Problem::parameter("from_offset is a number: write digits only"))?;
            StartAt::Offset(Offset(offset))
        }
    };
    match given("token") {
        None => Ok(from),
        Some(Value::String(token)) => start_of(token, topic, io),
        Some(_) => Err(Problem::parameter("token is the text of a resume token")),
    }
}

impl Socket {
    /// `{"subscribe":{"topic":…}}`: answered once the subscription stands, before its first message.
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
        if !io.has_topic(&topic) {
            return Err(Refusal::topic_not_found(topic.as_str()).into());
        }
        let start = start_of_word(word, &topic, io)?;
        let number = self.readings.add(topic.clone(), Some(reference.clone()));
        let (protocol, slow) = (Protocol::WebSocket, self.slow);
        io.subscribe(Subscription { number, name: topic, partition: 0, start, protocol, slow });
        Ok(())
    }

    /// `{"unsubscribe":{"topic":…}}`: no message of the topic comes after the answer.
    pub(super) fn on_unsubscribe(&mut self, word: &Value, reference: &Value, io: &mut Io<'_>) -> Result<(), Problem> {
        self.check_may_change()?;
        let topic = topic_of(word)?;
        let Some(reading) = self.readings.take(|reading| reading.topic == topic) else {
            let sentence = format!("this connection does not read {topic}");
            return Err(Problem::new(404, "not_subscribed", sentence));
        };
        io.unsubscribe(reading.number);
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
            Notice::Moved { epoch, next } => self.move_to(epoch, next, io),
            Notice::Lost { messages, resumed } => self.lose(messages, resumed, io),
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
        if let Some(reading) = self.readings.get_mut(subscription)
            && let Some(reference) = reading.asked.take()
        {
            let answer = json!({ "subscribed": { "topic": reading.topic.as_str() } });
            self.say(&with_reference(answer, reference), io);
        }
    }

    pub(super) fn tell_gap(&mut self, subscription: u32, requested: Requested, resumed: Offset, io: &mut Io<'_>) {
        // The topic of a route of one topic is the first, and goes without saying.
        let is_of_route = self.route_topic().is_some() && subscription == 0;
        let reading = self.readings.get_mut(subscription).filter(|_| !is_of_route);
        let json = gap_json(reading.map(|reading| &reading.topic), requested, resumed);
        self.tell("gap", &json, io);
    }

    fn refuse_reading(&mut self, subscription: u32, refusal: Refusal, io: &mut Io<'_>) {
        if let Some(reading) = self.readings.take(|reading| reading.number == subscription) {
            self.complain(&refusal.into(), reading.asked.unwrap_or_default(), io);
        }
    }

    /// A topic was deleted. A client that cannot read others by word has nothing left to wait for when it was the last; nor has
    /// one that asked for this topic's route.
    fn end_reading(&mut self, subscription: u32, io: &mut Io<'_>) {
        let reading = self.readings.take(|reading| reading.number == subscription);
        let is_last = self.readings.list.is_empty();
        if is_last && (!self.extended || self.route_topic().is_some()) {
            return self.close(4404, "the topic was deleted", io);
        }
        let Some(Reading { topic, asked, .. }) = reading else { return };
        match asked {
            Some(reference) => self.complain(&Refusal::topic_not_found(topic.as_str()).into(), reference, io),
            None => self.tell("end", &end_json(&topic, "topic_deleted"), io),
        }
    }
}
