//! Writes and reads of any length as slices of one buffer each: what was handed out, what came back. On the core of its ring.

use bytes::Bytes;
use ringmain_wal::{BLOCK_BYTES, Completion, Failure};

const BLOCK: usize = 4096;
const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "a block is a block");

/// `length` rounded down to whole blocks.
pub(super) fn whole_blocks_in(length: usize) -> usize {
    length - length % BLOCK
}

fn up_to_blocks(length: usize) -> usize {
    length.next_multiple_of(BLOCK)
}

/// A part of a job that one operation of the ring carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slice {
    /// Which of a read's slices.
    pub(super) number: usize,
    /// Bytes from the start of the file.
    pub(super) position: u64,
    pub(super) length: u32,
}

/// A write that is on its way.
#[derive(Debug)]
pub(super) struct Writing {
    parts: Vec<Bytes>,
    position: u64,
    total: u64,
    handed: u64,
    /// Where the next slice begins: a part and a place in it.
    next: (usize, usize),
    written: u64,
    pub(super) in_flight: u32,
    /// Its one slice is to be durable when it ends.
    pub(super) durable: bool,
    /// All of its slices said that they are.
    pub(super) synced: bool,
    pub(super) failure: Option<Failure>,
}

impl Writing {
    pub(super) fn new(position: u64, parts: Vec<Bytes>) -> Self {
        let total = parts.iter().map(|part| part.len() as u64).sum();
        Self {
            parts,
            position,
            total,
            handed: 0,
            next: (0, 0),
            written: 0,
            in_flight: 0,
            durable: false,
            synced: true,
            failure: None,
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn is_aligned(&self) -> bool {
        self.position.is_multiple_of(BLOCK_BYTES) && self.total.is_multiple_of(BLOCK_BYTES)
    }

    /// Whether there is nothing more to hand out.
    pub(super) fn is_handed(&self) -> bool {
        self.handed == self.total || self.failure.is_some()
    }

    /// Copies the next bytes into a buffer.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Slice {
        let position = self.position + self.handed;
        let mut filled = 0;
        while filled < buffer.len()
            && let Some(part) = self.parts.get(self.next.0)
        {
            let rest = &part[self.next.1..];
            let count = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
            self.next = if count == rest.len() { (self.next.0 + 1, 0) } else { (self.next.0, self.next.1 + count) };
        }
        self.handed += filled as u64;
        self.in_flight += 1;
        Slice { number: 0, position, length: u32::try_from(filled).unwrap_or(u32::MAX) }
    }

    /// That many bytes of the file are written.
    pub(super) fn wrote(&mut self, bytes: u32) {
        self.written += u64::from(bytes);
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// What came of it, once nothing is in flight.
    pub(super) fn completion(&self) -> Completion {
        self.failure.map_or(Completion::Written(self.written), Completion::Failed)
    }
}

/// One slice of a read.
#[derive(Debug)]
struct Got {
    bytes: Vec<u8>,
    wanted: usize,
}

/// A read that is on its way. It begins and ends at whole blocks, whatever was asked for.
#[derive(Debug)]
pub(super) struct Reading {
    position: u64,
    /// Bytes at its front that nobody asked for.
    lead: usize,
    wanted: u64,
    slice_bytes: usize,
    handed: u64,
    slices: Vec<Got>,
    /// A slice found the end of the file: none behind it is read.
    ended: bool,
    pub(super) in_flight: u32,
    pub(super) failure: Option<Failure>,
}

impl Reading {
    pub(super) fn new(position: u64, bytes: u64, slice_bytes: usize) -> Self {
        let lead = position % BLOCK_BYTES;
        Self {
            position: position - lead,
            lead: usize::try_from(lead).unwrap_or(0),
            wanted: bytes.saturating_add(lead),
            slice_bytes,
            handed: 0,
            slices: Vec::new(),
            ended: false,
            in_flight: 0,
            failure: None,
        }
    }

    /// Whether there is nothing more to hand out.
    pub(super) fn is_handed(&self) -> bool {
        self.handed == self.wanted || self.ended || self.failure.is_some()
    }

    /// The next slice.
    pub(super) fn next_slice(&mut self) -> Slice {
        let wanted = usize::try_from(self.wanted - self.handed).unwrap_or(usize::MAX).min(self.slice_bytes);
        let number = self.slices.len();
        let position = self.position + self.handed;
        self.slices.push(Got { bytes: Vec::new(), wanted });
        self.handed += wanted as u64;
        self.in_flight += 1;
        Slice { number, position, length: u32::try_from(up_to_blocks(wanted)).unwrap_or(u32::MAX) }
    }

    /// Takes what a slice brought. A read that stops early is not proof that the file ends there, as it may have met a fault:
    /// then the rest is to be read too, and only one that brings nothing new has found the end.
    pub(super) fn got(&mut self, slice: Slice, bytes: &[u8]) -> Option<Slice> {
        let got = self.slices.get_mut(slice.number)?;
        let before = got.bytes.len();
        let start = whole_blocks_in(before);
        let total = (start + bytes.len()).min(got.wanted);
        if total > before {
            got.bytes.truncate(start);
            got.bytes.extend_from_slice(&bytes[..total - start]);
        }
        if total >= got.wanted {
            return None;
        }
        if total <= before {
            self.ended = true;
            return None;
        }
        let begin = whole_blocks_in(total);
        let moved = (begin - start) as u64;
        let length = u32::try_from(up_to_blocks(got.wanted - begin)).unwrap_or(u32::MAX);
        Some(Slice { number: slice.number, position: slice.position + moved, length })
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// What came of it, once nothing is in flight.
    pub(super) fn completion(&mut self) -> Completion {
        if let Some(failure) = self.failure {
            return Completion::Failed(failure);
        }
        let mut slices = std::mem::take(&mut self.slices).into_iter();
        let Some(first) = slices.next() else { return Completion::Read(Bytes::new()) };
        let mut whole = first.bytes.len() == first.wanted;
        // Mostly there is one, and its bytes are not copied again.
        let mut joined = first.bytes;
        for slice in slices {
            if !whole {
                break;
            }
            whole = slice.bytes.len() == slice.wanted;
            joined.extend_from_slice(&slice.bytes);
        }
        let joined = Bytes::from(joined);
        Completion::Read(joined.slice(self.lead.min(joined.len())..))
    }
}
