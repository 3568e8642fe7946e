//! Admission of messages, and the batches that make them visible. On the core that owns the shard.

use ringmain_model::{Message, Offset, PartitionRef, Refusal, RefusalKind};
use ringmain_wal::NotAdmitted;

use crate::command::{AnswerWhen, Effect, Now, Origin, Reply};
use crate::opening::StorageState;
use crate::shard::Shard;
use crate::shard_log::{no_log, storage_failed};
use crate::topics::deleted_meanwhile;

impl Shard {
    pub(crate) fn publish(
        &mut self,
        now: Now,
        origin: Origin,
        partition: PartitionRef,
        message: &Message,
        answer: AnswerWhen,
        effects: &mut Vec<Effect>,
    ) {
        // Refusals come before an offset exists; after admission the message's outcome is the batch's.
        let admitted = match self.living(partition.incarnation) {
            None => Err(deleted_meanwhile()),
            Some(topic) if topic.is_set_aside => Err(set_aside()),
            Some(topic) if topic.is_logged() => {
                self.append_logged(now, origin, partition, message, answer).map(|offset| {
                    // Who does not wait for the disk is answered now.
                    (answer == AnswerWhen::Appended).then_some(offset)
                })
            }
            Some(_) => self.append_in_memory(now, origin, partition, message, effects).map(|()| None),
        };
        let reply = match admitted {
            Err(refusal) => Reply::Refused(refusal),
            Ok(Some(offset)) => Reply::Published { offset, time_us: now.unix_us },
            Ok(None) => return,
        };
        effects.push(Effect::Reply { to: origin, reply });
    }

    fn append_in_memory(
        &mut self,
        now: Now,
        origin: Origin,
        partition: PartitionRef,
        message: &Message,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        // Live windows have a bound of their own and make way by themselves.
        if self.bytes.memory + message.bytes() as u64 > self.settings.memory_bytes_max {
            return Err(memory_full());
        }
        if self.topics.get(&partition.incarnation).is_some_and(|topic| topic.log.is_full_for(message)) {
            self.close_batch(partition, effects);
        }
        if let Some(topic) = self.topics.get_mut(&partition.incarnation) {
            if !topic.log.is_dirty() {
                self.dirty.push(partition);
            }
            topic.log.append(message, now.unix_us, Some(origin));
        }
        Ok(())
    }

    /// Room in the log comes first, then the offset: what has one is never refused.
    fn append_logged(
        &mut self,
        now: Now,
        origin: Origin,
        partition: PartitionRef,
        message: &Message,
        answer: AnswerWhen,
    ) -> Result<Offset, Refusal> {
        if self.topics.get(&partition.incarnation).is_some_and(|topic| topic.log.is_full_for(message)) {
            self.close_logged_batch(partition);
        }
        let mut has_closed = false;
        loop {
            let topic = self.topics.get_mut(&partition.incarnation).ok_or_else(deleted_meanwhile)?;
            let log = self.log.as_mut().ok_or_else(no_log)?;
            if log.is_poisoned() {
                return Err(storage_failed());
            }
            let bytes = topic.log.bytes_to_reserve(message);
            match log.writer.reserve(bytes, &mut log.log_outputs) {
                Ok(()) => {
                    log.state = StorageState::Open;
                    if !topic.log.is_dirty() {
                        log.dirty.push(partition);
                    }
                    topic.log.reserve(bytes);
                    let waits = (answer == AnswerWhen::Durable).then_some(origin);
                    return Ok(topic.log.append(message, now.unix_us, waits));
                }
                // What is reserved is used, and the next commit batch begins.
                Err(NotAdmitted::BatchFull) if !has_closed => {
                    has_closed = true;
                    self.close_logged_batches();
                }
                Err(why) => return Err(log.not_admitted(why)),
            }
        }
    }

    /// Closes all open batches of memory topics: the end of a turn.
    pub(crate) fn close_batches(&mut self, effects: &mut Vec<Effect>) {
        // Taken and given back, so that the list keeps its memory.
        let mut dirty = std::mem::take(&mut self.dirty);
        for partition in dirty.drain(..) {
            self.close_batch(partition, effects);
        }
        self.dirty = dirty;
    }

    /// Closes the open batch of a memory topic, if there is one: closed is durable there. A logged topic's batch closes when the
    /// log takes it.
    pub(crate) fn close_batch(&mut self, partition: PartitionRef, effects: &mut Vec<Effect>) {
        let Some(topic) = self.topics.get_mut(&partition.incarnation) else { return };
        if !topic.is_logged() && topic.log.close_batch().is_some() {
            self.batch_durable(partition, effects);
        }
    }

    /// A batch is durable: its publishes are answered, its records become visible.
    pub(crate) fn batch_durable(&mut self, partition: PartitionRef, effects: &mut Vec<Effect>) {
        let Some(topic) = self.topics.get_mut(&partition.incarnation) else { return };
        let Some((batch, waiting)) = topic.log.batch_durable(&mut self.bytes) else { return };
        let start = topic.log.log_start();
        let segments_max = self.log.as_ref().map_or(u64::MAX, |log| log.settings.topic_segments_max);
        topic.log.retain(&topic.config.retention, segments_max, &mut self.bytes);
        if let Some(log) = &mut self.log {
            log.drop_files(topic.log.take_dropped());
        }
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
        if topic.is_ending {
            return;
        }
        let interest = topic.log.interest().iter();
        effects.extend(interest.map(|(core, _)| Effect::Push { core: *core, batch: batch.clone() }));
    }
}

fn set_aside() -> Refusal {
    Refusal::new(
        RefusalKind::StorageFailed,
        "this topic was set aside because its log is damaged: nothing was stored; what is left of it can be read, and a new topic of this name can be made after a delete",
    )
}

fn memory_full() -> Refusal {
    Refusal::new(
        RefusalKind::StorageFull,
        "the memory set aside for messages is used up: nothing was stored; lower retention, delete topics, or raise RINGMAIN_MEMORY_BYTES",
    )
}
