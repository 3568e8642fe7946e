//! Builds a record batch, one message after another. Pure; the owner's core keeps one per partition that is being written.

use bytes::Bytes;
use ringmain_model::limit::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};
use ringmain_model::{Message, Offset, PartitionRef};

use crate::batch::{HEADER_BYTES, RecordBatch, VERSION};
use crate::record::{encode, encoded_bytes};

/// Whether a batch takes another message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchSpace {
    /// It does.
    Open,
    /// It is at its bound in bytes or records: finish it first.
    Full,
}

/// How much is in an open batch: what decides where the next one begins.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BatchSize {
    bytes: usize,
    count: u32,
}

impl BatchSize {
    /// Whether `message` fits. An empty batch takes any message that is within the message limit.
    #[must_use]
    pub fn space_for(self, message: &Message) -> BatchSpace {
        let fits = self.bytes + encoded_bytes(message) <= BATCH_BYTES_MAX && self.count < BATCH_RECORDS_MAX;
        if fits || self.count == 0 { BatchSpace::Open } else { BatchSpace::Full }
    }

    /// Counts one more message, in the next batch if it does not fit; says how many bytes it takes with what it begins.
    pub fn add(&mut self, message: &Message) -> usize {
        if self.count == 0 || self.space_for(message) == BatchSpace::Full {
            *self = Self::default();
        }
        let header = if self.count == 0 { HEADER_BYTES } else { 0 };
        let added = header + encoded_bytes(message);
        self.bytes += added;
        self.count += 1;
        added
    }
}

/// An open batch. Offsets are dense: the n-th message gets base + n.
#[derive(Debug)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    base: Offset,
    base_time_us: i64,
    count: u32,
}

impl BatchBuilder {
    /// An empty batch of `partition` whose first record gets the offset `base`, with room for `bytes_hint` bytes: what the
    /// batch before it took is a good guess. The hint is bounded by what a batch may hold.
    #[must_use]
    pub fn new(partition: PartitionRef, base: Offset, bytes_hint: usize) -> Self {
        let mut bytes = Vec::with_capacity(bytes_hint.clamp(HEADER_BYTES, BATCH_BYTES_MAX));
        bytes.resize(HEADER_BYTES, 0);
        bytes[8] = VERSION;
        bytes[12..16].copy_from_slice(&partition.partition.to_le_bytes());
        bytes[16..24].copy_from_slice(&partition.incarnation.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&base.0.to_le_bytes());
        Self { bytes, base, base_time_us: 0, count: 0 }
    }

    /// Whether `message` fits.
    #[must_use]
    pub fn space_for(&self, message: &Message) -> BatchSpace {
        self.size().space_for(message)
    }

    /// How much is in it.
    #[must_use]
    pub fn size(&self) -> BatchSize {
        BatchSize { bytes: self.bytes.len(), count: self.count }
    }

    /// Appends `message`, taken at `time_us`, and says which offset it got.
    pub fn push(&mut self, message: &Message, time_us: i64) -> Offset {
        if self.count == 0 {
            self.base_time_us = time_us;
            self.bytes[48..56].copy_from_slice(&time_us.to_le_bytes());
            let needed = encoded_bytes(message);
            if self.bytes.capacity() - self.bytes.len() < needed {
                self.bytes.reserve_exact(needed);
            }
        }
        // A clock that went back must not make times before the batch's; one that ran ahead by over an hour saturates.
        let time_delta = u32::try_from(time_us.saturating_sub(self.base_time_us).max(0)).unwrap_or(u32::MAX);
        encode(&mut self.bytes, message, self.count, time_delta);
        let offset = self.base.plus(u64::from(self.count));
        self.count += 1;
        offset
    }

    /// Whether no message is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Offset that the next message gets.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.base.plus(u64::from(self.count))
    }

    /// Closes the batch; `None` when it is empty.
    #[must_use]
    pub fn finish(mut self) -> Option<RecordBatch> {
        if self.count == 0 {
            return None;
        }
        let length = u32::try_from(self.bytes.len()).ok()?;
        self.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        self.bytes[40..44].copy_from_slice(&self.count.to_le_bytes());
        let checksum = crc32c::crc32c(&self.bytes[4..]);
        self.bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        // A little slack is cheaper than moving the batch; much of it would count against the memory of the shard.
        if self.bytes.capacity() > self.bytes.len() + self.bytes.len() / 8 {
            self.bytes.shrink_to_fit();
        }
        Some(RecordBatch::finished(Bytes::from(self.bytes), self.base, self.count))
    }
}
