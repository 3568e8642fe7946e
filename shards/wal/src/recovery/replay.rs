//! Follows the chain of batches, and looks behind damage for where it goes on. Part of the opener, on the opening core.

use bytes::Bytes;

use crate::commit::{self, COMMIT_HEADER_BYTES, CommitHeader, CommitPlace};
use crate::entry::EntryDamage;
use crate::position::{BLOCK_BYTES, SegmentNumber, Sequence};
use crate::recovery::tracker::Verdict;
use crate::recovery::window::Probe;
use crate::recovery::{Finding, Later, LogOpener, OpenOutput, OpenRefused, State};

impl LogOpener {
    pub(super) fn begin_replay(&mut self, out: &mut Vec<OpenOutput>) {
        let first = self.segments.iter().position(|segment| segment.number >= self.start.segment);
        let is_there = first.is_some_and(|index| self.segments[index].number == self.start.segment);
        // In a log that was never written, the first numbers may have been lost to a full disk.
        if !is_there && self.start.next > Sequence(1) {
            out.push(OpenOutput::Finding(Finding::SegmentMissing(self.start.segment)));
        }
        let position = if is_there { self.start.position } else { BLOCK_BYTES };
        if first.is_none() && self.is_empty_beside_remains() {
            return self.refuse(OpenRefused::NoCheckpoint, out);
        }
        self.state = first.map_or(State::Remove(0), |index| State::Follow { index, position });
    }

    /// The awaited batch is at the start of a later segment, at `position`, or lost, or was never written: in this order, because
    /// a later segment that chains was written by a start that knew better (case I).
    pub(super) fn follow(&mut self, index: usize, position: u64, out: &mut Vec<OpenOutput>) {
        if let Some(index) = self.later_claim(index) {
            self.state = State::Follow { index, position: BLOCK_BYTES };
            return;
        }
        match self.probe(index, position) {
            Probe::Need(bytes) => self.read(index, position, bytes, out),
            Probe::Newer => self.refuse(OpenRefused::Newer(self.segments[index].number), out),
            Probe::Batch(header, bytes) if self.is_awaited(&header) => {
                self.accept(index, position, &header, &bytes, out);
            }
            _ => {
                self.later = None;
                self.state = State::Search { index, position, origin: (index, position) };
            }
        }
    }

    fn is_awaited(&self, header: &CommitHeader) -> bool {
        header.sequence == self.awaited && header.previous_checksum == self.previous_checksum
    }

    fn later_claim(&self, index: usize) -> Option<usize> {
        let is_claim = |at: &usize| self.segments[*at].first.is_some_and(|first| self.is_awaited(&first));
        (index + 1..self.segments.len()).rev().find(is_claim)
    }

    fn accept(&mut self, index: usize, position: u64, header: &CommitHeader, bytes: &Bytes, out: &mut Vec<OpenOutput>) {
        let number = self.segments[index].number;
        match commit::entries(bytes, header.count) {
            Err(EntryDamage::Newer) => return self.refuse(OpenRefused::Newer(number), out),
            Err(EntryDamage::Malformed) => self.hole(header.sequence.next(), (index, position), index, out),
            Ok(entries) => {
                for entry in entries {
                    match self.tracker.admit(&entry) {
                        Verdict::Replay => out.push(OpenOutput::Entry { sequence: header.sequence, entry }),
                        Verdict::Withhold(finding) => {
                            self.held.insert(number);
                            out.extend(finding.map(OpenOutput::Finding));
                        }
                    }
                }
            }
        }
        self.awaited = header.sequence.next();
        self.previous_checksum = header.checksum;
        let position = position + header.bytes_on_disk();
        self.end = Some((index, position));
        self.state = State::Follow { index, position };
    }

    pub(super) fn search(&mut self, index: usize, position: u64, origin: (usize, u64), out: &mut Vec<OpenOutput>) {
        if index == self.segments.len() {
            self.log_ends(origin, out);
            return;
        }
        if position >= self.segments[index].bytes {
            self.state = State::Search { index: index + 1, position: BLOCK_BYTES, origin };
            return;
        }
        let mut step = BLOCK_BYTES;
        let probe = self.probe(index, position);
        if matches!(probe, Probe::NotWhole(_) | Probe::Nothing) {
            self.note_later(index, position, origin);
        }
        match probe {
            Probe::Need(bytes) => return self.read(index, position, bytes, out),
            Probe::Newer => return self.refuse(OpenRefused::Newer(self.segments[index].number), out),
            Probe::Batch(header, _) | Probe::NotWhole(header) if self.is_behind_lost_start(&header) => {
                return self.refuse(OpenRefused::NoCheckpoint, out);
            }
            Probe::Batch(header, _) if header.sequence >= self.awaited => {
                if !self.is_awaited(&header) {
                    self.hole(header.sequence, origin, index, out);
                }
                (self.awaited, self.previous_checksum) = (header.sequence, header.previous_checksum);
                // What looked like a torn tail on the way was the hole, or was cut by an earlier start.
                self.segments[origin.0..=index].iter_mut().for_each(|segment| segment.has_torn = false);
                self.state = State::Follow { index, position };
                return;
            }
            // Nothing of this segment's life can stand here with a sequence that is over: it is damage with a right checksum.
            Probe::Batch(header, _) => {
                self.segments[index].has_torn = true;
                step = header.bytes_on_disk();
            }
            Probe::NotWhole(_) => self.segments[index].has_torn = true,
            Probe::Nothing if self.was_meant(index, position) => self.segments[index].has_torn = true,
            Probe::Nothing => {}
        }
        self.state = State::Search { index, position: position + step, origin };
    }

    /// Whether the awaited batch was meant to stand where something else stands.
    fn was_meant(&self, index: usize, position: u64) -> bool {
        let segment = &self.segments[index];
        let bytes = BLOCK_BYTES.min(segment.bytes.saturating_sub(position));
        let place = CommitPlace {
            sequence: self.awaited,
            epoch: segment.epoch.unwrap_or(0),
            segment: segment.number,
            position,
            previous_checksum: self.previous_checksum,
        };
        self.window.get(index, position, bytes).is_some_and(|bytes| CommitHeader::was_meant(&bytes, &place))
    }

    /// Notes the last batch that was begun behind the awaited one. Of what a later start wrote in its place none has a larger sequence,
    /// unless that start found it whole.
    fn note_later(&mut self, index: usize, position: u64, origin: (usize, u64)) {
        let segment = &self.segments[index];
        // Without the segment's own word nothing tells a batch from a payload.
        let Some(epoch) = segment.epoch else { return };
        let place = CommitPlace {
            sequence: self.awaited,
            epoch,
            segment: segment.number,
            position,
            previous_checksum: self.previous_checksum,
        };
        let blocks = self.bytes_between(origin, (index, position)) / BLOCK_BYTES;
        let header = self.window.get(index, position, COMMIT_HEADER_BYTES as u64);
        let found = header.and_then(|header| CommitHeader::begun_later(&header, &place, blocks));
        if let Some(sequence) = found.filter(|found| self.later.is_none_or(|later| later.sequence < *found)) {
            self.later = Some(Later { sequence, index, position });
        }
    }

    fn bytes_between(&self, from: (usize, u64), to: (usize, u64)) -> u64 {
        let whole: u64 = self.segments[from.0..to.0].iter().map(|segment| segment.bytes).sum();
        (whole + to.1).saturating_sub(from.1)
    }

    fn hole(&mut self, to: Sequence, origin: (usize, u64), index: usize, out: &mut Vec<OpenOutput>) {
        let (first, position) = origin;
        let segment = self.segments[first].number;
        // Between the two, every number that is not there may be why.
        let mut number = segment;
        for found in &self.segments[first..=index] {
            if found.number > number.next() {
                out.push(OpenOutput::Finding(Finding::SegmentMissing(number.next())));
            }
            number = found.number;
            self.held.insert(number);
        }
        self.tracker.hole();
        out.push(OpenOutput::Finding(Finding::Hole { from: self.awaited, to, segment, position }));
    }

    /// What those files hold was in the log before.
    fn is_empty_beside_remains(&self) -> bool {
        !self.has_checkpoint && self.awaited == Sequence(1) && self.has_remains
    }

    /// Without a checkpoint nothing was ever released, so the whole log must be there. Its first segment is told by its number;
    /// should that number have been left out, by the first batch, which stands then in another one.
    fn is_behind_lost_start(&self, header: &CommitHeader) -> bool {
        let has_first = self.segments.first().is_some_and(|segment| segment.number == SegmentNumber(1));
        !self.has_checkpoint && self.awaited == Sequence(1) && header.sequence > Sequence(1) && !has_first
    }

    fn log_ends(&mut self, origin: (usize, u64), out: &mut Vec<OpenOutput>) {
        if self.is_empty_beside_remains() {
            return self.refuse(OpenRefused::NoCheckpoint, out);
        }
        if let Some(Later { sequence, index, position }) = self.later.take() {
            // Its write began when the awaited one was durable. Of itself nobody knows, but its number is taken.
            self.hole(sequence, origin, index, out);
            self.awaited = sequence;
            let segment = self.segments[index].number;
            out.push(OpenOutput::Finding(Finding::Cut { sequence, segment, position }));
            self.state = State::Remove(0);
            return;
        }
        let torn = self.segments[origin.0..].iter().find(|segment| segment.has_torn).map(|segment| segment.number);
        if let Some(segment) = torn {
            let is_origin = segment == self.segments[origin.0].number;
            let position = if is_origin { origin.1 } else { BLOCK_BYTES };
            out.push(OpenOutput::Finding(Finding::Cut { sequence: self.awaited, segment, position }));
        }
        self.state = State::Remove(0);
    }
}
