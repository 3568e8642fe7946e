//! One shard's state and the single entrance to it, on the core that owns it.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use ringmain_model::limit::SHARD_MEMORY_BYTES_DEFAULT;
use ringmain_model::{GroupName, Incarnation, Offset, PartitionRef, ShardId, TopicName};

use crate::ages::AgeClock;
use crate::command::{Command, Effect, Event, Now, Origin, Reply};
use crate::group::Joining;
use crate::ids::MessageIds;
use crate::log::ShardBytes;
use crate::orders::Orders;
use crate::parked::{Messages, Publish};
use crate::shard_log::ShardLog;
use crate::topics::{Announcement, Partition};
use ringmain_wal::{Doubt, TopicCreated};

/// What a shard is told when it is made.
#[derive(Clone, Copy, Debug)]
pub struct ShardSettings {
    /// How many cores apply placement changes.
    pub cores: u16,
    /// How many shards the broker has.
    pub shards: u16,
    /// Bytes of records that all its memory topics may keep; above, publishes answer `storage_full`.
    pub memory_bytes_max: u64,
}

impl Default for ShardSettings {
    fn default() -> Self {
        Self { cores: 1, shards: 1, memory_bytes_max: SHARD_MEMORY_BYTES_DEFAULT }
    }
}

/// Sums over all topics of a shard.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ShardTotals {
    /// Messages that became visible since the start.
    pub published: u64,
    /// Bytes of the records that memory keeps because nothing else has them.
    pub memory_bytes: u64,
}

/// A share of the topics. Only the driver of its core touches it.
#[derive(Debug)]
pub struct Shard {
    pub(crate) id: ShardId,
    pub(crate) settings: ShardSettings,
    pub(crate) partitions: HashMap<PartitionRef, Partition>,
    /// The topics whose first partition is here: this shard decides about them.
    pub(crate) names: HashMap<TopicName, Incarnation>,
    /// What other shards are asked to do with their partitions of this shard's topics.
    pub(crate) orders: Orders,
    /// Partitions with an open batch, in the order in which they opened it.
    pub(crate) dirty: Vec<PartitionRef>,
    pub(crate) bytes: ShardBytes,
    /// Messages that became visible since the start.
    pub(crate) published: u64,
    pub(crate) ids: MessageIds,
    pub(crate) clock: AgeClock,
    /// Partitions by the time of the age clock at which messages of theirs are too old; at most one entry each.
    pub(crate) due_ages: BTreeSet<(u64, PartitionRef)>,
    /// Partitions that keep messages for a time, and of whose messages nobody noted when they came.
    pub(crate) unaged: Vec<PartitionRef>,
    /// What logged topics need; none when the broker has no data directory.
    pub(crate) log: Option<Box<ShardLog>>,
    /// Groups that may have something to give out, in the order in which they got it.
    pub(crate) listed_groups: Vec<(PartitionRef, GroupName)>,
    /// Groups by the time at which to look at them; at most one entry each.
    pub(crate) due_groups: BTreeSet<(u64, PartitionRef, GroupName)>,
    /// Placement changes that some core has not applied yet.
    pub(crate) announcements: HashMap<u64, Announcement>,
    pub(crate) next_change: u64,
    /// The next epoch of any group: none of the shard is used twice, so that what was got from a group that is gone counts for
    /// nothing in one of the same name.
    pub(crate) next_epoch: u64,
    /// Whether a start found damage, this one or an earlier one: what nobody knows of is kept then.
    pub(crate) doubt: Doubt,
}

impl Shard {
    /// An empty shard.
    #[must_use]
    pub fn new(id: ShardId, settings: ShardSettings) -> Self {
        Self {
            id,
            settings,
            partitions: HashMap::new(),
            names: HashMap::new(),
            orders: Orders::default(),
            dirty: Vec::new(),
            bytes: ShardBytes::default(),
            published: 0,
            ids: MessageIds::default(),
            clock: AgeClock::default(),
            due_ages: BTreeSet::new(),
            unaged: Vec::new(),
            log: None,
            listed_groups: Vec::new(),
            due_groups: BTreeSet::new(),
            announcements: HashMap::new(),
            next_change: 0,
            next_epoch: 0,
            doubt: Doubt::No,
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// What its topics amount to, which costs the same however many they are.
    #[must_use]
    pub fn totals(&self) -> ShardTotals {
        ShardTotals { published: self.published, memory_bytes: self.bytes.memory + self.bytes.tails }
    }

    /// Whether something waits for the end of the turn.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.listed_groups.is_empty() || self.log.as_ref().is_some_and(|log| log.is_dirty())
    }

    /// When [`Event::TimePassed`] is wanted, monotonic milliseconds.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        let groups = self.due_groups.first().map(|(due_ms, ..)| *due_ms);
        let log = self.log.as_ref().and_then(|log| log.next_due_ms());
        let ages = self.due_ages.first().map(|(age_ms, _)| self.clock.monotonic_ms(*age_ms));
        // A write that is in flight brings a turn by its end, and a log that takes nothing more learns nothing.
        let may_log = self.log.as_ref().is_some_and(|log| !log.is_poisoned() && !log.writer.is_writing());
        let clocks = (may_log && !self.due_ages.is_empty()).then(|| self.clock.next_comparison_ms());
        groups.into_iter().chain(log).chain(ages).chain(clocks).chain(self.orders.next_due_ms()).min()
    }

    /// The log end of a partition that this shard owns: the offset that its next record gets.
    #[must_use]
    pub fn end_of(&self, partition: PartitionRef) -> Option<Offset> {
        self.partitions.get(&partition).map(|topic| topic.log.log_end().offset())
    }

    /// Takes one event at the time `now` and appends what follows from it to `effects`.
    pub fn handle(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.clock.tick(now);
        self.note_unaged();
        // Nobody sees what is too old, whatever comes first: at a start it would be there again for a moment.
        self.expire(effects);
        self.take_event(now, event, effects);
        // What an event gave the log to write is not left lying until the next one.
        self.settle_log(now, effects);
    }

    fn take_event(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Asked { origin, command } => self.asked(now, origin, command, effects),
            Event::Placed { change } => self.placed(change, effects),
            Event::OrderDone { order, outcome } => self.order_done(now, order, outcome, effects),
            Event::DeadLettered { letter, is_stored } => self.dead_lettered(now, &letter, is_stored),
            Event::FileDone { operation, completion } => self.file_done(now, operation, &completion, effects),
            Event::TimePassed => {
                self.list_due_groups(now);
                self.order_again(now, effects);
            }
            Event::TurnEnded => {
                self.close_batches(effects);
                self.serve_groups(now, effects);
                if let Some(log) = &mut self.log {
                    log.loads.trim();
                }
                self.end_log_turn(now, effects);
            }
        }
    }

    pub(crate) fn asked(&mut self, now: Now, origin: Origin, command: Command, effects: &mut Vec<Effect>) {
        match command {
            Command::Create { name, partitions, config, incarnation } => {
                let born = TopicCreated { incarnation, name, created_us: now.unix_us, partitions, config };
                self.create(origin, born, effects);
            }
            Command::Order(order) => self.take_order(origin, order, effects),
            Command::Delete { name } => self.delete(origin, &name, effects),
            Command::Change { incarnation, patch } => self.change(origin, incarnation, &patch, effects),
            Command::PublishAll { partition, messages, answer } => {
                let publish = Publish { origin, partition, messages: Messages::Batch(messages), answer };
                self.take_publish(now, publish, effects);
            }
            Command::Stat { partition } => self.stat(origin, partition, effects),
            Command::List { partitions } => self.list(origin, &partitions, effects),
            Command::Publish { partition, message, answer } => {
                let publish = Publish { origin, partition, messages: Messages::One(message), answer };
                self.take_publish(now, publish, effects);
            }
            read @ Command::Read { .. } => self.read(origin, read, effects),
            Command::Interest { partition, interest } => {
                let reply = self.interest(origin.core, partition, interest, effects);
                effects.push(Effect::Reply { to: origin, reply });
            }
            Command::Join { partition, group, start, in_flight_max, acks_by_sending, is_ordered, identity } => {
                // What this turn admitted becomes visible first, so that the tail is where the answer says.
                self.close_batch(partition, effects);
                let joining = Joining { origin, in_flight_max, acks_by_sending, is_ordered, identity };
                let reply =
                    self.join(partition, group, start, joining).unwrap_or_else(|refusal| Some(Reply::Refused(refusal)));
                effects.extend(reply.map(|reply| Effect::Reply { to: origin, reply }));
            }
            Command::Leave { partition, group } => {
                let reply = self.leave(origin, partition, &group);
                effects.push(Effect::Reply { to: origin, reply });
            }
            Command::Progress { partition, group, progress } => {
                let reply = self.progress(now, origin, partition, &group, progress);
                effects.push(Effect::Reply { to: origin, reply });
            }
            Command::Groups { partition } => {
                let reply = self.list_groups(partition);
                effects.push(Effect::Reply { to: origin, reply });
            }
            Command::Group { partition, group, action } => {
                let reply = self.group_action(now, origin, partition, group, action, effects);
                effects.extend(reply.map(|reply| Effect::Reply { to: origin, reply }));
            }
        }
    }
}
