//! Dead letters as the two topics' clients know them: whose they are, what they say, and that none is stored twice.

use ringmain_engine::{DeadLetter, Record};
use ringmain_model::{GroupName, Message};

use super::{Check, Model, Outcome, Publish, key_of};

/// The header that differs between two tries of one letter, when its bound was changed meanwhile.
const ATTEMPTS: &[u8] = b"ringmain-dead-attempts";

/// Whether a record is that letter, perhaps of another try.
pub(super) fn is_same_letter(message: &Message, record: &Record<'_>) -> bool {
    let ours = message.headers.iter().map(|(name, value)| (&name[..], &value[..]));
    let ours = ours.filter(|(name, _)| *name != ATTEMPTS);
    message.payload == record.payload
        && message.key.as_deref() == record.key
        && ours.eq(record.headers.filter(|(name, _)| *name != ATTEMPTS))
}

/// What makes a letter one letter: the topic's life, the group, its epoch, the message's offset.
pub(super) type LetterKey = (u64, GroupName, u64, u64);

impl Model {
    /// A letter leaves its topic: it is a message of that topic, given out as often as may be and not acknowledged.
    ///
    /// # Errors
    /// When it is not.
    pub fn see_letter(&mut self, letter: &DeadLetter, message: &Message) -> Check {
        let key = (key_of(letter.partition), letter.group.clone(), letter.epoch, letter.offset.0);
        let id = message.id.ok_or("a letter has no id")?.name;
        let is_known = *self.letter_ids.entry(key.clone()).or_insert(id) == id;
        if !is_known || *self.letter_keys.entry(id).or_insert_with(|| key.clone()) != key {
            return Err(format!("the letter {key:?} has another id than before, or that of another letter"));
        }
        let life = self.lives.get(&key_of(letter.partition)).ok_or("a letter of no topic")?;
        let name = &life.name;
        if let Some(kept) = life.records.get(&letter.offset.0) {
            let original = &self.publishes[kept.id as usize].message;
            if original.payload != message.payload || original.key != message.key {
                return Err(format!("a letter of {name} does not say what stands at {}", letter.offset));
            }
        }
        let group = life.groups.get(&letter.group).ok_or("a letter of no group")?;
        group
            .dies(letter.epoch, letter.offset.0, life.max_deliver_least)
            .map_err(|fault| format!("group {} of {name}: {fault}", letter.group))
    }

    /// A letter is to be stored in that life of its topic; gives its number.
    ///
    /// # Errors
    /// When it is on its way already.
    pub fn letter_asked(&mut self, to: u64, message: &Message) -> Check<u64> {
        let name = message.id.ok_or("a letter has no id")?.name;
        let next = self.publishes.len() as u64;
        let id = *self.letters.entry((to, name)).or_insert(next);
        if id == next {
            let message = message.clone();
            self.publishes.push(Publish { life: to, message, outcome: Outcome::Open, is_letter: true });
            return Ok(id);
        }
        let publish = &mut self.publishes[id as usize];
        publish.outcome = match publish.outcome {
            Outcome::Refused(_) | Outcome::Lost => Outcome::Open,
            Outcome::Open => return Err("a letter is on its way twice".to_owned()),
            before => before,
        };
        Ok(id)
    }

    /// What became of a letter is told to its group: what is stored counts as acknowledged.
    pub fn letter_answered(&mut self, letter: &DeadLetter) {
        let life = self.lives.get_mut(&key_of(letter.partition));
        if let Some(group) = life.and_then(|life| life.groups.get_mut(&letter.group)) {
            group.died(letter.epoch, letter.offset.0);
        }
    }

    /// The number of the letter that stands there, if it is one.
    pub(super) fn letter_number(&self, life: u64, record: &Record<'_>) -> Option<u64> {
        self.letters.get(&(life, record.id?.name)).copied()
    }
}
