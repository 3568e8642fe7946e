//! Reads of topic segments: what was read, what is being read, and who waits for it. On the core that owns the shard.

use std::collections::VecDeque;

use hashbrown::HashMap;
use ringmain_model::limit::{LOAD_RETRY_MS, LOAD_WAITERS_MAX, LOADS_MAX, READ_CACHE_BYTES, READ_INDEXES_BYTES};
use ringmain_model::{GroupName, Offset, PartitionRef, Refusal, RefusalKind};
use ringmain_wal::{
    Chunk, ChunkScan, ChunkScanOutput, Completion, Effect as FileEffect, Failure, FileName, OperationId, RecordBatch,
    TopicFile, TopicSegment, decode_chunk, decode_index,
};

use crate::cache::Cache;
use crate::command::{Command, Effect, Now, Origin, Reply, StorageNews};
use crate::shard::Shard;
use crate::shard_log::Machine;

/// What the system answers when there is no such file.
pub(crate) const NOT_THERE: Failure = Failure::System(2);

/// Something to be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    Chunk(TopicFile, Chunk),
    Index(TopicFile, TopicSegment),
}

/// What identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    pub(crate) file: TopicFile,
    position: u64,
}

impl Wanted {
    fn place(&self) -> Place {
        match self {
            Self::Chunk(file, chunk) => Place { file: *file, position: chunk.position },
            Self::Index(file, segment) => Place { file: *file, position: segment.file_bytes },
        }
    }
}

/// Who goes on when something was read.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A command, which is taken again from its beginning.
    Command(Origin, Command),
    Group(PartitionRef, GroupName),
}

#[derive(Debug)]
struct Load {
    wanted: Wanted,
    waiters: Vec<Waiter>,
    /// The index is damaged and being made again.
    scan: Option<ChunkScan>,
}

/// Reads of one shard.
#[derive(Debug)]
pub(crate) struct Loads {
    loads: HashMap<Place, Load>,
    /// Not begun yet: as many as may are running.
    queue: VecDeque<Place>,
    running: usize,
    waiters: usize,
    chunks: Cache<Place, Vec<RecordBatch>>,
    indexes: Cache<TopicFile, Vec<Chunk>>,
}

impl Loads {
    pub(crate) fn new() -> Self {
        Self {
            loads: HashMap::new(),
            queue: VecDeque::new(),
            running: 0,
            waiters: 0,
            chunks: Cache::new(READ_CACHE_BYTES),
            indexes: Cache::new(READ_INDEXES_BYTES),
        }
    }

    /// A chunk's batches, or what is to be read first.
    pub(crate) fn chunk(&mut self, file: TopicFile, chunk: &Chunk) -> Result<&[RecordBatch], Wanted> {
        let wanted = || Wanted::Chunk(file, *chunk);
        self.chunks.get(&Place { file, position: chunk.position }).map(Vec::as_slice).ok_or_else(wanted)
    }

    /// A sealed segment's chunks, or what is to be read first.
    pub(crate) fn index(&mut self, partition: PartitionRef, segment: &TopicSegment) -> Result<&[Chunk], Wanted> {
        let file = TopicFile { partition, base: segment.base };
        let wanted = || Wanted::Index(file, segment.clone());
        self.indexes.get(&file).map(Vec::as_slice).ok_or_else(wanted)
    }

    /// Has somebody wait for a read, which is to begin unless it has begun.
    fn add(&mut self, wanted: Wanted, waiter: Waiter) {
        self.waiters += 1;
        let place = wanted.place();
        if let Some(load) = self.loads.get_mut(&place) {
            load.waiters.push(waiter);
        } else {
            self.loads.insert(place, Load { wanted, waiters: vec![waiter], scan: None });
            self.queue.push_back(place);
        }
    }

    /// The next read to begin, if one may.
    fn next(&mut self) -> Option<(Place, FileEffect)> {
        if self.running >= LOADS_MAX {
            return None;
        }
        let place = self.queue.pop_front()?;
        self.running += 1;
        let file = FileName::Topic(place.file);
        let bytes = match &self.loads.get(&place)?.wanted {
            Wanted::Chunk(_, chunk) => chunk.read_bytes(),
            Wanted::Index(_, segment) => segment.index_read_bytes(),
        };
        Some((place, FileEffect::Read { file, position: place.position, bytes }))
    }

    /// Lets go of what the turn had to keep.
    pub(crate) fn trim(&mut self) {
        self.chunks.trim();
        self.indexes.trim();
    }

    /// Forgets what belongs to a file that goes, or has changed.
    pub(crate) fn forget(&mut self, file: TopicFile) {
        self.chunks.retain(|place| place.file != file);
        self.indexes.remove(&file);
    }
}

impl Shard {
    /// Has a command wait for a read.
    pub(crate) fn wait_for_load(
        &mut self,
        wanted: Wanted,
        origin: Origin,
        command: Command,
        effects: &mut Vec<Effect>,
    ) {
        let Some(log) = &mut self.log else { return };
        if log.loads.waiters >= LOAD_WAITERS_MAX {
            let refusal = Refusal::busy("as many reads of the disk wait as may");
            effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) });
            return;
        }
        log.loads.add(wanted, Waiter::Command(origin, command));
        self.begin_loads(effects);
    }

    /// Has a group wait for a read. Groups are bounded, and each waits for one read at most.
    pub(crate) fn group_waits_for_load(
        &mut self,
        wanted: Wanted,
        partition: PartitionRef,
        name: GroupName,
        effects: &mut Vec<Effect>,
    ) {
        let Some(log) = &mut self.log else { return };
        log.loads.add(wanted, Waiter::Group(partition, name));
        self.begin_loads(effects);
    }

    fn begin_loads(&mut self, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        while let Some((place, effect)) = log.loads.next() {
            log.operate(Machine::Load(place), effect, effects);
        }
    }

    /// A read has ended.
    pub(crate) fn loaded(&mut self, now: Now, place: Place, completion: &Completion, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        let Some(load) = log.loads.loads.get_mut(&place) else { return };
        let partition = place.file.partition;
        match (&load.wanted, completion) {
            (Wanted::Chunk(file, chunk), Completion::Read(bytes)) => {
                log.stats.read_bytes += bytes.len() as u64;
                match decode_chunk(partition, chunk, bytes) {
                    Ok(batches) => log.loads.chunks.insert(place, batches, bytes.len()),
                    Err(damage) => {
                        let (file, chunk, why) = (*file, *chunk, damage.to_string());
                        self.lose(file, chunk.base, chunk.end, why, effects);
                    }
                }
            }
            (Wanted::Index(file, segment), Completion::Read(bytes)) => {
                log.stats.read_bytes += bytes.len() as u64;
                match decode_index(partition, segment, bytes) {
                    Ok(chunks) => {
                        let bytes = size_of::<Chunk>() * chunks.len();
                        log.loads.indexes.insert(*file, chunks, bytes);
                    }
                    Err(damage) => {
                        let why = damage.to_string();
                        effects.push(Effect::StorageNews(StorageNews::IndexDamaged { file: *file, why }));
                        let mut scan = ChunkScan::new(partition, segment, segment.bytes_on_disk());
                        let mut outputs = Vec::new();
                        scan.start(&mut outputs);
                        load.scan = Some(scan);
                        return self.take_scan(now, place, outputs, effects);
                    }
                }
            }
            (_, Completion::Failed(failure)) if *failure != NOT_THERE => {
                // That is no damage: descriptors or memory may have run out, and nothing is given up for that.
                return self.load_failed(now, place, *failure, effects);
            }
            (wanted, completion) => {
                let why = match completion {
                    Completion::Failed(failure) => failure.to_string(),
                    _ => "the read gave nothing".to_owned(),
                };
                let (file, from, end) = match wanted {
                    Wanted::Chunk(file, chunk) => (*file, chunk.base, chunk.end),
                    Wanted::Index(file, segment) => (*file, segment.base, segment.end),
                };
                self.lose(file, from, end, why, effects);
            }
        }
        self.load_ended(now, place, effects);
    }

    /// A step of the scan that makes an index again has ended.
    pub(crate) fn scanned(
        &mut self,
        now: Now,
        place: Place,
        operation: OperationId,
        completion: &Completion,
        effects: &mut Vec<Effect>,
    ) {
        let Some(log) = &mut self.log else { return };
        let Some(scan) = log.loads.loads.get_mut(&place).and_then(|load| load.scan.as_mut()) else { return };
        let mut outputs = Vec::new();
        scan.completed(operation, completion, &mut outputs);
        self.take_scan(now, place, outputs, effects);
    }

    fn take_scan(&mut self, now: Now, place: Place, outputs: Vec<ChunkScanOutput>, effects: &mut Vec<Effect>) {
        for output in outputs {
            let Some(log) = &mut self.log else { return };
            match output {
                ChunkScanOutput::Do { operation, effect } => {
                    log.operate(Machine::Scan(place, operation), effect, effects);
                }
                ChunkScanOutput::Done { chunks, lost } => {
                    let bytes = size_of::<Chunk>() * chunks.len();
                    log.loads.indexes.insert(place.file, chunks, bytes);
                    for (from, end) in lost {
                        self.lose(place.file, from, end, "no chunk holds them".to_owned(), effects);
                    }
                    self.load_ended(now, place, effects);
                }
                ChunkScanOutput::Failed(failure) if failure != NOT_THERE => {
                    self.load_failed(now, place, failure, effects);
                }
                ChunkScanOutput::Newer(_) | ChunkScanOutput::Failed(_) => {
                    let wanted = log.loads.loads.get(&place).map(|load| load.wanted.clone());
                    if let Some(Wanted::Index(file, segment)) = wanted {
                        self.lose(file, segment.base, segment.end, "it cannot be read".to_owned(), effects);
                    }
                    self.load_ended(now, place, effects);
                }
            }
        }
    }

    /// Records cannot be read: readers are told of a gap, groups count them as lost.
    pub(crate) fn lose(&mut self, file: TopicFile, from: Offset, end: Offset, why: String, effects: &mut Vec<Effect>) {
        if let Some(topic) = self.partitions.get_mut(&file.partition) {
            if end <= topic.log.log_start().offset() {
                // Retention has passed it: the file may be gone already.
                return;
            }
            topic.log.lose(from, end);
            let topic = topic.name.clone();
            effects.push(Effect::StorageNews(StorageNews::Unreadable { topic, file, from, end, why }));
        }
    }

    /// The disk would not: readers are refused, groups try again later.
    fn load_failed(&mut self, now: Now, place: Place, failure: Failure, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        let Some(load) = log.loads.loads.remove(&place) else { return };
        log.loads.running -= 1;
        log.loads.waiters -= load.waiters.len();
        effects.push(Effect::StorageNews(StorageNews::ReadFailed { file: place.file, failure }));
        for waiter in load.waiters {
            match waiter {
                Waiter::Command(to, _) => {
                    effects.push(Effect::Reply { to, reply: Reply::Refused(unreadable_now(failure)) });
                }
                Waiter::Group(partition, name) => {
                    let due_ms = now.monotonic_ms + LOAD_RETRY_MS;
                    let topic = self.partitions.get_mut(&partition);
                    let Some(group) = topic.and_then(|topic| topic.groups.get_mut(&name)) else { continue };
                    group.is_loading = false;
                    if group.scheduled_ms.is_none_or(|scheduled_ms| due_ms < scheduled_ms) {
                        if let Some(before_ms) = group.scheduled_ms.replace(due_ms) {
                            self.due_groups.remove(&(before_ms, partition, name.clone()));
                        }
                        self.due_groups.insert((due_ms, partition, name));
                    }
                }
            }
        }
        self.begin_loads(effects);
    }

    fn load_ended(&mut self, now: Now, place: Place, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        let Some(load) = log.loads.loads.remove(&place) else { return };
        log.loads.running -= 1;
        log.loads.waiters -= load.waiters.len();
        for waiter in load.waiters {
            match waiter {
                Waiter::Command(origin, command) => self.asked(now, origin, command, effects),
                Waiter::Group(partition, name) => {
                    let topic = self.partitions.get_mut(&partition);
                    if let Some(group) = topic.and_then(|topic| topic.groups.get_mut(&name)) {
                        group.is_loading = false;
                        group.list(partition, &mut self.listed_groups);
                    }
                }
            }
        }
        self.begin_loads(effects);
    }
}

pub(crate) fn unreadable_now(failure: Failure) -> Refusal {
    let text = if failure.is_want_of_descriptors() {
        format!("the messages cannot be read now: {failure}; nothing was done, try again then")
    } else {
        format!(
            "the disk does not give the messages now ({failure}): nothing was done, try again; look at the broker's log and the disk"
        )
    };
    Refusal::new(RefusalKind::StorageFailed, text)
}
