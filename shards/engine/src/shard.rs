//! One shard's state and the single entrance to it, on the core that owns it.

use hashbrown::HashMap;
use ringmain_model::limit::SHARD_MEMORY_BYTES_DEFAULT;
use ringmain_model::{Incarnation, Offset, PartitionRef, ShardId, TopicName};

use crate::command::{Command, Effect, Event, Now, Origin};
use crate::log::ShardBytes;
use crate::topics::{Announcement, Topic};

/// What a shard is told when it is made.
#[derive(Clone, Copy, Debug)]
pub struct ShardSettings {
    /// How many cores apply placement changes.
    pub cores: u16,
    /// Bytes of records that all its memory topics may keep; above, publishes answer `storage_full`.
    pub memory_bytes_max: u64,
}

impl Default for ShardSettings {
    fn default() -> Self {
        Self { cores: 1, memory_bytes_max: SHARD_MEMORY_BYTES_DEFAULT }
    }
}

/// A share of the topics. Only the driver of its core touches it.
#[derive(Debug)]
pub struct Shard {
    pub(crate) id: ShardId,
    pub(crate) settings: ShardSettings,
    pub(crate) topics: HashMap<Incarnation, Topic>,
    pub(crate) names: HashMap<TopicName, Incarnation>,
    /// Partitions with an open batch, in the order in which they opened it.
    pub(crate) dirty: Vec<PartitionRef>,
    pub(crate) bytes: ShardBytes,
    /// Placement changes that some core has not applied yet.
    pub(crate) announcements: HashMap<u64, Announcement>,
    pub(crate) next_change: u64,
}

impl Shard {
    /// An empty shard.
    #[must_use]
    pub fn new(id: ShardId, settings: ShardSettings) -> Self {
        Self {
            id,
            settings,
            topics: HashMap::new(),
            names: HashMap::new(),
            dirty: Vec::new(),
            bytes: ShardBytes::default(),
            announcements: HashMap::new(),
            next_change: 0,
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Whether publishes wait for the end of the turn.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The log end of a topic that this shard owns: the offset that its next record gets.
    #[must_use]
    pub fn end_of(&self, incarnation: Incarnation) -> Option<Offset> {
        self.topics.get(&incarnation).map(|topic| topic.log.log_end().offset())
    }

    /// Takes one event at the time `now` and appends what follows from it to `effects`.
    pub fn handle(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Asked { origin, command } => self.asked(now, origin, command, effects),
            Event::Placed { change } => self.placed(change, effects),
            Event::TurnEnded => self.close_batches(effects),
        }
    }

    fn asked(&mut self, now: Now, origin: Origin, command: Command, effects: &mut Vec<Effect>) {
        match command {
            Command::Create { name, config, incarnation } => {
                self.create(now, origin, name, config, incarnation, effects);
            }
            Command::Delete { name } => self.delete(origin, &name, effects),
            Command::Stat { incarnation } => self.stat(origin, incarnation, effects),
            Command::List => self.list(origin, effects),
            Command::Publish { partition, message } => self.publish(now, origin, partition, &message, effects),
            Command::Read { partition, from, bytes_max, records_max, following } => {
                let reply = self.read(partition, from, bytes_max, records_max, following);
                effects.push(Effect::Reply { to: origin, reply });
            }
            Command::Interest { partition, interest } => {
                let reply = self.interest(origin.core, partition, interest, effects);
                effects.push(Effect::Reply { to: origin, reply });
            }
        }
    }
}
