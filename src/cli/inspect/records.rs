//! A file of record batches, one behind the other; on the main thread.

use std::io;

use bytes::Bytes;
use ringmain_wal::{HEADER_BYTES, RecordBatch};
use serde::Serialize;

use super::damage::{Damage, Damages};
use super::entry::EntryView;
use super::source::{PIECE_BYTES_MAX, Source};

/// A record batch and where it stands.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BatchView {
    pub(super) position: u64,
    #[serde(flatten)]
    pub(super) batch: EntryView,
}

/// Reads one batch after another until the file or what is whole ends.
#[derive(Debug)]
pub(super) struct RecordsWalk {
    source: Source,
    path: String,
    position: u64,
    found: Damages,
}

/// Whether the bytes at a file's start may be a record batch, which has no magic: its version and its reserved bytes are right.
pub(super) fn may_begin(block: &Bytes) -> bool {
    block.len() >= HEADER_BYTES && matches!(RecordBatch::decode(&block.slice(..HEADER_BYTES)), Ok(None))
}

impl RecordsWalk {
    pub(super) fn new(source: Source, path: &str) -> Self {
        Self { source, path: path.to_owned(), position: 0, found: Damages::default() }
    }

    fn step(&mut self) -> io::Result<Result<RecordBatch, String>> {
        let head = self.source.get(self.position, HEADER_BYTES as u64)?;
        let length = head.get(4..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let bytes = u64::from(length).max(HEADER_BYTES as u64);
        if bytes > PIECE_BYTES_MAX || bytes > self.source.bytes() - self.position {
            return Ok(Err(format!("a record batch says that it has {length} bytes, and the file ends before that")));
        }
        Ok(match RecordBatch::decode(&self.source.get(self.position, bytes)?) {
            Ok(Some((batch, _))) => Ok(batch),
            Ok(None) => Err("the file ends inside a record batch".to_owned()),
            Err(damage) => Err(damage.to_string()),
        })
    }

    /// Hands over what is wrong.
    pub(super) fn finish(self, damages: &mut Damages) {
        self.found.hand_to(damages);
    }
}

impl Iterator for RecordsWalk {
    type Item = BatchView;

    fn next(&mut self) -> Option<BatchView> {
        if self.position >= self.source.bytes() {
            return None;
        }
        let position = self.position;
        let step = self.step();
        // Behind damage nothing tells where the next batch would begin.
        self.position = self.source.bytes();
        match step {
            Ok(Ok(batch)) => {
                self.position = position + batch.bytes().len() as u64;
                Some(BatchView { position, batch: EntryView::from(&batch) })
            }
            Ok(Err(text)) => {
                self.found.add(Damage { path: self.path.clone(), position: Some(position), sequence: None, text });
                None
            }
            Err(error) => {
                self.found.add_unreadable(&self.path, format!("cannot be read: {error}"));
                None
            }
        }
    }
}
