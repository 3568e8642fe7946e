//! Publishing of many messages at once, all or none: one reservation, one commit batch, one answer. On the owner's core.

use hashbrown::HashMap;
use ringmain_model::limit::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};
use ringmain_model::{Message, Offset, PartitionRef, Refusal};
use ringmain_wal::Entry;

use crate::command::{Effect, Now};
use crate::log::{Several, Taken};
use crate::publish::set_aside;
use crate::shard::Shard;
use crate::topics::deleted_meanwhile;

/// What becomes of one message of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Stored,
    /// It was stored before, there and then.
    Known(Offset, i64),
    /// It repeats an earlier one of the same batch.
    Repeats(usize),
}

impl Shard {
    /// Stores messages, all or none, or finds that they are stored.
    pub(crate) fn take_messages(
        &mut self,
        now: Now,
        partition: PartitionRef,
        messages: &[Message],
        effects: &mut Vec<Effect>,
    ) -> Result<Taken, Refusal> {
        let topic = self.living(partition).ok_or_else(deleted_meanwhile)?;
        let is_logged = topic.is_logged();
        if topic.is_set_aside {
            return Err(set_aside());
        }
        let fates = self.fates(partition, messages)?;
        let new = || messages.iter().zip(&fates).filter(|(_, fate)| **fate == Fate::Stored).map(|(message, _)| message);
        let mut room = 0;
        if is_logged {
            room = room_for(new());
            if room > 0 {
                room = self.reserve_in_log(room)?;
            }
        } else {
            self.check_memory(partition, new(), effects)?;
        }
        let mut offsets: Vec<Offset> = Vec::with_capacity(messages.len());
        let (mut time_us, mut room_left) = (None, room);
        for (message, fate) in messages.iter().zip(&fates) {
            offsets.push(match *fate {
                Fate::Known(offset, first_us) => {
                    time_us.get_or_insert(first_us);
                    offset
                }
                Fate::Repeats(earlier) => offsets[earlier],
                Fate::Stored => {
                    time_us.get_or_insert(now.unix_us);
                    let offset = if is_logged {
                        self.append_part(now, partition, message, &mut room_left)?
                    } else {
                        self.append_in_memory(now, partition, message, effects)?
                    };
                    if let Some(id) = &message.id {
                        self.ids.note(partition, id, offset, now.unix_us);
                    }
                    offset
                }
            });
        }
        // What is left of the room belongs to the last record batch, so that it is given back with it.
        if let Some(topic) = self.partitions.get_mut(&partition) {
            topic.log.reserve(room_left);
        }
        let first = offsets.iter().min().copied().unwrap_or_default();
        let last = offsets.iter().max().copied().unwrap_or_default();
        let repeated = fates.iter().filter(|fate| **fate != Fate::Stored).count() as u64;
        let several = Several { first, count: offsets.len() as u64, repeated };
        Ok(Taken { offset: last, several: Some(several), time_us: time_us.unwrap_or(now.unix_us) })
    }

    /// Which messages are new. One that is a mistake refuses them all.
    fn fates(&self, partition: PartitionRef, messages: &[Message]) -> Result<Vec<Fate>, Refusal> {
        let mut seen: HashMap<[u8; 16], usize> = HashMap::new();
        let mut fates = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            let Some(id) = &message.id else {
                fates.push(Fate::Stored);
                continue;
            };
            if let Some(earlier) = seen.get(&id.name).copied() {
                if messages[earlier].id != message.id {
                    return Err(crate::publish::id_reused());
                }
                fates.push(Fate::Repeats(earlier));
                continue;
            }
            seen.insert(id.name, at);
            fates.push(self.known(partition, id)?.map_or(Fate::Stored, |(offset, us)| Fate::Known(offset, us)));
        }
        Ok(fates)
    }

    /// Appends one message with a part of the room that was reserved for all.
    fn append_part(
        &mut self,
        now: Now,
        partition: PartitionRef,
        message: &Message,
        room_left: &mut usize,
    ) -> Result<Offset, Refusal> {
        if self.partitions.get(&partition).is_some_and(|topic| topic.log.is_full_for(message)) {
            self.close_logged_batch(partition);
        }
        let topic = self.partitions.get(&partition).ok_or_else(deleted_meanwhile)?;
        let bytes = topic.log.bytes_to_reserve(message);
        *room_left = room_left.saturating_sub(bytes);
        self.append_reserved(now, partition, message, bytes)
    }
}

/// Bytes that the messages take in the log at most, however they are divided into record batches.
fn room_for<'m>(messages: impl Iterator<Item = &'m Message>) -> usize {
    let (mut bytes, mut count) = (0, 0);
    for message in messages {
        bytes += Entry::bytes_to_reserve(message, false);
        count += 1;
    }
    if count == 0 {
        return 0;
    }
    // Of two record batches that follow each other one is more than half full; the first may have been open already.
    let batches = 2 + 2 * bytes / BATCH_BYTES_MAX + count / BATCH_RECORDS_MAX as usize;
    bytes + batches * Entry::RECORDS_OVERHEAD_BYTES
}
