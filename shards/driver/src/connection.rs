//! A core's connections: each one's session, its output, its wishes. Only that core touches them.

use std::collections::VecDeque;

use bytes::Bytes;
use ringmain_engine::Origin;
use ringmain_model::{GroupName, PartitionRef, ShardId};
use ringmain_uring::SocketId;
use smallvec::SmallVec;

use crate::front::Close;
use crate::membership::MembershipKey;
use crate::window::CursorKey;

/// What the loop knows of a connection besides its session.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: SocketId,
    pub(crate) output: Output,
    pub(crate) cursors: SmallVec<[CursorKey; 1]>,
    /// Its parts in its group, one in each partition.
    pub(crate) memberships: SmallVec<[MembershipKey; 1]>,
    /// Fetches of a group that wait for their answers: one that takes messages, or one that looks in each partition.
    pub(crate) pulls: Vec<PullAsked>,
    /// When `on_timer` is wanted, and when to look at write progress again: monotonic milliseconds, `u64::MAX` for never.
    pub(crate) deadline_ms: u64,
    pub(crate) stall_ms: u64,
    /// Where this connection stands in the timers, if it does.
    pub(crate) scheduled_ms: Option<u64>,
    /// Bytes that the kernel had taken when write progress was last looked at.
    pub(crate) progress: u64,
    /// Bytes thrown away while lingering.
    pub(crate) lingered_bytes: usize,
    pub(crate) closing: Option<Close>,
    pub(crate) input_wanted: bool,
    pub(crate) input_on: bool,
    /// What it said to its group waits for a full lane, and is as much as may wait: it is not read from.
    pub(crate) words_wait: bool,
    pub(crate) input_ended: bool,
    pub(crate) stall_limited: bool,
    /// The session waits for output to leave.
    pub(crate) wants_drained: bool,
    pub(crate) lingering: bool,
    /// What is still on its way to the peer does not matter any more.
    pub(crate) abandoned: bool,
    /// The ring was told to close the socket; nothing more may be asked of it.
    pub(crate) gone: bool,
    pub(crate) in_dirty_list: bool,
    /// A cursor stopped because too much output waits.
    pub(crate) out_of_credit: bool,
    /// The session is not ready for batches.
    pub(crate) batches_held: bool,
    /// Which of several cursors goes on first when there is credit again.
    pub(crate) next_turn: u8,
}

impl Link {
    fn new(socket: SocketId) -> Self {
        Self {
            socket,
            output: Output::default(),
            cursors: SmallVec::new(),
            memberships: SmallVec::new(),
            pulls: Vec::new(),
            deadline_ms: u64::MAX,
            stall_ms: u64::MAX,
            scheduled_ms: None,
            progress: 0,
            lingered_bytes: 0,
            closing: None,
            input_wanted: true,
            input_on: true,
            words_wait: false,
            input_ended: false,
            stall_limited: true,
            wants_drained: false,
            lingering: false,
            abandoned: false,
            gone: false,
            in_dirty_list: false,
            out_of_credit: false,
            batches_held: false,
            next_turn: 0,
        }
    }

    /// Whether sessions are still told things: not once the connection is ending.
    pub(crate) fn is_open(&self) -> bool {
        self.closing.is_none() && !self.lingering
    }
}

/// Where a fetch of a group was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PullAsked {
    pub(crate) origin: Origin,
    pub(crate) shard: ShardId,
    pub(crate) partition: PartitionRef,
    pub(crate) group: GroupName,
}

/// Messages of one subscription in a queued buffer, or in a send.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Carried {
    pub(crate) subscription: u32,
    pub(crate) messages: u32,
}

/// Bytes on their way out: queued buffers, and a tail that small writes share.
#[derive(Default, Debug)]
pub(crate) struct Output {
    queue: VecDeque<Bytes>,
    /// What each queued buffer carries, in the same order.
    carried: VecDeque<Carried>,
    tail: Vec<u8>,
    queued_bytes: usize,
    flying_bytes: usize,
    /// What the send in flight carries, by subscription.
    flying: SmallVec<[Carried; 1]>,
}

impl Output {
    pub(crate) fn push(&mut self, bytes: Bytes, carried: Carried) {
        self.close_tail();
        self.queued_bytes += bytes.len();
        self.queue.push_back(bytes);
        self.carried.push_back(carried);
    }

    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    pub(crate) fn bytes(&self) -> usize {
        self.queued_bytes + self.tail.len() + self.flying_bytes
    }

    /// Bytes of the send in flight.
    pub(crate) fn flying(&self) -> usize {
        self.flying_bytes
    }

    pub(crate) fn waits(&self) -> bool {
        self.queued_bytes + self.tail.len() > 0
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.queued_bytes += tail.len();
            self.queue.push_back(Bytes::from(tail));
            self.carried.push_back(Carried::default());
        }
    }

    /// Lets `take` have the queue, which removes what it sends and says how many bytes that was.
    pub(crate) fn start_send(&mut self, take: impl FnOnce(&mut VecDeque<Bytes>) -> usize) {
        self.close_tail();
        let before = self.queue.len();
        let bytes = take(&mut self.queue);
        let taken = before - self.queue.len();
        for carried in self.carried.drain(..taken).filter(|carried| carried.messages > 0) {
            note_carried(&mut self.flying, carried);
        }
        self.flying_bytes = bytes;
        self.queued_bytes -= bytes;
        if self.queue.is_empty() && self.queue.capacity() > 8 {
            self.queue = VecDeque::new();
            self.carried = VecDeque::new();
        }
    }

    /// The send arrived; says what it carried.
    pub(crate) fn sent(&mut self) -> SmallVec<[Carried; 1]> {
        self.flying_bytes = 0;
        std::mem::take(&mut self.flying)
    }

    /// Messages of a subscription that have not arrived; they are not counted again when they do.
    pub(crate) fn disown(&mut self, subscription: u32) -> u32 {
        let all = self.carried.iter_mut().chain(&mut self.flying);
        let own = all.filter(|carried| carried.subscription == subscription);
        own.map(|carried| std::mem::take(&mut carried.messages)).sum()
    }

    /// Forgets all that has not been given to the kernel.
    pub(crate) fn clear(&mut self) {
        *self = Self { flying_bytes: self.flying_bytes, ..Self::default() };
    }
}

/// Adds to what a send carries. Few subscriptions take part in one send, and nearly always one.
fn note_carried(flying: &mut SmallVec<[Carried; 1]>, carried: Carried) {
    match flying.iter_mut().find(|earlier| earlier.subscription == carried.subscription) {
        Some(earlier) => earlier.messages += carried.messages,
        None => flying.push(carried),
    }
}

/// A connection that is open or ending.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    pub(crate) link: Link,
    /// `None` once the session was told that the connection ended.
    pub(crate) session: Option<S>,
}

/// Names a connection for as long as its slot is its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct ConnectionKey(pub(crate) SocketId);

impl ConnectionKey {
    /// The key as the number that travels in an origin.
    pub(crate) fn asker(self) -> u64 {
        (u64::from(self.0.generation()) << 32) | (self.0.slot() as u64 & u64::from(u32::MAX))
    }
}

/// All connections of a core, by socket slot.
#[derive(Debug)]
pub(crate) struct Connections<S> {
    slots: Vec<Option<Box<Connection<S>>>>,
    open: usize,
}

impl<S> Connections<S> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), open: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.open
    }

    pub(crate) fn insert(&mut self, socket: SocketId) -> &mut Link {
        let slot = socket.slot();
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        if self.slots[slot].is_none() {
            self.open += 1;
        }
        let connection = Connection { link: Link::new(socket), session: None };
        &mut self.slots[slot].insert(Box::new(connection)).link
    }

    pub(crate) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection<S>> {
        let connection = self.slots.get_mut(key.0.slot())?.as_deref_mut()?;
        (connection.link.socket == key.0).then_some(connection)
    }

    /// The connection whose key travelled as `asker`.
    pub(crate) fn by_asker(&self, asker: u64) -> Option<ConnectionKey> {
        let slot = usize::try_from(asker & u64::from(u32::MAX)).ok()?;
        let key = ConnectionKey(self.slots.get(slot)?.as_ref()?.link.socket);
        (key.asker() == asker).then_some(key)
    }

    pub(crate) fn key_in_slot(&self, slot: usize) -> Option<ConnectionKey> {
        Some(ConnectionKey(self.slots.get(slot)?.as_ref()?.link.socket))
    }

    pub(crate) fn remove(&mut self, key: ConnectionKey) -> Option<Connection<S>> {
        self.get_mut(key)?;
        self.open -= 1;
        self.slots[key.0.slot()].take().map(|connection| *connection)
    }

    pub(crate) fn keys(&self) -> Vec<ConnectionKey> {
        self.slots.iter().flatten().map(|connection| ConnectionKey(connection.link.socket)).collect()
    }
}
