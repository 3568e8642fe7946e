//! The driver's part in dead letters: it carries each to the topic of its name and tells what became of it, late, or never.

use ringmain_engine::{AnswerWhen, Command, DeadLetter, Event};
use ringmain_model::{Message, Storage, TopicName};

use super::commands::{partition, placed};
use super::{Asked, World};
use crate::model::Check;

/// A letter on its way.
#[derive(Clone, Debug)]
pub(super) enum Letter {
    /// From its shard.
    Left { letter: DeadLetter, to: TopicName, message: Message },
    /// Back to it, with what became of it.
    Returns { letter: DeadLetter, is_stored: bool },
}

impl World {
    /// A letter leaves the shard.
    pub(super) fn letter_left(&mut self, letter: DeadLetter, to: TopicName, message: Message) -> Check {
        self.trace.note(format!("{letter:?} leaves for {to}"));
        self.sums.letters += 1;
        self.model.see_letter(&letter, &message)?;
        self.letters.push(Letter::Left { letter, to, message });
        Ok(())
    }

    /// Carries one letter a step on.
    pub(super) fn carry_letter(&mut self) -> Check {
        let at = self.chance.index(self.letters.len());
        match self.letters.swap_remove(at) {
            Letter::Returns { letter, is_stored } => {
                self.trace.note(format!("{letter:?} is stored: {is_stored}"));
                if is_stored {
                    self.model.letter_answered(&letter);
                }
                self.give(Event::DeadLettered { letter, is_stored })
            }
            Letter::Left { letter, to, message } => {
                let there = self.shard()?.placements().map(placed).find(|(name, _)| *name == to).map(|(_, life)| life);
                let Some(life) = there else {
                    // It may live in another shard.
                    let is_stored = self.is_calm || self.chance.one_in(2);
                    self.letters.push(Letter::Returns { letter, is_stored });
                    return Ok(());
                };
                let id = self.model.letter_asked(life, &message)?;
                let command = Command::Publish { partition: partition(life), message, answer: AnswerWhen::Durable };
                let core = self.any_core();
                self.ask(core, command, Asked::Letter { life, id, letter }).map(|_| ())
            }
        }
    }

    /// The topic of the letter has answered.
    pub(super) fn letter_replied(&mut self, life: u64, letter: DeadLetter, is_stored: bool) -> Check {
        // In the end nobody may wait for a topic whose memory is full.
        let is_given_up = self.is_calm && self.model.life(life)?.config.storage == Storage::Memory;
        self.letters.push(Letter::Returns { letter, is_stored: is_stored || is_given_up });
        Ok(())
    }
}
