//! Admission of messages, and the closing of batches that makes them visible. On the core that owns the shard.

use ringmain_model::{Message, PartitionRef, Refusal, RefusalKind};

use crate::command::{AnswerWhen, Effect, Now, Origin, Reply};
use crate::shard::Shard;
use crate::topics::deleted_meanwhile;

impl Shard {
    pub(crate) fn publish(
        &mut self,
        now: Now,
        origin: Origin,
        partition: PartitionRef,
        message: &Message,
        _answer: AnswerWhen,
        effects: &mut Vec<Effect>,
    ) {
        // Refusals come before an offset exists; after admission the message's outcome is the batch's.
        let refusal = match self.topics.get(&partition.incarnation) {
            None => Some(deleted_meanwhile()),
            // Live windows have a bound of their own and make way by themselves.
            Some(_) if self.bytes.retained() + message.bytes() as u64 > self.settings.memory_bytes_max => {
                Some(storage_full())
            }
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) });
            return;
        }
        if self.topics.get(&partition.incarnation).is_some_and(|topic| topic.log.is_full_for(message)) {
            self.close_batch(partition, effects);
        }
        if let Some(topic) = self.topics.get_mut(&partition.incarnation) {
            if !topic.log.is_dirty() {
                self.dirty.push(partition);
            }
            topic.log.append(message, now.unix_us, origin);
        }
    }

    /// Closes all open batches: the end of a turn.
    pub(crate) fn close_batches(&mut self, effects: &mut Vec<Effect>) {
        // Taken and given back, so that the list keeps its memory.
        let mut dirty = std::mem::take(&mut self.dirty);
        for partition in dirty.drain(..) {
            self.close_batch(partition, effects);
        }
        self.dirty = dirty;
    }

    /// Closes one partition's open batch, if there is one: its publishes are answered, its records become visible.
    pub(crate) fn close_batch(&mut self, partition: PartitionRef, effects: &mut Vec<Effect>) {
        let Some(topic) = self.topics.get_mut(&partition.incarnation) else { return };
        let Some((batch, waiting)) = topic.log.close_batch(&mut self.bytes) else { return };
        let start = topic.log.log_start();
        topic.log.retain(&topic.config.retention, &mut self.bytes);
        if topic.log.log_start() > start {
            topic.evict_from_groups(effects);
        }
        for group in topic.groups.values_mut().filter(|group| group.has_takers()) {
            group.list(partition.incarnation, &mut self.listed_groups);
        }
        let replies = waiting.into_iter().map(|publish| Effect::Reply {
            to: publish.origin,
            reply: Reply::Published { offset: publish.offset, time_us: publish.time_us },
        });
        effects.extend(replies);
        let interest = topic.log.interest().iter();
        effects.extend(interest.map(|(core, _)| Effect::Push { core: *core, batch: batch.clone() }));
    }
}

fn storage_full() -> Refusal {
    Refusal::new(
        RefusalKind::StorageFull,
        "the memory set aside for messages is used up: nothing was stored; lower retention, delete topics, or raise RINGMAIN_MEMORY_BYTES",
    )
}
