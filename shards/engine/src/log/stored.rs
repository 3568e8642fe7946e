//! The part of a partition's log that has moved to topic segments: finding, reading and dropping it. On the owner's core.

use ringmain_model::{Offset, PartitionRef, Retention};
use ringmain_wal::{Chunk, LogMarks, RecordBatch, TopicFile, TopicSegment};

use crate::loads::{Loads, Wanted};
use crate::log::{PartitionLog, ShardBytes};

/// What is known of the place of an offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lookup<T> {
    Found(T),
    /// It is on the disk, and this must be read first.
    Wanted(Wanted),
    /// It cannot be read: reading goes on at the end of this range.
    Lost(Offset, Offset),
    /// There is nothing: not yet, or not any more.
    Nothing,
}

impl PartitionLog {
    /// Offset after the last record in topic segments.
    pub(crate) fn stored_end(&self) -> Offset {
        self.stored.back().map_or(Offset(0), |segment| segment.end)
    }

    pub(crate) fn segments(&self) -> impl ExactSizeIterator<Item = &TopicSegment> {
        self.stored.iter()
    }

    pub(crate) fn has_segment(&self, base: Offset) -> bool {
        self.stored.binary_search_by_key(&base, |segment| segment.base).is_ok()
    }

    /// Bytes of records in topic segments.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Takes segments that are new or have grown, in order; memory needs their records no longer.
    pub(crate) fn add_segments(&mut self, segments: Vec<TopicSegment>, shard: &mut ShardBytes) {
        for segment in segments {
            self.stored_bytes += segment.record_bytes;
            match self.stored.back_mut() {
                Some(last) if last.base == segment.base => {
                    self.stored_bytes -= last.record_bytes;
                    *last = segment;
                }
                _ => self.stored.push_back(segment),
            }
        }
        self.raise_boundary(shard);
        self.trim_window(shard);
    }

    /// Moves the log start past whole segments, as far as retention demands.
    pub(super) fn retain_segments(&mut self, retention: &Retention, segments_max: u64, shard: &mut ShardBytes) {
        debug_assert_eq!(self.stored_bytes, self.stored.iter().map(|segment| segment.record_bytes).sum());
        let mut bytes = self.stored_bytes() + self.tail_bytes();
        let mut left = self.stored.len() as u64;
        let mut start = self.log_start().offset();
        for segment in &self.stored {
            if bytes <= retention.max_bytes && left <= segments_max {
                break;
            }
            (bytes, left) = (bytes - segment.record_bytes, left - 1);
            start = start.max(segment.end);
        }
        if start > self.log_start().offset() {
            self.move_start(start, shard);
        }
    }

    /// Forgets the segments that lie wholly below the log start.
    pub(super) fn drop_segments(&mut self) {
        let start = self.log_start().offset();
        while let Some(first) = self.stored.front()
            && first.end <= start
        {
            self.dropped.push(TopicFile { partition: self.partition(), base: first.base });
            self.stored_bytes -= first.record_bytes;
            self.stored.pop_front();
        }
        self.lost.retain(|(_, end)| *end > start);
    }

    /// Files that nothing here needs any more.
    pub(crate) fn take_dropped(&mut self) -> Vec<TopicFile> {
        std::mem::take(&mut self.dropped)
    }

    /// All files of the log, when it ends.
    pub(crate) fn take_files(&mut self) -> Vec<TopicFile> {
        let partition = self.partition();
        self.stored_bytes = 0;
        let stored = self.stored.drain(..).map(|segment| TopicFile { partition, base: segment.base });
        self.dropped.drain(..).chain(stored).collect()
    }

    /// Notes records that cannot be read.
    pub(crate) fn lose(&mut self, from: Offset, end: Offset) {
        if from < end {
            let at = self.lost.partition_point(|(other, _)| *other < from);
            self.lost.insert(at, (from, end));
        }
    }

    pub(crate) fn lost_ranges(&self) -> impl Iterator<Item = (Offset, Offset)> {
        self.lost.iter().copied()
    }

    /// The range of unreadable records that holds `offset`.
    pub(crate) fn lost_at(&self, offset: Offset) -> Option<(Offset, Offset)> {
        self.lost.iter().copied().find(|(from, end)| *from <= offset && offset < *end)
    }

    /// The batch that holds `offset`, from memory or from what was read.
    pub(crate) fn lookup(&self, offset: Offset, loads: Option<&mut Loads>) -> Lookup<RecordBatch> {
        if let Some(batch) = self.batch_at(offset) {
            return Lookup::Found(batch.clone());
        }
        if let Some((from, end)) = self.lost_at(offset) {
            return Lookup::Lost(from, end);
        }
        let Some(loads) = loads else { return Lookup::Nothing };
        match self.chunk_at(offset, loads) {
            Lookup::Found(batches) => {
                let at = batches.partition_point(|batch| batch.end() <= offset);
                batches.get(at).map_or(Lookup::Nothing, |batch| Lookup::Found(batch.clone()))
            }
            Lookup::Wanted(wanted) => Lookup::Wanted(wanted),
            Lookup::Lost(from, end) => Lookup::Lost(from, end),
            Lookup::Nothing => Lookup::Nothing,
        }
    }

    /// The batches of the chunk that holds `offset`.
    pub(crate) fn chunk_at<'l>(&self, offset: Offset, loads: &'l mut Loads) -> Lookup<&'l [RecordBatch]> {
        let at = self.stored.partition_point(|segment| segment.end <= offset);
        let Some(segment) = self.stored.get(at).filter(|segment| segment.base <= offset) else {
            return Lookup::Nothing;
        };
        let found = self.chunks_of(segment, loads, |chunks| {
            let at = chunks.partition_point(|chunk| chunk.end <= offset);
            chunks.get(at).filter(|chunk| chunk.base <= offset).copied()
        });
        let chunk = match found {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Lookup::Lost(offset, segment.end),
            Err(wanted) => return Lookup::Wanted(wanted),
        };
        let file = TopicFile { partition: self.partition(), base: segment.base };
        match loads.chunk(file, &chunk) {
            Ok(batches) => Lookup::Found(batches),
            Err(wanted) => Lookup::Wanted(wanted),
        }
    }

    /// Finds a chunk in a segment's list, which a sealed segment has in its index.
    fn chunks_of<T>(
        &self,
        segment: &TopicSegment,
        loads: &mut Loads,
        find: impl FnOnce(&[Chunk]) -> T,
    ) -> Result<T, Wanted> {
        if !segment.is_sealed() {
            return Ok(find(&segment.chunks));
        }
        loads.index(self.partition(), segment).map(find)
    }

    /// The first kept offset of a record taken at `time_us` or later; the high-water mark when there is none.
    pub(crate) fn offset_at_time(&self, time_us: i64, loads: Option<&mut Loads>) -> Lookup<Offset> {
        let in_memory = self.first_in_memory();
        let is_later = in_memory.is_some_and(|batch| batch.base_time_us() < time_us);
        let Some(loads) = loads.filter(|_| !is_later && !self.stored.is_empty()) else {
            return Lookup::Found(self.memory_offset_at_time(time_us));
        };
        // Times rise with the offsets, unless a clock went back: the last that begins before that time may reach into it. All
        // messages of a turn have one time, so that several may begin at it.
        let at = self.stored.partition_point(|segment| segment.first_time_us < time_us).saturating_sub(1);
        let Some(segment) = self.stored.get(at) else { return Lookup::Nothing };
        let found = self.chunks_of(segment, loads, |chunks| {
            chunks.get(chunks.partition_point(|chunk| chunk.first_time_us < time_us).saturating_sub(1)).copied()
        });
        let chunk = match found {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Lookup::Found(segment.end),
            Err(wanted) => return Lookup::Wanted(wanted),
        };
        if let Some((_, end)) = self.lost_at(chunk.base) {
            return Lookup::Found(end);
        }
        let start = self.log_start().offset();
        match loads.chunk(TopicFile { partition: self.partition(), base: segment.base }, &chunk) {
            Err(wanted) => Lookup::Wanted(wanted),
            Ok(batches) => {
                let mut records = batches.iter().flat_map(|batch| batch.records_from(start));
                let first = records.find(|record| record.time_us >= time_us).map(|record| record.offset);
                Lookup::Found(first.unwrap_or(chunk.end).max(start))
            }
        }
    }

    /// Where the log starts and ends, if a start would find an earlier start than that.
    pub(crate) fn marks_to_log(&self) -> Option<LogMarks> {
        let (log_start, log_end) = (self.log_start().offset(), self.high_water().offset());
        (log_start > self.logged_start).then(|| LogMarks { partition: self.partition(), log_start, log_end })
    }

    /// What a checkpoint is to do with the records that only the shard's log has: the partition, from which offset, up to
    /// which, and how many bytes.
    pub(crate) fn tail(&self) -> Option<(PartitionRef, Offset, Offset, u64)> {
        let from = self.log_start().offset().max(self.stored_end());
        let end = self.high_water().offset();
        (from < end).then(|| (self.partition(), from, end, self.tail_bytes()))
    }

    /// The first records of the tail that lie below `end`, in order, in at most so many batches; some may be lost.
    pub(crate) fn batches_to_store(&self, end: Offset, batches_max: usize) -> Vec<RecordBatch> {
        let from = self.log_start().offset().max(self.stored_end());
        self.visible_from(from).take_while(|batch| batch.base() < end).take(batches_max).cloned().collect()
    }

    /// Lets no more records into a segment whose file is gone or cannot be written to; gives the offsets that it has.
    pub(crate) fn give_up_segment(&mut self, base: Offset) -> Option<(Offset, Offset)> {
        let at = self.stored.binary_search_by_key(&base, |segment| segment.base).ok()?;
        let segment = self.stored.get_mut(at)?;
        segment.give_up();
        Some((segment.base, segment.end))
    }
}
