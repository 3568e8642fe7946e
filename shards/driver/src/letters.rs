//! Dead letters on their way from one topic to another, which may be on another core. On the core of the topic they leave.

use ringmain_engine::{Command, DeadLetter, Event, Origin, Reply};
use ringmain_model::{Message, PartitionRef, Refusal, TopicName};
use slotmap::Key;

use crate::core::State;
use crate::front::Front;
use crate::lane::LaneItem;
use crate::request::AnswerWhen;
use crate::route::LETTER_BIT;

/// How often it is told at most that letters find no place, in milliseconds.
const TOLD_AGAIN_MS: u64 = 10_000;

slotmap::new_key_type! {
    /// Names a letter until its answer has come.
    pub(crate) struct LetterKey;
}

/// A letter that waits for its answer. As many as the groups have pending messages at most, which are bounded.
#[derive(Debug)]
pub(crate) struct Letter {
    /// Which of the core's shards sent it.
    shard: usize,
    letter: DeadLetter,
    to: TopicName,
}

impl<F: Front> State<F> {
    /// Has a letter of the shard at `index` stored in the topic `to`.
    pub(crate) fn send_letter(&mut self, index: usize, letter: DeadLetter, to: TopicName, message: Message) {
        let placed = self.placement.find(&to).and_then(|placed| {
            let number = PartitionRef::number_of(&message, placed.partitions).unwrap_or(0);
            let shard = placed.shard.of_partition(number, self.settings.shards);
            Some((shard, placed.partition(number).ok()?))
        });
        let key = self.letters.insert(Letter { shard: index, letter, to });
        let origin = Origin { core: self.settings.own, asker: key.data().as_ffi(), request: LETTER_BIT };
        let sent = placed.is_some_and(|(shard, partition)| {
            self.send(shard, origin, Command::Publish { partition, message, answer: AnswerWhen::Durable }).is_ok()
        });
        if !sent {
            let refusal = Refusal::busy("the dead-letter topic is not there, or its core has no room");
            self.local.push_back(LaneItem::Reply { to: origin, reply: Reply::Refused(refusal) });
        }
    }

    /// Tells the shard what became of its letter.
    pub(crate) fn take_letter_reply(&mut self, key: LetterKey, reply: &Reply) {
        let Some(Letter { shard, letter, to }) = self.letters.remove(key) else { return };
        let is_stored = matches!(reply, Reply::Published { .. });
        // As many letters may wait as there are pending messages: one speaks for all of a while.
        let is_told = self.letters_told_ms > 0 && self.now.monotonic_ms < self.letters_told_ms + TOLD_AGAIN_MS;
        if let Reply::Refused(refusal) = reply
            && !is_told
        {
            self.letters_told_ms = self.now.monotonic_ms;
            tracing::warn!(to = to.as_str(), group = letter.group.as_str(), offset = letter.offset.0, %refusal, "dead letters find no place and are tried again, this one and perhaps others");
        }
        self.give_shard_at(shard, Event::DeadLettered { letter, is_stored });
    }
}
