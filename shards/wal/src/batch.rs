//! A finished record batch: shared bytes and the fields of its header. Pure, passed between cores by reference count.

use bytes::Bytes;
use ringmain_model::{Incarnation, Offset, PartitionRef};

use crate::record::{Record, decode};

/// Bytes of a batch's header; see `FORMAT.md`.
pub const HEADER_BYTES: usize = 64;
pub(crate) const VERSION: u8 = 1;

/// Records of one partition together, immutable; cloning shares the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordBatch {
    bytes: Bytes,
    base: Offset,
    count: u32,
}

/// Why bytes are no record batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damage {
    /// A version that this program does not know.
    #[error("record batch of version {0}, this program reads version {VERSION}")]
    Version(u8),
    /// Reserved bits are set, or the length or count cannot be.
    #[error("record batch header is damaged")]
    Header,
    /// The checksum does not match.
    #[error("record batch checksum does not match")]
    Checksum,
    /// The checksum matches and a record's lengths do not.
    #[error("record inside a record batch is malformed")]
    Record,
}

impl RecordBatch {
    /// The batch of bytes that a builder just finished; they are not checked again.
    pub(crate) fn finished(bytes: Bytes, base: Offset, count: u32) -> Self {
        Self { bytes, base, count }
    }

    /// Reads the batch at the start of `bytes` and checks all of it. `None` means that more bytes are needed.
    /// On success the second value is how many bytes the batch takes.
    ///
    /// # Errors
    /// What is damaged.
    pub fn decode(bytes: &Bytes) -> Result<Option<(Self, usize)>, Damage> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        if header[8] != VERSION {
            return Err(Damage::Version(header[8]));
        }
        let zero = [9, 10, 11, 44, 45, 46, 47, 56, 57, 58, 59, 60, 61, 62, 63];
        let length = usize::try_from(word(header, 4)).map_err(|_| Damage::Header)?;
        let count = word(header, 40);
        if zero.iter().any(|at| header[*at] != 0) || length <= HEADER_BYTES || count == 0 {
            return Err(Damage::Header);
        }
        if bytes.len() < length {
            return Ok(None);
        }
        if crc32c::crc32c(&bytes[4..length]) != word(header, 0) {
            return Err(Damage::Checksum);
        }
        let batch = Self { base: Offset(double(header, 32)), count, bytes: bytes.slice(..length) };
        batch.check_records()?;
        Ok(Some((batch, length)))
    }

    fn check_records(&self) -> Result<(), Damage> {
        let (mut at, mut seen, mut next) = (HEADER_BYTES, 0_u32, self.base);
        while at < self.bytes.len() {
            let (record, length) = decode(&self.bytes[at..], self.base, self.base_time_us())?;
            let first_off_base = seen == 0 && record.offset != self.base;
            if record.offset < next || first_off_base {
                return Err(Damage::Record);
            }
            next = record.offset.plus(1);
            seen = seen.saturating_add(1);
            at += length;
        }
        if seen == self.count { Ok(()) } else { Err(Damage::Record) }
    }

    /// The same batch in memory of its own: for one that is kept long and was read together with much else.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self { bytes: Bytes::copy_from_slice(&self.bytes), ..*self }
    }

    /// The whole batch as it is stored and sent.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Offset of the first record.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Offset after the last record.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.base.plus(u64::from(self.count))
    }

    /// Records in the batch, at least 1.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The partition that it belongs to.
    #[must_use]
    pub fn partition(&self) -> PartitionRef {
        PartitionRef { incarnation: Incarnation(double(&self.bytes, 16)), partition: word(&self.bytes, 12) }
    }

    /// Time of the first record in microseconds since the Unix epoch.
    #[must_use]
    pub fn base_time_us(&self) -> i64 {
        double(&self.bytes, 48).cast_signed()
    }

    /// All records, in order.
    #[must_use]
    pub fn records(&self) -> RecordsFrom<'_> {
        RecordsFrom { batch: self, at: HEADER_BYTES }
    }

    /// The records at `from` and above, in order.
    #[must_use]
    pub fn records_from(&self, from: Offset) -> RecordsFrom<'_> {
        let mut records = self.records();
        while let Some((record, length)) = records.peek() {
            if record.offset >= from {
                break;
            }
            records.at += length;
        }
        records
    }
}

/// Walks a batch's records.
#[derive(Clone, Debug)]
pub struct RecordsFrom<'b> {
    batch: &'b RecordBatch,
    at: usize,
}

impl<'b> RecordsFrom<'b> {
    fn peek(&self) -> Option<(Record<'b>, usize)> {
        let rest = self.batch.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        // Every batch was checked when it was decoded, or made by the builder.
        decode(rest, self.batch.base, self.batch.base_time_us()).ok()
    }
}

impl<'b> Iterator for RecordsFrom<'b> {
    type Item = Record<'b>;

    fn next(&mut self) -> Option<Record<'b>> {
        let (record, length) = self.peek()?;
        self.at += length;
        Some(record)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

fn double(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
