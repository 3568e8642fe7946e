//! What the model of a group knows of messages that are given out too often; runs on the test thread.

use std::collections::BTreeSet;

use ringmain_model::limit::DEAD_LETTER_RETRY_MS;
use ringmain_model::{Message, TopicName, TopicPatch};

use super::{Given, Holder, Model, PARTITION, Step, name};
use crate::{Command, DeadLetter, Effect, Event, Reply};

/// How the topic of a model treats what is given out too often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deaths {
    pub(super) max_deliver: Option<u32>,
    pub(super) has_dead_letters: bool,
}

pub(super) const IMMORTAL: Deaths = Deaths { max_deliver: None, has_dead_letters: false };

impl Model {
    pub(super) fn step_of_deaths(&mut self, step: &Step) {
        match *step {
            Step::AnswerLetter(nth, is_stored) => {
                if let Some(letter) = (nth < self.letters.len()).then(|| self.letters.remove(nth)) {
                    self.answer_letter(letter, is_stored);
                }
            }
            Step::AnswerAgain(nth, is_stored) => {
                // Only one whose message did not come to another letter since: a driver answers each letter once.
                let Some(letter) = self.answered.iter().rev().nth(nth).cloned() else { return };
                if !self.letters.contains(&letter) {
                    self.answer_letter(letter, is_stored);
                }
            }
            Step::Change(max_deliver) => {
                let patch = TopicPatch { max_deliver: Some(max_deliver), ..TopicPatch::default() };
                let effects = self.ask(54, Command::Change { incarnation: PARTITION.incarnation, patch });
                // Dead letters that never come would be a mistake, and are refused.
                let is_refused =
                    effects.iter().any(|effect| matches!(effect, Effect::Reply { reply: Reply::Refused(_), .. }));
                assert_eq!(is_refused, self.has_dead_letters && max_deliver.is_none(), "{effects:?}");
                if !is_refused {
                    self.max_deliver = max_deliver;
                }
            }
            _ => {}
        }
    }

    pub(super) fn answer_letter(&mut self, letter: DeadLetter, is_stored: bool) {
        let now_ms = self.now.monotonic_ms;
        if letter.epoch == self.epoch
            && let Some(given) = self.given.get_mut(&letter.offset.0).filter(|given| given.holder == Holder::Leaving)
        {
            if is_stored {
                self.dead += 1;
                self.model_ack(letter.epoch, letter.offset.0);
            } else {
                (given.holder, given.due_ms) = (Holder::Delayed, now_ms + DEAD_LETTER_RETRY_MS);
            }
        }
        self.answered.push(letter.clone());
        let mut effects = Vec::new();
        self.shard.handle(self.now, Event::DeadLettered { letter, is_stored }, &mut effects);
        assert!(effects.is_empty(), "{effects:?}");
    }

    /// What was given out as often as may be leaves at the end of the turn, whether or not anybody wants other messages.
    pub(super) fn bury(&mut self) -> BTreeSet<u64> {
        let max_deliver = self.max_deliver.unwrap_or(u32::MAX);
        let is_dying = |given: &Given| given.holder == Holder::Nobody && given.attempts >= max_deliver;
        let dying: BTreeSet<u64> =
            self.given.iter().filter(|(_, given)| is_dying(given)).map(|(offset, _)| *offset).collect();
        for offset in &dying {
            if self.has_dead_letters {
                self.given.entry(*offset).and_modify(|given| given.holder = Holder::Leaving);
            } else {
                self.dead += 1;
                self.model_ack(self.epoch, *offset);
            }
        }
        dying
    }

    /// A letter left: for a message that had to leave, in its own words, with the id of the tries before.
    pub(super) fn take_letter(
        &mut self,
        dying: &mut BTreeSet<u64>,
        letter: DeadLetter,
        to: &TopicName,
        message: &Message,
    ) {
        assert!(dying.remove(&letter.offset.0), "{letter:?}");
        assert!(letter.epoch == self.epoch && letter.group == name() && to.as_str() == "dead");
        let attempts = self.given[&letter.offset.0].attempts.to_string();
        assert_eq!(message.payload, "m");
        assert_eq!(message.headers.last().unwrap().1, attempts);
        let id = message.id.unwrap().name;
        assert_eq!(*self.letter_ids.entry((letter.epoch, letter.offset.0)).or_insert(id), id);
        self.letters.push(letter);
    }
}
