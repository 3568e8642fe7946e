//! The driver's part in dead letters: it carries each to the topic of its name and tells what became of it, late, or never.

use ringmain_engine::{AnswerWhen, Command, DeadLetter, Event};
use ringmain_model::{Incarnation, Message, PartitionRef, Storage, TopicName};

use super::commands::placed;
use super::{Asked, World};
use crate::model::{Check, key_of, partition_of};

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
                let node = self.model.life(key_of(letter.partition))?.node;
                self.give(node, Event::DeadLettered { letter, is_stored })
            }
            Letter::Left { letter, to, message } => {
                let there = self.placements()?.into_iter().find(|(name, incarnation, partitions)| {
                    // Of a topic with several partitions nobody hears before all are there.
                    let is_known = self.model.lives.get(incarnation).is_some_and(|life| life.is_sure());
                    *name == to && (*partitions == 1 || is_known)
                });
                let Some((_, incarnation, partitions)) = there else {
                    // It may have found a topic that was there for a moment.
                    let is_stored = self.is_calm || self.chance.one_in(2);
                    self.letters.push(Letter::Returns { letter, is_stored });
                    return Ok(());
                };
                let number = PartitionRef::number_of(&message, partitions).unwrap_or(0);
                let life = key_of(PartitionRef { incarnation: Incarnation(incarnation), partition: number });
                let id = self.model.letter_asked(life, &message)?;
                let command = Command::Publish { partition: partition_of(life), message, answer: AnswerWhen::Durable };
                self.ask_life(life, command, Asked::Letter { life, id, letter }).map(|_| ())
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

    /// The topics that the shards would tell the cores of.
    pub(super) fn placements(&mut self) -> Check<Vec<(TopicName, u64, u32)>> {
        let mut all = Vec::new();
        for node in 0..self.nodes.len() {
            all.extend(self.shard(node)?.placements().map(placed));
        }
        all.sort_unstable_by_key(|(_, incarnation, _)| *incarnation);
        Ok(all)
    }
}
