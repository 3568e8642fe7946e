//! Publishes that wait for the log: it is busy for a moment, and they have no offset yet. On the core that owns the shard.

use std::collections::VecDeque;

use ringmain_model::limit::{PARKED_BYTES_MAX, PARKED_MAX, PARKED_MS_MAX};
use ringmain_model::{Message, PartitionRef, Refusal, RefusalKind};

use crate::command::{AnswerWhen, Effect, Now, Origin, Reply};
use crate::log::Taken;
use crate::shard::Shard;

/// What is published: a batch is answered as one, even when it holds one message.
#[derive(Debug)]
pub(crate) enum Messages {
    One(Message),
    Batch(Vec<Message>),
}

/// A publish before it has its place.
#[derive(Debug)]
pub(crate) struct Publish {
    pub(crate) origin: Origin,
    pub(crate) partition: PartitionRef,
    pub(crate) messages: Messages,
    pub(crate) answer: AnswerWhen,
}

impl Publish {
    fn bytes(&self) -> usize {
        match &self.messages {
            Messages::One(message) => message.bytes(),
            Messages::Batch(messages) => messages.iter().map(Message::bytes).sum(),
        }
    }
}

/// Publishes in the order in which they came, each with the time at which it is refused.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    waiting: VecDeque<(u64, Publish)>,
    bytes: usize,
}

impl Parked {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.waiting.front().map(|(until_ms, _)| *until_ms)
    }

    fn has_room_for(&self, publish: &Publish) -> bool {
        self.waiting.len() < PARKED_MAX && self.bytes + publish.bytes() <= PARKED_BYTES_MAX
    }

    fn push(&mut self, now: Now, publish: Publish) {
        self.bytes += publish.bytes();
        self.waiting.push_back((now.monotonic_ms + PARKED_MS_MAX, publish));
    }

    fn pop(&mut self) -> Option<(u64, Publish)> {
        let (until_ms, publish) = self.waiting.pop_front()?;
        self.bytes -= publish.bytes();
        Some((until_ms, publish))
    }

    fn give_back(&mut self, until_ms: u64, publish: Publish) {
        self.bytes += publish.bytes();
        self.waiting.push_front((until_ms, publish));
    }
}

impl Shard {
    /// Takes a publish, or has it wait while the log is busy. Those of logged topics keep their order.
    pub(crate) fn take_publish(&mut self, now: Now, publish: Publish, effects: &mut Vec<Effect>) {
        let is_logged = self.living(publish.partition).is_some_and(|topic| topic.is_logged());
        let others_wait = is_logged && self.log.as_ref().is_some_and(|log| !log.parked.is_empty());
        let outcome = if others_wait { Err(busy()) } else { self.try_publish(now, &publish, effects) };
        match outcome {
            Err(refusal) if is_logged && refusal.kind == RefusalKind::Busy => self.park(now, publish, effects),
            outcome => self.answer_publish(publish.origin, publish.partition, outcome, publish.answer, effects),
        }
    }

    fn park(&mut self, now: Now, publish: Publish, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        if log.parked.has_room_for(&publish) {
            log.parked.push(now, publish);
        } else {
            effects.push(Effect::Reply { to: publish.origin, reply: Reply::Refused(busy()) });
        }
    }

    fn try_publish(&mut self, now: Now, publish: &Publish, effects: &mut Vec<Effect>) -> Result<Taken, Refusal> {
        match &publish.messages {
            Messages::One(message) => {
                let (offset, time_us) = self.take_message(now, publish.partition, message, effects)?;
                Ok(Taken { offset, several: None, time_us })
            }
            Messages::Batch(messages) => self.take_messages(now, publish.partition, messages, effects),
        }
    }

    /// Tries again what waits, as far as the log has room; what has waited too long is refused.
    pub(crate) fn retry_parked(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while let Some((until_ms, publish)) = self.log.as_mut().and_then(|log| log.parked.pop()) {
            let outcome = self.try_publish(now, &publish, effects);
            let is_busy = outcome.as_ref().is_err_and(|refusal| refusal.kind == RefusalKind::Busy);
            if is_busy && until_ms > now.monotonic_ms {
                if let Some(log) = &mut self.log {
                    log.parked.give_back(until_ms, publish);
                }
                return;
            }
            self.answer_publish(publish.origin, publish.partition, outcome, publish.answer, effects);
        }
    }
}

fn busy() -> Refusal {
    Refusal::busy("the log's disk does not keep up")
}
