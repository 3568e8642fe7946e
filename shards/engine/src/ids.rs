//! Names of messages that a shard remembers, so that a repeat is answered and not stored. On the core that owns the shard.

use std::collections::VecDeque;

use hashbrown::HashMap;
use ringmain_model::limit::MESSAGE_IDS_PER_SHARD;
use ringmain_model::{Incarnation, MessageId, Offset, PartitionRef};
use ringmain_wal::KnownMessage as StoredMessage;

/// What is known of a named message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KnownMessage {
    pub(crate) content: u64,
    pub(crate) offset: Offset,
    pub(crate) time_us: i64,
}

/// The names of all partitions of a shard, forgotten in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct MessageIds {
    windows: HashMap<PartitionRef, HashMap<[u8; 16], KnownMessage>>,
    /// Also of partitions that have gone, until it is their turn.
    order: VecDeque<(PartitionRef, [u8; 16], Offset)>,
    count: usize,
}

impl MessageIds {
    pub(crate) fn find(&self, partition: PartitionRef, name: &[u8; 16]) -> Option<KnownMessage> {
        self.windows.get(&partition)?.get(name).copied()
    }

    /// Remembers a message that was given its offset; the oldest of the shard make room.
    pub(crate) fn note(&mut self, partition: PartitionRef, id: &MessageId, offset: Offset, time_us: i64) {
        let known = KnownMessage { content: id.content, offset, time_us };
        let window = self.windows.entry(partition).or_default();
        self.count += usize::from(window.insert(id.name, known).is_none());
        self.order.push_back((partition, id.name, offset));
        while self.count > MESSAGE_IDS_PER_SHARD || self.order.len() > 2 * MESSAGE_IDS_PER_SHARD {
            let Some((partition, name, offset)) = self.order.pop_front() else { break };
            self.forget_one(partition, &name, offset);
        }
    }

    fn forget_one(&mut self, partition: PartitionRef, name: &[u8; 16], offset: Offset) {
        let Some(window) = self.windows.get_mut(&partition) else { return };
        // The name may have been noted again, for a later message.
        if window.get(name).is_some_and(|known| known.offset == offset) {
            window.remove(name);
            self.count -= 1;
            if window.is_empty() {
                self.windows.remove(&partition);
            }
        }
    }

    /// Forgets what was given to messages that will never be durable.
    pub(crate) fn forget_from(&mut self, partition: PartitionRef, from: Offset) {
        let Some(window) = self.windows.get_mut(&partition) else { return };
        let before = window.len();
        window.retain(|_, known| known.offset < from);
        self.count -= before - window.len();
    }

    /// A topic's life is over.
    pub(crate) fn forget(&mut self, incarnation: Incarnation) {
        let mut count = 0;
        self.windows.retain(|partition, window| {
            let goes = partition.incarnation == incarnation;
            count += if goes { window.len() } else { 0 };
            !goes
        });
        self.count -= count;
    }

    /// How many names of a partition are remembered.
    pub(crate) fn count_of(&self, partition: PartitionRef) -> usize {
        self.windows.get(&partition).map_or(0, HashMap::len)
    }

    /// The names of a partition below `end`, in the order of their offsets.
    pub(crate) fn of(&self, partition: PartitionRef, end: Offset) -> Vec<StoredMessage> {
        let known = self.windows.get(&partition).into_iter().flatten().filter(|(_, known)| known.offset < end);
        let stored = |(name, known): (&[u8; 16], &KnownMessage)| {
            let id = MessageId { name: *name, content: known.content };
            StoredMessage { id, offset: known.offset, time_us: known.time_us }
        };
        let mut messages: Vec<_> = known.map(stored).collect();
        messages.sort_unstable_by_key(|message| message.offset);
        messages
    }
}
