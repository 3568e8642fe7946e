//! Log, slots and topic segments together, life after life: checkpoints move records out of the log, the log is released, and
//! after each crash every durable record is found once, in a segment or in the log.

use std::collections::BTreeMap;

use ringmain_model::Offset;
use ringmain_wal::{
    Checkpoint, Completion, Effect, Entry, FileName, LogMarks, LogOpener, LogOutput, LogPosition, LogWriter,
    NotAdmitted, OpenOutput, Opened, PartitionSegments, RecordBatch, SegmentsOutput, SegmentsWriter, SlotName,
    SlotOutput, SlotWriter, Slots, choose_slot,
};

use super::{BLOCK, NOW_US, batches, job, none_of, read_all};
use crate::chance::Chance;
use crate::disk::Disk;
use crate::stage::{SHARD, bare_checkpoint, created, partition, settings};

const TOPICS: u64 = 3;
/// Tails of less are copied to the head of the log.
const TAIL_BYTES_MIN: usize = 4000;

/// A fault put in on purpose, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sabotage {
    /// The checkpoint's position is taken when small tails have been copied, so that the copies are not replayed.
    PositionBehindCopies,
    /// Segments are not synced before the slot that names them.
    SegmentSyncSkipped,
}

#[derive(Default, Debug)]
struct Sums {
    crashes: u64,
    checkpoints: u64,
    stored: u64,
    copied: u64,
    released: u64,
    rotten: u64,
    refused: u64,
}

struct Crash;

struct Topic {
    list: PartitionSegments,
    /// Records that are in no segment, by their first offset.
    tail: BTreeMap<u64, RecordBatch>,
}

struct Broker {
    log: LogWriter,
    slots: SlotWriter,
    segments: SegmentsWriter,
    topics: Vec<Topic>,
}

struct World {
    chance: Chance,
    disk: Disk,
    sabotage: Option<Sabotage>,
    /// Effects until the next crash.
    effects_left: u64,
    /// For each topic what was admitted, and how much of it was reported durable.
    admitted: Vec<Vec<RecordBatch>>,
    durable: Vec<usize>,
    sums: Sums,
}

impl World {
    fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<Sums, String> {
        let mut world = Self {
            chance: Chance::of(seed),
            disk: Disk::new(1 << 30),
            sabotage,
            effects_left: 0,
            admitted: vec![Vec::new(); TOPICS as usize],
            durable: vec![0; TOPICS as usize],
            sums: Sums::default(),
        };
        for _ in 0..8 {
            world.effects_left = 20 + world.chance.below(800);
            if world.live()?.is_err() {
                world.sums.crashes += 1;
            }
            if !world.chance.one_in(3) {
                world.disk.lose_power(&mut world.chance);
            }
            if world.chance.one_in(4) {
                world.rot_newer_slot()?;
            }
        }
        world.effects_left = u64::MAX;
        let _ = world.live()?;
        Ok(world.sums)
    }

    fn perform(&mut self, effect: &Effect) -> Result<Completion, Crash> {
        if self.effects_left == 0 {
            self.disk.perform_in_part(effect, &mut self.chance);
            return Err(Crash);
        }
        self.effects_left -= 1;
        let is_skipped = self.sabotage == Some(Sabotage::SegmentSyncSkipped)
            && matches!(effect, Effect::Sync { file: FileName::Topic(_) });
        Ok(if is_skipped { Completion::Done } else { self.disk.perform(effect) })
    }

    fn read_slots(&self) -> Result<Slots, String> {
        let file = |name| self.disk.whole(FileName::Slot(name));
        choose_slot(SHARD, file(SlotName::A).as_ref(), file(SlotName::B).as_ref())
            .map_err(|refused| refused.to_string())
    }

    fn rot_newer_slot(&mut self) -> Result<(), String> {
        let slots = self.read_slots()?;
        if let (Some((name, _)), Some(_)) = (slots.newer, slots.older) {
            self.disk.damage(FileName::Slot(name), |content| content[20] ^= 1);
            self.sums.rotten += 1;
        }
        Ok(())
    }

    /// One life; the inner error is the crash that ended it.
    fn live(&mut self) -> Result<Result<(), Crash>, String> {
        let slots = self.read_slots()?;
        let checkpoint = slots.newer.as_ref().map(|(_, content)| content.checkpoint.clone());
        let (opened, entries) = match self.open(checkpoint.as_ref())? {
            Ok(found) => found,
            Err(crash) => return Ok(Err(crash)),
        };
        let topics = self.recover(checkpoint.as_ref(), &entries)?;
        let has_topics = checkpoint.is_some() || entries.iter().any(|entry| matches!(entry, Entry::TopicCreated(_)));
        Ok(self.work(&slots, opened, topics, has_topics))
    }

    fn open(&mut self, checkpoint: Option<&Checkpoint>) -> Result<Result<(Opened, Vec<Entry>), Crash>, String> {
        let mut opener = LogOpener::new(SHARD, checkpoint, &self.disk.list());
        let (mut outputs, mut entries) = (Vec::new(), Vec::new());
        opener.start(&mut outputs);
        loop {
            for output in std::mem::take(&mut outputs) {
                match output {
                    OpenOutput::Do { operation, effect } => match self.perform(&effect) {
                        Ok(completion) => opener.completed(operation, &completion, &mut outputs),
                        Err(crash) => return Ok(Err(crash)),
                    },
                    OpenOutput::Entry { entry, .. } => entries.push(entry),
                    OpenOutput::Opened(opened) => return Ok(Ok((opened, entries))),
                    OpenOutput::Finding(ringmain_wal::Finding::Cut { .. }) => {}
                    other => return Err(format!("an honest disk was found {other:?}")),
                }
            }
        }
    }

    /// Puts together what the checkpoint names and what was replayed, and compares.
    fn recover(&mut self, checkpoint: Option<&Checkpoint>, entries: &[Entry]) -> Result<Vec<Topic>, String> {
        let mut topics = Vec::new();
        for life in 1..=TOPICS {
            let lists = checkpoint.map(|checkpoint| checkpoint.segments.as_slice()).unwrap_or_default();
            let list = lists.iter().find(|list| list.partition == partition(life)).cloned().unwrap_or(none_of(life));
            let end = list.end().unwrap_or(Offset(0));
            let mut tail = BTreeMap::new();
            for entry in entries {
                if let Entry::Records(batch) = entry
                    && batch.partition() == partition(life)
                    && batch.base() >= end
                {
                    tail.insert(batch.base().0, batch.clone());
                }
            }
            let index = life as usize - 1;
            let mut found = read_all(&mut self.disk, &list);
            found.extend(tail.values().cloned());
            let (admitted, durable) = (&mut self.admitted[index], &mut self.durable[index]);
            if found.len() < *durable || admitted.get(..found.len()) != Some(found.as_slice()) {
                return Err(format!(
                    "topic {life}: {} records are found of {durable} durable, or wrong ones",
                    found.len()
                ));
            }
            admitted.truncate(found.len());
            *durable = found.len();
            topics.push(Topic { list, tail });
        }
        Ok(topics)
    }

    fn work(&mut self, slots: &Slots, opened: Opened, topics: Vec<Topic>, has_topics: bool) -> Result<(), Crash> {
        let (mut out, mut said) = (Vec::new(), Vec::new());
        let mut broker = Broker {
            log: LogWriter::new(settings(self.chance.number()), opened, &mut out),
            slots: SlotWriter::new(SHARD, slots, &mut said),
            segments: SegmentsWriter::new(SHARD),
            topics,
        };
        self.drive_log(&mut broker, out)?;
        self.drive_slots(&mut broker, said)?;
        if !has_topics {
            for life in 1..=TOPICS {
                self.commit(&mut broker, &created(life))?.unwrap();
            }
        }
        for _ in 0..80 {
            if self.chance.one_in(12) {
                self.checkpoint(&mut broker)?;
                continue;
            }
            let index = self.chance.below(TOPICS) as usize;
            let base = self.admitted[index].len() as u64;
            let batch = batches(index as u64 + 1, base, 1, self.chance.below(2500) as usize).remove(0);
            self.admitted[index].push(batch.clone());
            match self.commit(&mut broker, &Entry::Records(batch.clone()))? {
                Ok(()) => {
                    self.durable[index] += 1;
                    broker.topics[index].tail.insert(base, batch);
                }
                Err(_) => {
                    self.admitted[index].pop();
                    self.checkpoint(&mut broker)?;
                }
            }
        }
        Ok(())
    }

    /// Makes one entry durable, unless the log refuses it.
    fn commit(&mut self, broker: &mut Broker, entry: &Entry) -> Result<Result<(), NotAdmitted>, Crash> {
        let mut out = Vec::new();
        let admitted = broker.log.append(entry, &mut out);
        self.drive_log(broker, out)?;
        let mut out = Vec::new();
        broker.log.turn_ended(&mut out);
        self.drive_log(broker, out)?;
        Ok(admitted.map(|_| ()))
    }

    fn drive_log(&mut self, broker: &mut Broker, mut out: Vec<LogOutput>) -> Result<(), Crash> {
        while !out.is_empty() {
            for output in std::mem::take(&mut out) {
                if let LogOutput::Do { operation, effect } = output {
                    let completion = self.perform(&effect)?;
                    broker.log.completed(operation, &completion, &mut out);
                }
            }
        }
        Ok(())
    }

    fn drive_slots(&mut self, broker: &mut Broker, mut said: Vec<SlotOutput>) -> Result<(), Crash> {
        while let Some(output) = said.pop() {
            match output {
                SlotOutput::Do { operation, effect } => {
                    let completion = self.perform(&effect)?;
                    broker.slots.completed(operation, &completion, &mut said);
                }
                SlotOutput::Confirmed { release } | SlotOutput::Written { release, .. } => {
                    self.release(broker, release)?;
                }
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    }

    fn release(&mut self, broker: &mut Broker, position: Option<LogPosition>) -> Result<(), Crash> {
        let Some(position) = position else { return Ok(()) };
        self.sums.released += 1;
        let mut out = Vec::new();
        broker.log.release(&position, &mut out);
        self.drive_log(broker, out)
    }

    /// Large tails go to segments, small ones to the head of the log; then the slot is written.
    fn checkpoint(&mut self, broker: &mut Broker) -> Result<(), Crash> {
        let mut position = broker.log.durable_position();
        let marks = (1..=TOPICS).zip(&self.admitted).map(|(life, admitted)| LogMarks {
            partition: partition(life),
            log_start: Offset(0),
            log_end: Offset(admitted.len() as u64),
        });
        let marks = marks.collect();
        let (mut jobs, mut stored) = (Vec::new(), Vec::new());
        for index in 0..TOPICS as usize {
            let tail: Vec<_> = broker.topics[index].tail.values().cloned().collect();
            let mut is_copied = tail.iter().map(|batch| batch.bytes().len()).sum::<usize>() < TAIL_BYTES_MIN;
            for batch in tail.iter().filter(|_| is_copied).cloned().collect::<Vec<_>>() {
                // A log that is full takes no copies: then even a small tail has to go to a segment.
                if is_copied && self.commit(broker, &Entry::Records(batch))?.is_err() {
                    is_copied = false;
                    self.sums.refused += 1;
                }
            }
            if is_copied {
                self.sums.copied += tail.len() as u64;
            } else {
                jobs.push(job(&broker.topics[index].list, tail, 6 * BLOCK));
                stored.push(index);
            }
        }
        if self.sabotage == Some(Sabotage::PositionBehindCopies) {
            position = broker.log.durable_position();
        }
        let lists = self.store(broker, jobs)?;
        for (index, changed) in stored.into_iter().zip(lists) {
            let topic = &mut broker.topics[index];
            topic.list.update(changed.segments);
            topic.tail.clear();
            self.sums.stored += 1;
        }
        let topics = (1..=TOPICS).map(created).map(|entry| match entry {
            Entry::TopicCreated(topic) => topic,
            _ => panic!("the stage makes these"),
        });
        let segments = broker.topics.iter().map(|topic| topic.list.clone()).filter(|list| !list.segments.is_empty());
        let (topics, segments) = (topics.collect(), segments.collect());
        let checkpoint = Checkpoint { topics, marks, segments, ..bare_checkpoint(position) };
        let mut said = Vec::new();
        assert!(broker.slots.write(&checkpoint, &mut said));
        self.drive_slots(broker, said)?;
        self.sums.checkpoints += 1;
        Ok(())
    }

    fn store(
        &mut self,
        broker: &mut Broker,
        jobs: Vec<ringmain_wal::StoreJob>,
    ) -> Result<Vec<PartitionSegments>, Crash> {
        let mut out = Vec::new();
        assert!(broker.segments.begin(jobs, NOW_US, &mut out));
        loop {
            match out.pop().expect("the writer came to no end") {
                SegmentsOutput::Do { operation, effect } => {
                    let completion = self.perform(&effect)?;
                    broker.segments.completed(operation, &completion, &mut out);
                }
                SegmentsOutput::Stored(lists) => return Ok(lists),
                said => panic!("{said:?}"),
            }
        }
    }
}

#[test]
fn every_durable_record_is_found_once_after_each_crash() {
    let mut sums = Sums::default();
    for seed in 0..80 {
        match World::run(seed, None) {
            Ok(of_run) => {
                sums.crashes += of_run.crashes;
                sums.checkpoints += of_run.checkpoints;
                sums.stored += of_run.stored;
                sums.copied += of_run.copied;
                sums.released += of_run.released;
                sums.rotten += of_run.rotten;
                sums.refused += of_run.refused;
            }
            Err(fault) => panic!("seed {seed}: {fault}"),
        }
    }
    let counts = [sums.crashes, sums.checkpoints, sums.stored, sums.copied, sums.released, sums.rotten];
    assert!(counts.iter().all(|count| *count > 100) && sums.refused > 0, "{sums:?}");
}

fn finds(sabotage: Sabotage) {
    // Reading back a segment that was not synced panics.
    let found =
        (0..2000).find(|seed| std::panic::catch_unwind(|| World::run(*seed, Some(sabotage)).is_err()).unwrap_or(true));
    assert!(found.is_some(), "the simulation does not see {sabotage:?}");
}

#[test]
fn it_finds_tails_that_were_copied_before_the_position() {
    finds(Sabotage::PositionBehindCopies);
}

#[test]
fn it_finds_segments_that_were_not_synced() {
    finds(Sabotage::SegmentSyncSkipped);
}
