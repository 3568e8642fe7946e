//! Admission of messages, and the batches that make them visible. On the core that owns the shard.

use ringmain_model::{Message, MessageId, Offset, PartitionRef, Refusal, RefusalKind};
use ringmain_wal::{Entry, NotAdmitted};

use crate::command::{AnswerWhen, Effect, Now, Origin, Reply};
use crate::log::{Taken, Waiting};
use crate::opening::StorageState;
use crate::shard::Shard;
use crate::shard_log::{no_log, storage_failed};
use crate::topics::deleted_meanwhile;

impl Shard {
    /// Stores a message, or finds that it is stored. Refusals come before an offset exists; after that the message's
    /// outcome is its batch's.
    pub(crate) fn take_message(
        &mut self,
        now: Now,
        partition: PartitionRef,
        message: &Message,
        effects: &mut Vec<Effect>,
    ) -> Result<(Offset, i64), Refusal> {
        let topic = self.living(partition).ok_or_else(deleted_meanwhile)?;
        let is_logged = topic.is_logged();
        if topic.is_set_aside {
            return Err(set_aside());
        }
        if let Some(id) = &message.id
            && let Some(known) = self.known(partition, id)?
        {
            return Ok(known);
        }
        let offset = if is_logged {
            self.append_logged(now, partition, message)?
        } else {
            self.check_memory(partition, std::iter::once(message), effects)?;
            self.append_in_memory(now, partition, message, effects)?
        };
        if let Some(id) = &message.id {
            self.ids.note(partition, id, offset, now.unix_us);
        }
        Ok((offset, now.unix_us))
    }

    /// The message that was stored under this id, if one was.
    pub(crate) fn known(&self, partition: PartitionRef, id: &MessageId) -> Result<Option<(Offset, i64)>, Refusal> {
        let Some(known) = self.ids.find(partition, &id.name) else { return Ok(None) };
        if known.content == id.content { Ok(Some((known.offset, known.time_us))) } else { Err(id_reused()) }
    }

    /// Answers now what need not wait, and notes the rest. Who waits is told when the highest of its offsets is visible.
    pub(crate) fn answer_publish(
        &mut self,
        origin: Origin,
        partition: PartitionRef,
        outcome: Result<Taken, Refusal>,
        answer: AnswerWhen,
        effects: &mut Vec<Effect>,
    ) {
        let reply = match outcome {
            Err(refusal) => Reply::Refused(refusal),
            Ok(taken) => {
                let Some(topic) = self.partitions.get_mut(&partition) else { return };
                let is_visible = taken.offset < topic.log.high_water().offset();
                // In memory topics closed is durable, so that nobody need be answered earlier.
                if !is_visible && (answer == AnswerWhen::Durable || !topic.is_logged()) {
                    topic.log.wait(Waiting { origin, taken });
                    return;
                }
                taken.reply()
            }
        };
        effects.push(Effect::Reply { to: origin, reply });
    }

    /// Whether memory has room for messages of one memory topic, all of them with all that they take. Live windows have a bound of
    /// their own and make way by themselves.
    pub(crate) fn check_memory<'m>(
        &mut self,
        partition: PartitionRef,
        messages: impl Iterator<Item = &'m Message> + Clone,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if self.has_memory_for(partition, messages.clone()) {
            return Ok(());
        }
        // Of what this turn admitted retention may let go as soon as it is closed.
        self.close_batches(effects);
        if self.has_memory_for(partition, messages) { Ok(()) } else { Err(memory_full()) }
    }

    fn has_memory_for<'m>(&self, partition: PartitionRef, messages: impl Iterator<Item = &'m Message>) -> bool {
        let Some(topic) = self.partitions.get(&partition) else { return true };
        let mut size = topic.log.open_size();
        let bytes: u64 = messages.map(|message| size.add(message) as u64).sum();
        self.bytes.memory + self.bytes.open + bytes <= self.settings.memory_bytes_max
    }

    /// Appends a message for which memory has room.
    pub(crate) fn append_in_memory(
        &mut self,
        now: Now,
        partition: PartitionRef,
        message: &Message,
        effects: &mut Vec<Effect>,
    ) -> Result<Offset, Refusal> {
        if self.partitions.get(&partition).is_some_and(|topic| topic.log.is_full_for(message)) {
            self.close_batch(partition, effects);
        }
        let topic = self.partitions.get_mut(&partition).ok_or_else(deleted_meanwhile)?;
        if !topic.log.is_dirty() {
            self.dirty.push(partition);
        }
        self.bytes.open += topic.log.open_size().add(message) as u64;
        Ok(topic.log.append(message, now.unix_us))
    }

    /// Room in the log comes first, then the offset: what has one is never refused.
    fn append_logged(&mut self, now: Now, partition: PartitionRef, message: &Message) -> Result<Offset, Refusal> {
        if self.partitions.get(&partition).is_some_and(|topic| topic.log.is_full_for(message)) {
            self.close_logged_batch(partition);
        }
        let topic = self.partitions.get(&partition).ok_or_else(deleted_meanwhile)?;
        let bytes = topic.log.bytes_to_reserve(message);
        let bytes = self.reserve_in_log(bytes)?;
        self.append_reserved(now, partition, message, bytes)
    }

    /// Appends a message for which the log has room for `bytes`.
    pub(crate) fn append_reserved(
        &mut self,
        now: Now,
        partition: PartitionRef,
        message: &Message,
        bytes: usize,
    ) -> Result<Offset, Refusal> {
        let topic = self.partitions.get_mut(&partition).ok_or_else(deleted_meanwhile)?;
        let log = self.log.as_mut().ok_or_else(no_log)?;
        if !topic.log.is_dirty() {
            log.dirty.push(partition);
        }
        topic.log.reserve(bytes);
        Ok(topic.log.append(message, now.unix_us))
    }

    /// Reserves room in the open commit batch, and says how much: a few bytes more than asked when all open record batches had to
    /// be closed for that, because what comes begins one then.
    pub(crate) fn reserve_in_log(&mut self, bytes: usize) -> Result<usize, Refusal> {
        let log = self.log.as_mut().ok_or_else(no_log)?;
        if log.is_poisoned() {
            return Err(storage_failed());
        }
        match log.writer.reserve(bytes, &mut log.log_outputs) {
            Ok(()) => {
                log.state = StorageState::Open;
                Ok(bytes)
            }
            // What is reserved is used, and the next commit batch begins.
            Err(NotAdmitted::BatchFull) => {
                self.close_logged_batches();
                let log = self.log.as_mut().ok_or_else(no_log)?;
                let bytes = bytes + Entry::RECORDS_OVERHEAD_BYTES;
                match log.writer.reserve(bytes, &mut log.log_outputs) {
                    Ok(()) => {
                        log.state = StorageState::Open;
                        Ok(bytes)
                    }
                    Err(why) => Err(log.not_admitted(why)),
                }
            }
            Err(why) => Err(log.not_admitted(why)),
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
        let Some(topic) = self.partitions.get_mut(&partition) else { return };
        if !topic.is_logged()
            && let Some((batch, _)) = topic.log.close_batch()
        {
            self.bytes.open -= batch.bytes().len() as u64;
            self.batch_durable(partition, effects);
        }
    }

    /// A batch is durable: its publishes are answered, its records become visible.
    pub(crate) fn batch_durable(&mut self, partition: PartitionRef, effects: &mut Vec<Effect>) {
        let Some(topic) = self.partitions.get_mut(&partition) else { return };
        let Some((batch, waiting)) = topic.log.batch_durable(&mut self.bytes) else { return };
        self.published += batch.end().since(batch.base());
        if let Some(max_age_ms) = topic.config.retention.max_age_ms {
            let ages = topic.log.ages.get_or_insert_default();
            ages.note(batch.base(), batch.end(), self.clock.now_ms(), max_age_ms);
        }
        self.retain(partition, effects);
        let Some(topic) = self.partitions.get_mut(&partition) else { return };
        for group in topic.groups.values_mut().filter(|group| group.has_takers()) {
            group.list(partition, &mut self.listed_groups);
        }
        let replies = waiting.iter().map(|publish| Effect::Reply { to: publish.origin, reply: publish.taken.reply() });
        effects.extend(replies);
        if topic.is_ending {
            return;
        }
        let interest = topic.log.interest().iter();
        effects.extend(interest.map(|(core, _)| Effect::Push { core: *core, batch: batch.clone() }));
    }

    /// Notes when messages of a topic will be too old.
    pub(crate) fn schedule_age(&mut self, partition: PartitionRef) {
        let Some(topic) = self.partitions.get_mut(&partition).filter(|topic| !topic.is_ending) else { return };
        let start = topic.log.log_start().offset();
        let max_age_ms = topic.config.retention.max_age_ms;
        let due_ms = topic.log.ages.as_ref().zip(max_age_ms).and_then(|(ages, max)| ages.next_due_ms(start, max));
        if topic.age_due_ms == due_ms {
            return;
        }
        if let Some(before_ms) = std::mem::replace(&mut topic.age_due_ms, due_ms) {
            self.due_ages.remove(&(before_ms, partition));
        }
        self.due_ages.extend(due_ms.map(|due_ms| (due_ms, partition)));
    }

    /// Lets go of messages that are too old.
    pub(crate) fn expire(&mut self, effects: &mut Vec<Effect>) {
        while let Some((due_ms, partition)) = self.due_ages.first().copied()
            && self.clock.runs()
            && due_ms <= self.clock.now_ms()
        {
            self.due_ages.pop_first();
            if let Some(topic) = self.partitions.get_mut(&partition) {
                topic.age_due_ms = None;
            }
            self.retain(partition, effects);
        }
    }

    /// Moves a partition's log start as far as retention demands; groups go along.
    pub(crate) fn retain(&mut self, partition: PartitionRef, effects: &mut Vec<Effect>) {
        let Some(topic) = self.partitions.get_mut(&partition) else { return };
        let start = topic.log.log_start();
        let segments_max = self.log.as_ref().map_or(u64::MAX, |log| log.settings.topic_segments_max);
        topic.log.retain(&topic.config.retention, self.clock.now_ms(), segments_max, &mut self.bytes);
        self.schedule_age(partition);
        let Some(topic) = self.partitions.get_mut(&partition) else { return };
        if let Some(log) = &mut self.log {
            log.drop_files(topic.log.take_dropped());
        }
        if topic.log.log_start() > start {
            topic.evict_from_groups(&mut self.listed_groups, effects);
        }
    }
}

pub(crate) fn id_reused() -> Refusal {
    Refusal::new(
        RefusalKind::IdReused,
        "this id was given to a message with another body, key or headers: nothing was stored; give each message an id of its own, and each repeat the same",
    )
}

pub(crate) fn set_aside() -> Refusal {
    Refusal::new(
        RefusalKind::StorageFailed,
        "this topic was set aside because its log is damaged: nothing was stored; what is left of it can be read, and a new topic of this name can be made after a delete",
    )
}

pub(crate) fn memory_full() -> Refusal {
    Refusal::new(
        RefusalKind::StorageFull,
        "the memory set aside for messages is used up: nothing was stored; lower retention, delete topics, or raise RINGMAIN_MEMORY_BYTES",
    )
}
