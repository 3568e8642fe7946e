//! Makes the chunk list of a topic segment again whose index is damaged. A state machine on the core that owns the shard.

use bytes::Bytes;
use ringmain_model::{Offset, PartitionRef};

use crate::effect::{Completion, Effect, Failure, OperationId};
use crate::position::BLOCK_BYTES;
use crate::topic::chunk::ChunkHeader;
use crate::topic::{Chunk, ChunkDamage, TopicSegment};

/// Bytes of one read while it looks for where the chunks go on.
const SEARCH_BYTES: u64 = 256 << 10;

/// What the scan says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChunkScanOutput {
    /// Do this and bring the result.
    Do {
        /// Comes back with the result.
        operation: OperationId,
        /// What to do.
        effect: Effect,
    },
    /// The scan is over.
    Done {
        /// The chunks, in order. Only their headers were read.
        chunks: Vec<Chunk>,
        /// Offsets of the segment that are in none of them: first and end, in order.
        lost: Vec<(Offset, Offset)>,
    },
    /// A chunk was written by a newer program.
    Newer(u32),
    /// The file cannot be read.
    Failed(Failure),
}

/// Hops from chunk header to chunk header, and looks at each block behind one that is damaged.
#[derive(Debug)]
pub struct ChunkScan {
    partition: PartitionRef,
    segment: TopicSegment,
    /// Where the chunks end: the segment's end, or the file's if that comes first.
    limit: u64,
    position: u64,
    /// The offset with which the next chunk begins.
    awaited: Offset,
    /// The header that was awaited was not there.
    is_searching: bool,
    /// What was read, from `window_position` on.
    window: Bytes,
    window_position: u64,
    chunks: Vec<Chunk>,
    lost: Vec<(Offset, Offset)>,
    operation: Option<OperationId>,
    next_operation: u64,
}

impl ChunkScan {
    /// A scan of the file of `segment`, which has `file_bytes_on_disk` bytes.
    #[must_use]
    pub fn new(partition: PartitionRef, segment: &TopicSegment, file_bytes_on_disk: u64) -> Self {
        let (base, limit) = (segment.base, segment.file_bytes.min(file_bytes_on_disk));
        Self {
            partition,
            segment: TopicSegment { chunks: Vec::new(), ..segment.clone() },
            limit,
            position: BLOCK_BYTES,
            awaited: base,
            is_searching: false,
            window: Bytes::new(),
            window_position: 0,
            chunks: Vec::new(),
            lost: Vec::new(),
            operation: None,
            next_operation: 0,
        }
    }

    /// Begins.
    pub fn start(&mut self, out: &mut Vec<ChunkScanOutput>) {
        self.step(out);
    }

    /// Whether a result of that operation is awaited.
    #[must_use]
    pub fn waits_for(&self, operation: OperationId) -> bool {
        self.operation == Some(operation)
    }

    /// Takes the result of an operation; one that it does not wait for is ignored.
    pub fn completed(&mut self, operation: OperationId, completion: &Completion, out: &mut Vec<ChunkScanOutput>) {
        if self.operation.take_if(|awaited| *awaited == operation).is_none() {
            return;
        }
        match completion {
            Completion::Read(bytes) => {
                self.window = bytes.clone();
                self.window_position = self.position;
                if (bytes.len() as u64) < BLOCK_BYTES {
                    // The file ends earlier than it was said to.
                    self.limit = self.position;
                }
                self.step(out);
            }
            Completion::Failed(failure) => out.push(ChunkScanOutput::Failed(*failure)),
            _ => out.push(ChunkScanOutput::Failed(Failure::Short { written: 0 })),
        }
    }

    /// Goes on until something has to be read.
    fn step(&mut self, out: &mut Vec<ChunkScanOutput>) {
        while self.awaited < self.segment.end && self.position.saturating_add(BLOCK_BYTES) <= self.limit {
            let Some(block) = self.block() else { return self.read(out) };
            match ChunkHeader::decode(&block) {
                Ok(header) if self.belongs(&header) => self.found(header.chunk),
                Err(ChunkDamage::Newer(version)) if !self.is_searching => {
                    return out.push(ChunkScanOutput::Newer(version));
                }
                _ => {
                    self.is_searching = true;
                    self.position += BLOCK_BYTES;
                }
            }
        }
        self.lose_up_to(self.segment.end);
        let (chunks, lost) = (std::mem::take(&mut self.chunks), std::mem::take(&mut self.lost));
        out.push(ChunkScanOutput::Done { chunks, lost });
    }

    fn block(&self) -> Option<Bytes> {
        let from = usize::try_from(self.position.checked_sub(self.window_position)?).ok()?;
        let end = from.checked_add(usize::try_from(BLOCK_BYTES).ok()?)?;
        (end <= self.window.len()).then(|| self.window.slice(from..end))
    }

    fn read(&mut self, out: &mut Vec<ChunkScanOutput>) {
        let operation = OperationId(self.next_operation);
        self.next_operation += 1;
        self.operation = Some(operation);
        let wanted = if self.is_searching { SEARCH_BYTES } else { BLOCK_BYTES };
        let bytes = wanted.min(self.limit - self.position);
        let file = self.segment.file(self.partition);
        out.push(ChunkScanOutput::Do { operation, effect: Effect::Read { file, position: self.position, bytes } });
    }

    fn belongs(&self, header: &ChunkHeader) -> bool {
        let Chunk { base, end, position, .. } = header.chunk;
        // Behind a lost chunk some offsets are missing; without one, none are.
        let goes_on = if self.is_searching { base > self.awaited } else { base == self.awaited };
        let is_here = header.partition == self.partition && position == self.position;
        is_here && goes_on && end <= self.segment.end && position + header.chunk.read_bytes() <= self.limit
    }

    fn found(&mut self, chunk: Chunk) {
        self.lose_up_to(chunk.base);
        self.is_searching = false;
        self.position += chunk.read_bytes();
        self.awaited = chunk.end;
        self.chunks.push(chunk);
    }

    fn lose_up_to(&mut self, end: Offset) {
        if self.awaited < end {
            self.lost.push((self.awaited, end));
            self.awaited = end;
        }
    }
}
