//! A partition's log in memory, on the core that owns it: batches, marks, retention and the live window.

pub(crate) mod stored;

use std::collections::VecDeque;

use ringmain_model::limit::{LIVE_WINDOW_BYTES_PER_SHARD, LIVE_WINDOW_BYTES_PER_TOPIC};
use ringmain_model::{
    CoreId, DurableOffset, HighWaterMark, LogEnd, LogStart, Message, Offset, PartitionRef, Retention,
};
use ringmain_wal::{BatchBuilder, BatchSpace, Entry, RecordBatch, TopicFile, TopicSegment};

use crate::ages::Ages;
use crate::command::{Interest, Origin, Reply};

/// A publish that was admitted and waits for its batch to be durable. One that was answered before waits for nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) origin: Origin,
    pub(crate) taken: Taken,
}

/// Where a publish got its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Its offset; of several the highest.
    pub(crate) offset: Offset,
    pub(crate) several: Option<Several>,
    pub(crate) time_us: i64,
}

/// Of several messages the lowest offset, how many they are, and how many of them had been stored before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Several {
    pub(crate) first: Offset,
    pub(crate) count: u64,
    pub(crate) repeated: u64,
}

impl Taken {
    /// What the publisher is told when its messages are visible.
    pub(crate) fn reply(&self) -> Reply {
        let Self { offset, time_us, .. } = *self;
        match self.several {
            None => Reply::Published { offset, time_us },
            Some(Several { first, count, repeated }) => {
                Reply::PublishedAll { first, last: offset, count, repeated, time_us }
            }
        }
    }
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
    /// Memory need not keep what lies below: it is below the log start, or in topic segments.
    boundary: Offset,
    /// When records came, if they are kept for a time only.
    pub(crate) ages: Option<Box<Ages>>,
    /// The log start that a start would find at least: the log or a checkpoint has it.
    pub(crate) logged_start: Offset,
    /// Topic segments, in order, without a gap.
    stored: VecDeque<TopicSegment>,
    /// Bytes of records in them.
    stored_bytes: u64,
    /// Files of segments that retention has passed.
    pub(crate) dropped: Vec<TopicFile>,
    /// Records that cannot be read, in order.
    lost: Vec<(Offset, Offset)>,
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
            boundary: Offset(0),
            ages: None,
            logged_start: Offset(0),
            stored: VecDeque::new(),
            stored_bytes: 0,
            dropped: Vec::new(),
            lost: Vec::new(),
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

    pub(crate) fn partition(&self) -> PartitionRef {
        self.partition
    }

    /// Bytes of the records that retention keeps.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.stored_bytes() + self.tail_bytes()
    }

    /// Bytes of the records that retention keeps and that memory must keep for it.
    pub(crate) fn tail_bytes(&self) -> u64 {
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

    /// Gives an admitted message its offset.
    pub(crate) fn append(&mut self, message: &Message, time_us: i64) -> Offset {
        let bytes_hint = self.batches.back().map_or(0, |last| last.bytes().len() + last.bytes().len() / 16);
        let open =
            self.open.get_or_insert_with(|| BatchBuilder::new(self.partition, self.log_end.offset(), bytes_hint));
        let offset = open.push(message, time_us);
        self.log_end.advance(open.end());
        offset
    }

    /// Has somebody wait for the message that has `waiting.taken.offset` to be durable. It is not yet.
    pub(crate) fn wait(&mut self, waiting: Waiting) {
        match self.unsynced.iter_mut().find(|(batch, _)| waiting.taken.offset < batch.end()) {
            Some((_, waiters)) => waiters.push(waiting),
            None => self.waiting.push(waiting),
        }
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

    /// The visible batch that holds `offset`, or the first one after it.
    pub(crate) fn first_batch_from(&self, offset: Offset) -> Option<&RecordBatch> {
        self.batches.get(self.batches.partition_point(|batch| batch.end() <= offset))
    }

    /// Nothing that is not durable ever will be: gives the publishes that waited.
    pub(crate) fn give_up_unsynced(&mut self) -> Vec<Waiting> {
        self.open = None;
        self.reserved = 0;
        let closed = self.unsynced.drain(..).flat_map(|(_, waiting)| waiting);
        closed.chain(self.waiting.drain(..)).collect()
    }

    /// Moves the log start as far as retention demands, and lets go of what no reader may ask for any more.
    pub(crate) fn retain(&mut self, retention: &Retention, age_ms: u64, segments_max: u64, shard: &mut ShardBytes) {
        let end = self.high_water.offset();
        let by_count = Offset(end.0.saturating_sub(retention.max_messages));
        let by_age = match (&self.ages, retention.max_age_ms) {
            (Some(ages), Some(max_age_ms)) => ages.start_at(age_ms, max_age_ms).min(end),
            _ => Offset(0),
        };
        let start = by_count.max(by_age);
        if start > self.log_start.offset() {
            self.move_start(start, shard);
        }
        if let Some(ages) = &mut self.ages {
            ages.forget_below(self.log_start.offset());
        }
        self.retain_segments(retention, segments_max, shard);
        while self.tail_bytes() > retention.max_bytes {
            let first = self.batches.partition_point(|batch| batch.end() <= self.boundary);
            match self.batches.get(first + 1) {
                Some(second) => self.move_start(second.base(), shard),
                None => break,
            }
        }
        self.drop_segments();
        self.trim_window(shard);
    }

    fn move_start(&mut self, start: Offset, shard: &mut ShardBytes) {
        self.log_start.advance(start);
        self.raise_boundary(shard);
    }

    /// Counts what memory need not keep any more.
    fn raise_boundary(&mut self, shard: &mut ShardBytes) {
        let boundary = self.log_start.offset().max(self.stored_end());
        let passed = self.batches.partition_point(|batch| batch.end() <= self.boundary);
        let below = self.batches.range(passed..).take_while(|batch| batch.end() <= boundary);
        let bytes: u64 = below.map(byte_count).sum();
        self.boundary = self.boundary.max(boundary);
        self.window_bytes += bytes;
        shard.windows += bytes;
        *shard.kept_by(self.is_logged) -= bytes;
    }

    fn trim_window(&mut self, shard: &mut ShardBytes) {
        let followed = !self.interest.is_empty();
        while let Some(first) = self.batches.front() {
            let within =
                self.window_bytes <= LIVE_WINDOW_BYTES_PER_TOPIC && shard.windows <= LIVE_WINDOW_BYTES_PER_SHARD;
            if first.end() > self.boundary || (followed && within) {
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
        *shard.kept_by(self.is_logged) -= self.tail_bytes();
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

    /// The same of what memory has.
    fn memory_offset_at_time(&self, time_us: i64) -> Offset {
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

    fn first_in_memory(&self) -> Option<&RecordBatch> {
        self.batches.front()
    }

    /// Whether everything visible from `from` on is in memory.
    pub(crate) fn is_in_memory(&self, from: Offset) -> bool {
        let end = self.high_water.offset();
        from >= end || self.batches.front().is_some_and(|first| first.base() <= from)
    }

    /// Visible batches in memory that hold `from` or come after it.
    pub(crate) fn visible_from(&self, from: Offset) -> impl Iterator<Item = &RecordBatch> {
        self.batches.range(self.batches.partition_point(|batch| batch.end() <= from)..)
    }

    /// The log as it was stored: its segments, what is kept of the rest, in order, and its end. What is missing between is lost.
    pub(crate) fn restore(
        &mut self,
        log_start: Offset,
        log_end: Offset,
        segments: Vec<TopicSegment>,
        batches: impl Iterator<Item = RecordBatch>,
        shard: &mut ShardBytes,
    ) {
        self.logged_start = log_start;
        self.log_start.advance(log_start);
        self.log_end.advance(log_end);
        self.durable.advance(log_end);
        self.high_water.advance(log_end);
        self.stored_bytes = segments.iter().map(|segment| segment.record_bytes).sum();
        self.stored = segments.into();
        self.boundary = log_start.max(self.stored_end());
        // Before damage was met, the records below were only in the log.
        let stored_base = self.stored.front().map_or(log_start, |first| first.base);
        self.lose(log_start, stored_base);
        let mut next = self.boundary;
        for batch in batches.filter(|batch| batch.end() > self.boundary).collect::<Vec<_>>() {
            self.lose(next, batch.base());
            next = batch.end();
            self.keep(batch, shard);
        }
        self.lose(next, log_end);
        self.drop_segments();
    }
}

/// The first of `batches` that reach `from`, within the bounds, at least one when there is one.
pub(crate) fn page<'b>(
    batches: impl Iterator<Item = &'b RecordBatch>,
    from: Offset,
    bytes_max: usize,
    records_max: u64,
) -> Vec<RecordBatch> {
    let (mut bytes, mut page): (usize, Vec<RecordBatch>) = (0, Vec::new());
    for batch in batches.filter(|batch| batch.end() > from) {
        bytes += batch.bytes().len();
        // A page has no gap inside: who reads on finds it.
        let has_gap = page.last().is_some_and(|last| last.end() != batch.base());
        if has_gap || (!page.is_empty() && bytes > bytes_max) {
            break;
        }
        page.push(batch.clone());
        if batch.end().since(from) >= records_max {
            break;
        }
    }
    page
}

fn byte_count(batch: &RecordBatch) -> u64 {
    batch.bytes().len() as u64
}
