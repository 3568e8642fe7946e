//! A core's window on a topic: its newest batches, shared by the core's subscribers, each of which is a cursor.

use std::collections::VecDeque;

use ringmain_engine::Interest;
use ringmain_model::limit::{WINDOW_BATCHES_MAX, WINDOW_BYTES_MAX, WINDOW_ENCODED_BYTES_MAX, WINDOWS_BYTES_PER_CORE};
use ringmain_model::{Offset, PartitionRef, ShardId, TopicName};
use ringmain_wal::RecordBatch;

use crate::connection::ConnectionKey;
use crate::request::{Protocol, Requested, SlowReader, StartAt};

slotmap::new_key_type! {
    /// Names a window for as long as it is there.
    pub(crate) struct WindowKey;
    /// Names a cursor for as long as it is there.
    pub(crate) struct CursorKey;
}

/// Bounds of windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowLimits {
    /// Of one window.
    pub(crate) bytes: usize,
    pub(crate) batches: usize,
    /// Of all windows of a core.
    pub(crate) core_bytes: usize,
}

impl Default for WindowLimits {
    fn default() -> Self {
        Self { bytes: WINDOW_BYTES_MAX, batches: WINDOW_BATCHES_MAX, core_bytes: WINDOWS_BYTES_PER_CORE }
    }
}

/// A batch and the encodings that this core has made of it.
#[derive(Debug)]
pub(crate) struct WindowBatch<E> {
    pub(crate) batch: RecordBatch,
    pub(crate) encoded: E,
    /// Something was encoded since that was last cleared.
    pub(crate) is_encoded: bool,
}

/// Whether the owner has answered this core's interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WindowState {
    /// Not yet; pushes that still come belong to an earlier interest.
    Asking,
    /// Pushes continue the window.
    Live,
}

/// The newest batches of one partition on one core. What is in it is `start()..end`, without a hole.
#[derive(Debug)]
pub(crate) struct Window<E> {
    pub(crate) partition: PartitionRef,
    /// How many the topic has.
    pub(crate) partitions: u32,
    pub(crate) topic: TopicName,
    pub(crate) shard: ShardId,
    pub(crate) state: WindowState,
    pub(crate) batches: VecDeque<WindowBatch<E>>,
    pub(crate) bytes: usize,
    /// The first batch whose encodings are kept, and the bytes of the batches from there on: they are bounded.
    encoded_first: usize,
    encoded_bytes: usize,
    /// Everything below it was pushed, or told as a hole.
    pub(crate) end: Offset,
    pub(crate) cursors: Vec<CursorKey>,
    /// What the owner was last told.
    pub(crate) told: Interest,
    /// Messages that connections took, and that the placement table has not been told of.
    pub(crate) delivered: [u64; 2],
    /// Messages that readers who followed were made to miss, and that the placement table has not been told of.
    pub(crate) dropped: u64,
    /// Cursors by protocol, those of fetches left out.
    pub(crate) subscribers: [u32; 2],
    pub(crate) in_news_list: bool,
    pub(crate) in_interest_list: bool,
}

impl<E: Default> Window<E> {
    pub(crate) fn new(partition: PartitionRef, partitions: u32, topic: TopicName, shard: ShardId) -> Self {
        Self {
            partition,
            partitions,
            topic,
            shard,
            state: WindowState::Asking,
            batches: VecDeque::new(),
            bytes: 0,
            encoded_first: 0,
            encoded_bytes: 0,
            end: Offset::default(),
            cursors: Vec::new(),
            told: Interest::default(),
            delivered: [0; 2],
            dropped: 0,
            subscribers: [0; 2],
            in_news_list: false,
            in_interest_list: false,
        }
    }

    /// First offset in the window; its end when it is empty.
    pub(crate) fn start(&self) -> Offset {
        self.batches.front().map_or(self.end, |first| first.batch.base())
    }

    /// Takes a pushed batch. A batch that does not continue the window starts it anew: cursors below read what they miss.
    pub(crate) fn append(&mut self, batch: RecordBatch, limits: &WindowLimits) {
        if batch.end() <= self.end {
            return;
        }
        if batch.base() != self.end {
            self.clear();
        }
        self.bytes += batch.bytes().len();
        self.end = batch.end();
        self.encoded_bytes += batch.bytes().len();
        self.batches.push_back(WindowBatch { batch, encoded: E::default(), is_encoded: false });
        while self.encoded_bytes > WINDOW_ENCODED_BYTES_MAX && self.encoded_first + 1 < self.batches.len() {
            let entry = &mut self.batches[self.encoded_first];
            (entry.encoded, entry.is_encoded) = (E::default(), false);
            self.encoded_bytes -= entry.batch.bytes().len();
            self.encoded_first += 1;
        }
        while self.bytes > limits.bytes || self.batches.len() > limits.batches {
            if self.batches.len() == 1 {
                break;
            }
            self.drop_oldest();
        }
    }

    /// Learns that everything below `high_water` is visible, though not all of it was pushed.
    pub(crate) fn hole_up_to(&mut self, high_water: Offset) {
        if high_water > self.end {
            self.clear();
            self.end = high_water;
        }
    }

    /// Lets go of the oldest batch; says how many bytes that freed.
    pub(crate) fn drop_oldest(&mut self) -> usize {
        let bytes = self.batches.pop_front().map_or(0, |oldest| oldest.batch.bytes().len());
        self.bytes -= bytes;
        match self.encoded_first.checked_sub(1) {
            Some(first) => self.encoded_first = first,
            None => self.encoded_bytes -= bytes,
        }
        bytes
    }

    fn clear(&mut self) {
        self.batches.clear();
        (self.bytes, self.encoded_first, self.encoded_bytes) = (0, 0, 0);
    }

    /// Whether encodings of the batch at `index` are kept: those of the newest batches are, which most readers want.
    pub(crate) fn keeps_encodings(&self, index: usize) -> bool {
        index >= self.encoded_first
    }

    /// Lets go of all encodings: every reader has what they hold.
    pub(crate) fn forget_encodings(&mut self) {
        for entry in self.batches.iter_mut().rev().take_while(|entry| entry.is_encoded) {
            (entry.encoded, entry.is_encoded) = (E::default(), false);
        }
    }

    /// Where the batch that holds `offset` stands; `None` outside the window.
    pub(crate) fn index_of(&self, offset: Offset) -> Option<usize> {
        if offset < self.start() || offset >= self.end {
            return None;
        }
        // Nearly every cursor stands at the newest batch.
        match self.batches.back() {
            Some(last) if last.batch.base() <= offset => Some(self.batches.len() - 1),
            _ => Some(self.batches.partition_point(|entry| entry.batch.end() <= offset)),
        }
    }
}

/// Where a cursor is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CursorState {
    /// The window has not been answered.
    Placing(StartAt),
    /// Serving from the window, or at its end.
    Following,
    /// A read is outstanding. A first read starts within retention; later ones may use the owner's live window.
    Reading {
        /// Whether it is the first.
        first: bool,
    },
    /// A read is wanted, and the lane was full.
    WantsRead {
        /// Whether it is the first.
        first: bool,
    },
}

/// A subscriber's place in a partition.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) connection: ConnectionKey,
    /// The number that its session gave it.
    pub(crate) number: u32,
    pub(crate) window: WindowKey,
    /// Where it stands in the window's list.
    pub(crate) place: usize,
    /// The next offset to read.
    pub(crate) next: Offset,
    pub(crate) state: CursorState,
    /// What was asked for and means nothing here: told as a gap when the first read says where reading begins.
    pub(crate) gap_owed: Option<Requested>,
    pub(crate) in_reads_list: bool,
    /// It has stood in the window or at its end: before that it replays, which is no slowness.
    pub(crate) has_caught_up: bool,
    /// Its connection had too much output waiting since it was last at the end: only then is falling behind its own fault.
    pub(crate) was_starved: bool,
    pub(crate) protocol: Protocol,
    /// Whether it counts as a subscriber.
    pub(crate) counts: bool,
    pub(crate) slow: SlowReader,
}
