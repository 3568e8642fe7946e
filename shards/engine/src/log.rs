//! A partition's log in memory, on the core that owns it: batches, marks, retention and the live window.

use std::collections::VecDeque;

use ringmain_model::limit::{LIVE_WINDOW_BYTES_PER_SHARD, LIVE_WINDOW_BYTES_PER_TOPIC};
use ringmain_model::{
    CoreId, DurableOffset, HighWaterMark, LogEnd, LogStart, Message, Offset, PartitionRef, Retention,
};
use ringmain_wal::{BatchBuilder, BatchSpace, Entry, RecordBatch};

use crate::command::{Interest, Origin};

/// A publish that was admitted and waits for its batch to be durable. One that was answered before waits for nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) origin: Origin,
    pub(crate) offset: Offset,
    pub(crate) time_us: i64,
}

/// One partition: its records, and who wants the new ones.
///
/// `log start <= high-water mark <= durable offset <= log end` holds after every call.
#[derive(Debug)]
pub(crate) struct PartitionLog {
    partition: PartitionRef,
    batches: VecDeque<RecordBatch>,
    open: Option<BatchBuilder>,
    waiting: Vec<Waiting>,
    /// Bytes that the shard's log reserved for the open batch.
    reserved: usize,
    /// Closed batches that are not durable yet, with the publishes that wait for them.
    unsynced: VecDeque<(RecordBatch, Vec<Waiting>)>,
    /// The records live in the shard's log and not in memory alone.
    is_logged: bool,
    log_start: LogStart,
    high_water: HighWaterMark,
    durable: DurableOffset,
    log_end: LogEnd,
    /// Bytes of all closed batches, the live window included.
    closed_bytes: u64,
    /// Bytes of the batches that may be let go of: what lies wholly below the log start, or is in topic segments.
    window_bytes: u64,
    /// Cores that want batches, and their subscribers; short, so a list.
    interest: Vec<(CoreId, u32)>,
}

/// Bytes of one shard's logs in memory, kept beside them because its bounds are the shard's.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ShardBytes {
    /// What memory topics keep. A turn may admit beyond the bound what its open batches hold: the lanes bound that.
    pub(crate) memory: u64,
    /// What logged topics keep in memory because no topic segment has it; the log's size bounds it.
    pub(crate) tails: u64,
    /// Batches that may be let go of, of all topics.
    pub(crate) windows: u64,
}

impl ShardBytes {
    fn kept_by(&mut self, is_logged: bool) -> &mut u64 {
        if is_logged { &mut self.tails } else { &mut self.memory }
    }
}

impl PartitionLog {
    pub(crate) fn new(partition: PartitionRef, is_logged: bool) -> Self {
        Self {
            partition,
            reserved: 0,
            unsynced: VecDeque::new(),
            is_logged,
            batches: VecDeque::new(),
            open: None,
            waiting: Vec::new(),
            log_start: LogStart::default(),
            high_water: HighWaterMark::default(),
            durable: DurableOffset::default(),
            log_end: LogEnd::default(),
            closed_bytes: 0,
            window_bytes: 0,
            interest: Vec::new(),
        }
    }

    pub(crate) fn log_start(&self) -> LogStart {
        self.log_start
    }

    pub(crate) fn high_water(&self) -> HighWaterMark {
        self.high_water
    }

    pub(crate) fn log_end(&self) -> LogEnd {
        self.log_end
    }

    /// Bytes of the records that retention keeps.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.closed_bytes - self.window_bytes
    }

    pub(crate) fn interest(&self) -> &[(CoreId, u32)] {
        &self.interest
    }

    pub(crate) fn subscribers(&self) -> u64 {
        self.interest.iter().map(|(_, subscribers)| u64::from(*subscribers)).sum()
    }

    /// Whether admitted messages wait for their batch to close.
    pub(crate) fn is_dirty(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the open batch must close before it takes `message`.
    pub(crate) fn is_full_for(&self, message: &Message) -> bool {
        self.open.as_ref().is_some_and(|open| open.space_for(message) == BatchSpace::Full)
    }

    /// Bytes to reserve in the shard's log for one more message.
    pub(crate) fn bytes_to_reserve(&self, message: &Message) -> usize {
        Entry::bytes_to_reserve(message, self.open.is_none())
    }

    /// Gives an admitted message its offset. `origin` is who waits for it to be durable.
    pub(crate) fn append(&mut self, message: &Message, time_us: i64, origin: Option<Origin>) -> Offset {
        let bytes_hint = self.batches.back().map_or(0, |last| last.bytes().len() + last.bytes().len() / 16);
        let open =
            self.open.get_or_insert_with(|| BatchBuilder::new(self.partition, self.log_end.offset(), bytes_hint));
        let offset = open.push(message, time_us);
        self.log_end.advance(open.end());
        self.waiting.extend(origin.map(|origin| Waiting { origin, offset, time_us }));
        offset
    }

    /// Notes that the shard's log has room for `bytes` more of the open batch.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.reserved += bytes;
    }

    /// Closes the open batch: it waits to be durable from now on. Gives it with the bytes that were reserved for it.
    pub(crate) fn close_batch(&mut self) -> Option<(RecordBatch, usize)> {
        let batch = self.open.take()?.finish()?;
        self.unsynced.push_back((batch.clone(), std::mem::take(&mut self.waiting)));
        Some((batch, std::mem::take(&mut self.reserved)))
    }

    /// The oldest closed batch is durable, and so visible: gives it with the publishes that waited for it. In memory topics that is
    /// so as soon as it is closed.
    pub(crate) fn batch_durable(&mut self, shard: &mut ShardBytes) -> Option<(RecordBatch, Vec<Waiting>)> {
        let (batch, waiting) = self.unsynced.pop_front()?;
        self.keep(batch.clone(), shard);
        // Each mark checks its order.
        self.durable.advance(batch.end());
        self.high_water.advance(self.durable.offset());
        Some((batch, waiting))
    }

    fn keep(&mut self, batch: RecordBatch, shard: &mut ShardBytes) {
        let bytes = byte_count(&batch);
        self.closed_bytes += bytes;
        *shard.kept_by(self.is_logged) += bytes;
        self.batches.push_back(batch);
    }

    /// What only the shard's log has of the records: the partition, from which offset, up to which.
    pub(crate) fn tail(&self) -> Option<(PartitionRef, Offset, Offset)> {
        let from = self.log_start.offset();
        let end = self.high_water.offset();
        (from < end).then_some((self.partition, from, end))
    }

    /// The visible batch that holds `offset`, or the first one after it.
    pub(crate) fn first_batch_from(&self, offset: Offset) -> Option<&RecordBatch> {
        self.batches.get(self.batches.partition_point(|batch| batch.end() <= offset))
    }

    /// The log as it was stored: what is kept of it, in order, and its end.
    pub(crate) fn restore(
        &mut self,
        log_start: Offset,
        log_end: Offset,
        batches: impl Iterator<Item = RecordBatch>,
        shard: &mut ShardBytes,
    ) {
        self.log_start.advance(log_start);
        self.log_end.advance(log_end);
        self.durable.advance(log_end);
        self.high_water.advance(log_end);
        for batch in batches {
            self.keep(batch, shard);
        }
    }

    /// Nothing that is not durable ever will be: gives the publishes that waited.
    pub(crate) fn give_up_unsynced(&mut self) -> Vec<Waiting> {
        self.open = None;
        self.reserved = 0;
        let closed = self.unsynced.drain(..).flat_map(|(_, waiting)| waiting);
        closed.chain(self.waiting.drain(..)).collect()
    }

    /// Moves the log start as far as retention demands, and lets go of what no reader may ask for any more.
    pub(crate) fn retain(&mut self, retention: &Retention, shard: &mut ShardBytes) {
        let end = self.high_water.offset();
        let by_count = Offset(end.0.saturating_sub(retention.max_messages));
        if by_count > self.log_start.offset() {
            self.move_start(by_count, shard);
        }
        while self.kept_bytes() > retention.max_bytes {
            let first = self.batches.partition_point(|batch| batch.end() <= self.log_start.offset());
            match self.batches.get(first + 1) {
                Some(second) => self.move_start(second.base(), shard),
                None => break,
            }
        }
        self.trim_window(shard);
    }

    fn move_start(&mut self, start: Offset, shard: &mut ShardBytes) {
        let passed = self.batches.partition_point(|batch| batch.end() <= self.log_start.offset());
        self.log_start.advance(start);
        let below = self.batches.range(passed..).take_while(|batch| batch.end() <= start);
        let bytes: u64 = below.map(byte_count).sum();
        self.window_bytes += bytes;
        shard.windows += bytes;
        *shard.kept_by(self.is_logged) -= bytes;
    }

    fn trim_window(&mut self, shard: &mut ShardBytes) {
        let followed = !self.interest.is_empty();
        while let Some(first) = self.batches.front() {
            let within =
                self.window_bytes <= LIVE_WINDOW_BYTES_PER_TOPIC && shard.windows <= LIVE_WINDOW_BYTES_PER_SHARD;
            if first.end() > self.log_start.offset() || (followed && within) {
                break;
            }
            let bytes = byte_count(first);
            self.window_bytes -= bytes;
            self.closed_bytes -= bytes;
            shard.windows -= bytes;
            self.batches.pop_front();
        }
        // A log that shrank gives its table back, so that 100 000 once busy topics do not add up.
        if self.batches.capacity() > 64 && self.batches.len() * 4 < self.batches.capacity() {
            self.batches.shrink_to(self.batches.len() * 2);
        }
    }

    /// Takes all bytes of this log out of the shard's sums; for a log that is thrown away.
    pub(crate) fn forget(&self, shard: &mut ShardBytes) {
        *shard.kept_by(self.is_logged) -= self.kept_bytes();
        shard.windows -= self.window_bytes;
    }

    /// Notes what a core wants.
    pub(crate) fn set_interest(&mut self, core: CoreId, interest: Interest, shard: &mut ShardBytes) {
        self.interest.retain(|(other, _)| *other != core);
        if interest.wanted {
            self.interest.push((core, interest.subscribers));
        } else if self.interest.is_empty() {
            self.trim_window(shard);
        }
    }

    /// The first offset that a reader may read.
    pub(crate) fn readable_from(&self, following: bool) -> Offset {
        match self.batches.front() {
            Some(first) if following => first.base().min(self.log_start.offset()),
            _ => self.log_start.offset(),
        }
    }

    /// The visible batch that holds `offset`.
    pub(crate) fn batch_at(&self, offset: Offset) -> Option<&RecordBatch> {
        let at = self.batches.partition_point(|batch| batch.end() <= offset);
        self.batches.get(at).filter(|batch| batch.base() <= offset)
    }

    /// The first kept offset of a record taken at `time_us` or later; the high-water mark when there is none.
    pub(crate) fn offset_at_time(&self, time_us: i64) -> Offset {
        let start = self.log_start.offset();
        // Batches come in the order of their times, unless a clock went back; the one before may reach into that time.
        let after = self.batches.partition_point(|batch| batch.base_time_us() < time_us);
        let records = self.batches.range(after.saturating_sub(1)..).flat_map(|batch| batch.records_from(start));
        records
            .filter(|record| record.time_us >= time_us)
            .map(|record| record.offset)
            .next()
            .unwrap_or(self.high_water.offset())
    }

    /// Visible batches from `from` on, within the bounds, at least one when there is one.
    pub(crate) fn read(&self, from: Offset, bytes_max: usize, records_max: u64) -> Vec<RecordBatch> {
        let first = self.batches.partition_point(|batch| batch.end() <= from);
        let (mut bytes, mut batches) = (0, Vec::new());
        for batch in self.batches.range(first..) {
            bytes += batch.bytes().len();
            if !batches.is_empty() && bytes > bytes_max {
                break;
            }
            batches.push(batch.clone());
            if batch.end().since(from) >= records_max {
                break;
            }
        }
        batches
    }
}

fn byte_count(batch: &RecordBatch) -> u64 {
    batch.bytes().len() as u64
}
