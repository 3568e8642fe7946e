//! Walks a log segment from its header to its end, batch after batch; on the main thread.

use std::fmt;
use std::io;

use bytes::Bytes;
use ringmain_wal::{BLOCK_BYTES, CommitHeader, HeaderDamage, SegmentHeader, SegmentNumber};
use serde::Serialize;

use super::damage::{Damage, Damages};
use super::file::Manner;
use super::item::Item;
use super::name::Named;
use super::source::{PIECE_BYTES_MAX, Source};

/// A segment's header.
#[derive(Clone, Debug, Serialize)]
pub(super) struct HeaderView {
    segment: u64,
    shard: u16,
    epoch: String,
    segment_bytes: u64,
}

impl fmt::Display for HeaderView {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, shard, epoch, segment_bytes } = self;
        write!(to, "segment {segment} of shard {shard}, epoch {epoch}, made for {segment_bytes} bytes, checksum ok")
    }
}

/// Where the segment's part of the log ends.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EndView {
    position: u64,
    sequence_last: Option<u64>,
    batches: u64,
    reason: &'static str,
}

impl fmt::Display for EndView {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            "full" => "the segment is full",
            "zeros" => "zeros follow",
            "stale" => "bytes of an earlier life follow",
            "not_whole" => "a batch that is not whole follows",
            "newer" => "a newer program's batch follows",
            "unreadable" => "what follows cannot be read",
            _ => "bytes follow that are no batch",
        };
        match self.sequence_last {
            Some(last) => write!(to, "at {} after batch {last} ({} in all): {why}", self.position, self.batches),
            None => write!(to, "at {} without any batch: {why}", self.position),
        }
    }
}

/// Reads a segment's header and then one stretch after another.
#[derive(Debug)]
pub(super) struct SegmentWalk {
    source: Source,
    path: String,
    pub(super) header: Result<HeaderView, String>,
    /// The segment's number and the epoch of its batches, as far as they are known.
    number: Option<SegmentNumber>,
    epoch: Option<u64>,
    position: u64,
    end: u64,
    manner: Manner,
    waiting: Option<Item>,
    previous: Option<CommitHeader>,
    batches: u64,
    log_end: u64,
    /// What follows the last batch that is whole.
    reason: Option<&'static str>,
    /// The batch behind the last whole one that is not.
    not_whole: Option<(u64, u64, &'static str)>,
    found: Damages,
}

impl SegmentWalk {
    pub(super) fn open(mut source: Source, named: Named, path: &str, manner: Manner) -> io::Result<Self> {
        let block = source.get(0, BLOCK_BYTES)?;
        let decoded = SegmentHeader::decode(&block);
        let mut walk = Self {
            end: source.bytes(),
            source,
            path: path.to_owned(),
            header: Err("the segment's header is damaged".to_owned()),
            number: named.segment(),
            epoch: None,
            position: BLOCK_BYTES,
            manner,
            waiting: None,
            previous: None,
            batches: 0,
            log_end: BLOCK_BYTES,
            reason: None,
            not_whole: None,
            found: Damages::default(),
        };
        match decoded {
            Ok(header) => walk.begin(&header, named),
            Err(damage) => {
                walk.header = Err(damage.to_string());
                walk.damaged(Some(0), None, damage.to_string());
                // Nothing is known of what a newer program put behind its header.
                if matches!(damage, HeaderDamage::Newer(_)) {
                    (walk.position, walk.reason) = (walk.end, Some("newer"));
                }
            }
        }
        Ok(walk)
    }

    fn begin(&mut self, header: &SegmentHeader, named: Named) {
        if named.is_segment() && named.segment() != Some(header.number) {
            let text = format!("its header says that it is segment {}, which is not its name", header.number);
            self.damaged(Some(0), None, text);
        }
        if self.end < header.bytes {
            let text = format!("the file has {} bytes and should have {}: it is cut", self.end, header.bytes);
            self.damaged(Some(self.end), None, text);
        }
        self.end = self.end.min(header.bytes);
        (self.number, self.epoch) = (Some(header.number), Some(header.epoch));
        self.header = Ok(HeaderView {
            segment: header.number.0,
            shard: header.shard.0,
            epoch: format!("{:016x}", header.epoch),
            segment_bytes: header.bytes,
        });
    }

    /// Where the log ends and why; hands over what is wrong. To be called after the last item.
    pub(super) fn finish(mut self, damages: &mut Damages) -> EndView {
        if let Some((position, sequence, reason)) = self.not_whole.take().filter(|_| self.manner.is_alone) {
            let text = format!(
                "batch {sequence} is not whole ({reason}), and no whole one follows in this file: a start takes that for a torn end \
                 unless the log goes on in a later segment"
            );
            self.damaged(Some(position), Some(sequence), text);
        }
        self.found.hand_to(damages);
        EndView {
            position: self.log_end,
            sequence_last: self.previous.map(|header| header.sequence.0),
            batches: self.batches,
            reason: self.reason.unwrap_or("full"),
        }
    }

    fn damaged(&mut self, position: Option<u64>, sequence: Option<u64>, text: String) {
        self.found.add(Damage { path: self.path.clone(), position, sequence, text });
    }

    /// The stretch at the present position; moves behind it.
    fn step(&mut self) -> io::Result<Item> {
        let position = self.position;
        let left = self.end - position;
        let block = self.source.get(position, BLOCK_BYTES.min(left))?;
        if block.is_empty() {
            // The file shrank while it was read.
            self.position = self.end;
            return Ok(Item::Other { position, end: self.end });
        }
        let end = position + block.len() as u64;
        self.position = end;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(Item::Zeros { position, end });
        }
        let header = CommitHeader::read(&block);
        if let Some(header) = header {
            if self.number.is_none() && header.stands_at(header.segment, position) && self.whole(&header)?.is_some() {
                self.number = Some(header.segment);
            }
            if self.is_ours(&header) {
                return self.ours(&header, end);
            }
            if header.stands_at(header.segment, position) && self.number.is_some_and(|number| number != header.segment)
            {
                if self.whole(&header)?.is_some() {
                    self.position = (position + header.bytes_on_disk()).min(self.end);
                    let sequence = Some(header.sequence.0);
                    let end = self.position;
                    return Ok(Item::Stale {
                        position,
                        end,
                        batches: 1,
                        sequence_first: sequence,
                        sequence_last: sequence,
                    });
                }
                if !self.was_meant(&block) {
                    return Ok(Item::Stale { position, end, batches: 0, sequence_first: None, sequence_last: None });
                }
            }
        }
        let is_in_place = |header: CommitHeader| self.number.is_some_and(|number| header.stands_at(number, position));
        if self.was_meant(&block) || header.is_some_and(is_in_place) {
            let sequence = self.meant_sequence(number_at(&block, 16));
            let (bytes, reason) = (block.len() as u64, "its header is damaged");
            return Ok(Item::NotWhole { position, end, sequence, bytes, reason });
        }
        Ok(Item::Other { position, end })
    }

    fn is_ours(&self, header: &CommitHeader) -> bool {
        let is_of_epoch = self.epoch.is_none_or(|epoch| epoch == header.epoch);
        is_of_epoch && self.number.is_some_and(|number| header.stands_at(number, self.batch_position()))
    }

    /// Where the block that was read last begins.
    fn batch_position(&self) -> u64 {
        (self.position - 1) / BLOCK_BYTES * BLOCK_BYTES
    }

    /// The batch's bytes, if they are what was written.
    fn whole(&mut self, header: &CommitHeader) -> io::Result<Option<Bytes>> {
        let (position, length) = (self.batch_position(), u64::from(header.length));
        if length > self.end - position || length > PIECE_BYTES_MAX {
            return Ok(None);
        }
        let bytes = self.source.get(position, length)?;
        Ok(header.is_whole(&bytes).then_some(bytes))
    }

    fn ours(&mut self, header: &CommitHeader, block_end: u64) -> io::Result<Item> {
        let position = self.batch_position();
        let Some(bytes) = self.whole(header)? else {
            let is_long = u64::from(header.length) > self.end - position;
            let reason =
                if is_long { "it is longer than what is left of the file" } else { "its checksum does not match" };
            let (sequence, bytes) = (self.meant_sequence(header.sequence.0), u64::from(header.length));
            return Ok(Item::NotWhole { position, end: block_end, sequence, bytes, reason });
        };
        self.position = (position + header.bytes_on_disk()).min(self.end);
        if !header.is_of_known_version() {
            let (end, sequence, version) = (self.position, header.sequence.0, header.version);
            return Ok(Item::Newer { position, end, sequence, version });
        }
        let decoded = header.entries(&bytes);
        let follows = |previous: CommitHeader| {
            header.sequence == previous.sequence.next() && header.previous_checksum == previous.checksum
        };
        Ok(Item::Batch {
            position,
            bytes: u64::from(header.length),
            sequence: header.sequence.0,
            entry_count: header.count,
            checksum: header.checksum,
            checksum_ok: true,
            previous_checksum: header.previous_checksum,
            chain_ok: self.previous.replace(*header).map(follows),
            entries_ok: decoded.is_ok(),
            entries: decoded
                .ok()
                .filter(|_| self.manner.is_verbose)
                .map(|entries| entries.iter().map(Into::into).collect()),
        })
    }

    /// The sequence of a batch that is not whole: the one that is awaited, or the one that it tells where none is known.
    fn meant_sequence(&self, told: u64) -> u64 {
        let awaited = self.previous.filter(|_| self.not_whole.is_none()).map(|header| header.sequence.next().0);
        awaited.unwrap_or(told)
    }

    /// Whether a block that is no batch was meant to be the next one of this life: two of four numbers that a stale batch cannot
    /// have are right.
    fn was_meant(&self, block: &[u8]) -> bool {
        let previous = self.previous.as_ref();
        let agreeing = [
            previous.is_some_and(|previous| number_at(block, 16) == previous.sequence.next().0),
            self.epoch.is_some_and(|epoch| number_at(block, 24) == epoch),
            self.number.is_some_and(|number| number_at(block, 32) == number.0),
            previous.is_some_and(|previous| block.get(44..48) == Some(&previous.checksum.to_le_bytes())),
        ];
        agreeing.iter().filter(|agrees| **agrees).count() >= 2
    }

    /// Notes what an item means for the log. Only what comes after it tells whether a broken batch is an end or a hole.
    fn note(&mut self, item: &Item, before: Option<CommitHeader>) {
        let reason = match item {
            Item::Batch { position, sequence, chain_ok, entries_ok, .. } => {
                if let Some((at, lost, reason)) = self.not_whole.take() {
                    let text = format!(
                        "batch {lost} is not whole ({reason}), and batch {sequence} at {position} follows: batches in the middle are lost"
                    );
                    self.damaged(Some(at), Some(lost), text);
                } else if let Some(reason) = self.reason {
                    // All that stands before a batch of this life was of this life.
                    let lost = before.map_or(sequence.saturating_sub(1), |header| header.sequence.next().0);
                    let what = if reason == "zeros" { "zeros" } else { "bytes that are no batch of this life" };
                    let text = format!(
                        "{what} stand where batch {lost} should, and batch {sequence} at {position} follows: batches in the middle are lost"
                    );
                    self.damaged(Some(self.log_end), Some(lost), text);
                } else if *chain_ok == Some(false) {
                    let awaited = before.map_or(0, |header| header.sequence.next().0);
                    let text = format!(
                        "batch {sequence} does not follow the one before it, where batch {awaited} was awaited"
                    );
                    self.damaged(Some(*position), Some(*sequence), text);
                }
                if !entries_ok {
                    let text = format!("the entries of batch {sequence} cannot be read, though its checksum is right");
                    self.damaged(Some(*position), Some(*sequence), text);
                }
                (self.log_end, self.reason) = (self.position, None);
                self.batches += 1;
                return;
            }
            Item::NotWhole { position, sequence, reason, .. } => {
                self.not_whole.get_or_insert((*position, *sequence, *reason));
                "not_whole"
            }
            Item::Newer { position, sequence, version, .. } => {
                let text = format!("batch {sequence} has version {version}, which a newer program wrote");
                self.damaged(Some(*position), Some(*sequence), text);
                "newer"
            }
            Item::Stale { .. } => "stale",
            Item::Zeros { .. } => "zeros",
            Item::Other { .. } => "no_batch",
        };
        self.reason.get_or_insert(reason);
    }
}

impl Iterator for SegmentWalk {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        while self.position < self.end {
            let before = self.previous;
            match self.step() {
                Ok(item) => {
                    self.note(&item, before);
                    let absorbed = self.waiting.as_mut().is_some_and(|waiting| waiting.absorb(&item));
                    if !absorbed && let Some(ready) = self.waiting.replace(item) {
                        return Some(ready);
                    }
                }
                Err(error) => {
                    let text = format!("cannot be read from {} on: {error}", self.position);
                    self.found.add_unreadable(&self.path, text);
                    self.reason.get_or_insert("unreadable");
                    self.position = self.end;
                }
            }
        }
        self.waiting.take()
    }
}

/// The number of eight bytes at `at`; 0 when they are not there.
fn number_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |number| u64::from_le_bytes(*number))
}
