//! Topic segments that cannot be written to any more, and files from beyond a partition's end: what was acknowledged and is not in them
//! stays; runs on the test thread.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ringmain_model::{
    CoreId, Incarnation, Message, Offset, PartitionRef, ShardId, Storage, TopicConfig, TopicName, TopicPatch,
};
use ringmain_wal::{Completion, Effect as FileEffect, Failure, FileName, SlotName, TopicFile};

use crate::{
    AnswerWhen, Command, Effect, Event, Now, OpeningOutput, OpeningReport, Origin, Reply, Shard, ShardOpener,
    ShardSettings, StorageSettings,
};

const PARTITION: PartitionRef = PartitionRef { incarnation: Incarnation(5), partition: 0 };
const ORIGIN: Origin = Origin { core: CoreId(0), asker: 0, request: 0 };
const NOT_THERE: Failure = Failure::System(2);
const ALREADY_THERE: Failure = Failure::System(17);

/// Files in memory; all that is written is there.
#[derive(Default)]
struct Disk(BTreeMap<FileName, Vec<u8>>);

impl Disk {
    fn perform(&mut self, effect: &FileEffect) -> Completion {
        match effect {
            FileEffect::Allocate { file, .. } if self.0.contains_key(file) => Completion::Failed(ALREADY_THERE),
            FileEffect::Allocate { file, bytes } => {
                self.0.insert(*file, vec![0; *bytes as usize]);
                Completion::Done
            }
            FileEffect::Write { file, position, parts } => {
                let Some(content) = self.0.get_mut(file) else { return Completion::Failed(NOT_THERE) };
                let (text, at) = (parts.concat(), *position as usize);
                content.resize(content.len().max(at + text.len()), 0);
                content[at..at + text.len()].copy_from_slice(&text);
                Completion::Written(text.len() as u64)
            }
            FileEffect::Sync { .. } | FileEffect::SyncDirectory => Completion::Done,
            FileEffect::Rename { from, to } => match self.0.remove(from) {
                Some(content) => {
                    self.0.insert(*to, content);
                    Completion::Done
                }
                None => Completion::Failed(NOT_THERE),
            },
            FileEffect::Unlink { file } => {
                self.0.remove(file).map_or(Completion::Failed(NOT_THERE), |_| Completion::Done)
            }
            FileEffect::Read { file, position, bytes } => match self.0.get(file) {
                Some(content) => {
                    let from = (*position as usize).min(content.len());
                    let to = (from + *bytes as usize).min(content.len());
                    Completion::Read(Bytes::copy_from_slice(&content[from..to]))
                }
                None => Completion::Failed(NOT_THERE),
            },
        }
    }
}

/// A shard with its disk.
struct World {
    disk: Disk,
    shard: Shard,
    replies: Vec<Reply>,
    now_ms: u64,
    /// The topic keeps less from the moment on in which a write to a topic segment fails.
    shrinks_at_failure: bool,
}

/// Batches of a tail that move in one step: a tail of these tests takes several.
const FEW: usize = 16;
/// All of them move in one.
const MANY: usize = 64;

fn open(mut disk: Disk, now_ms: u64, store_batches_max: usize, forgets_damage: bool) -> (World, OpeningReport) {
    let files: Vec<_> = disk.0.iter().map(|(file, content)| (*file, content.len() as u64)).collect();
    let slots =
        [SlotName::A, SlotName::B].map(|slot| disk.0.get(&FileName::Slot(slot)).map(|text| text.clone().into()));
    let storage = StorageSettings {
        checkpoint_bytes: 30 * 4096,
        tail_bytes_to_store: 1,
        tails_bytes_max: 1024,
        store_batches_max,
        forgets_damage,
        ..StorageSettings::new(ShardId(0), 7)
    };
    let mut opener = ShardOpener::new(ShardId(0), ShardSettings::default(), storage, &files, &slots).unwrap();
    let (mut out, mut doing) = (Vec::new(), VecDeque::new());
    opener.start(&mut out);
    loop {
        for output in std::mem::take(&mut out) {
            match output {
                OpeningOutput::Do { operation, effect } => doing.push_back((operation, effect)),
                OpeningOutput::Opened(opened) => {
                    let (shard, replies) = (opened.shard, Vec::new());
                    let mut world = World { disk, shard, replies, now_ms, shrinks_at_failure: false };
                    world.run(opened.effects);
                    return (world, opened.report);
                }
                OpeningOutput::Refused(reason) => panic!("{reason}"),
            }
        }
        let (operation, effect) = doing.pop_front().unwrap();
        opener.completed(operation, &disk.perform(&effect), &mut out);
    }
}

impl World {
    fn handle(&mut self, event: Event) -> Vec<Effect> {
        self.now_ms += 20;
        let now = Now { monotonic_ms: self.now_ms, unix_us: 1_000_000_000 + self.now_ms.cast_signed() * 1000 };
        let mut effects = Vec::new();
        self.shard.handle(now, event, &mut effects);
        effects
    }

    fn run(&mut self, effects: Vec<Effect>) {
        let mut left = VecDeque::from(effects);
        loop {
            let follows = match left.pop_front() {
                Some(Effect::File { operation, effect }) => {
                    let completion = self.disk.perform(&effect);
                    let is_failure = matches!(effect, FileEffect::Write { file: FileName::Topic(_), .. })
                        && matches!(completion, Completion::Failed(_));
                    if is_failure && std::mem::take(&mut self.shrinks_at_failure) {
                        let patch = TopicPatch { max_messages: Some(5), ..TopicPatch::default() };
                        let command = Command::Change { incarnation: PARTITION.incarnation, patch };
                        left.extend(self.handle(Event::Asked { origin: ORIGIN, command }));
                    }
                    left.extend(self.handle(Event::FileDone { operation, completion }));
                    self.handle(Event::TurnEnded)
                }
                Some(Effect::Reply { reply, .. }) => {
                    self.replies.push(reply);
                    continue;
                }
                Some(Effect::Place { change, .. }) => self.handle(Event::Placed { change }),
                Some(_) => continue,
                None if self.shard.is_dirty() => self.handle(Event::TurnEnded),
                None => return,
            };
            left.extend(follows);
        }
    }

    fn ask(&mut self, command: Command) {
        let mut effects = self.handle(Event::Asked { origin: ORIGIN, command });
        effects.extend(self.handle(Event::TurnEnded));
        self.run(effects);
    }

    fn create(&mut self, name: &str, incarnation: u64) {
        let config = TopicConfig { storage: Storage::Wal, ..TopicConfig::default() };
        let name = TopicName::new(name).unwrap();
        self.ask(Command::Create { name, partitions: 1, config, incarnation: Incarnation(incarnation) });
    }

    fn publish(&mut self, count: u64) {
        for _ in 0..count {
            let message = Message::of("x");
            self.ask(Command::Publish { partition: PARTITION, message, answer: AnswerWhen::Durable });
        }
    }

    fn publish_until(&mut self, is_enough: impl Fn(&Self) -> bool) {
        while !is_enough(self) {
            self.publish(1);
        }
    }

    fn topic_files(&self) -> Vec<FileName> {
        self.disk.0.keys().filter(|file| matches!(file, FileName::Topic(_))).copied().collect()
    }

    /// Offsets that a reader gets.
    fn read_all(&mut self) -> Vec<u64> {
        let (mut from, mut got) = (Offset(0), Vec::new());
        loop {
            let read =
                Command::Read { partition: PARTITION, from, bytes_max: 1 << 20, records_max: 1000, following: false };
            self.ask(read);
            let Some(Reply::Page(page)) = self.replies.pop() else { panic!("{:?}", self.replies) };
            got.extend(page.batches.iter().flat_map(|batch| batch.base().0..batch.end().0));
            if page.batches.is_empty() {
                return got;
            }
            from = page.next();
        }
    }
}

/// A shard whose topic has a segment, which somebody has removed, and the end of that.
fn with_a_segment_gone(store_batches_max: usize) -> (World, u64) {
    let (mut world, _) = open(Disk::default(), 1000, store_batches_max, false);
    world.create("t", PARTITION.incarnation.0);
    world.publish_until(|world| !world.topic_files().is_empty());
    // The checkpoint that made it comes to its end.
    let end = world.shard.end_of(PARTITION).unwrap().0;
    for file in world.topic_files() {
        world.disk.0.remove(&file);
    }
    (world, end)
}

#[test]
fn a_tail_in_several_steps_whose_file_is_gone_moves_once() {
    let (mut world, stored) = with_a_segment_gone(FEW);
    world.publish_until(|world| !world.topic_files().is_empty());
    world.publish(5);
    let end = world.shard.end_of(PARTITION).unwrap().0;
    let expected: Vec<_> = (stored..end).collect();
    assert_eq!(world.read_all(), expected, "only what was in the file is lost");
    let (mut again, _) = open(world.disk, world.now_ms, MANY, false);
    assert_eq!(again.read_all(), expected);
}

#[test]
fn what_is_kept_moves_though_retention_took_the_file_while_it_failed() {
    let (mut world, _) = with_a_segment_gone(MANY);
    world.shrinks_at_failure = true;
    world.publish_until(|world| !world.shrinks_at_failure);
    let end = world.shard.end_of(PARTITION).unwrap().0;
    let kept = world.read_all();
    assert!(kept.ends_with(&(end - 5..end).collect::<Vec<_>>()), "{kept:?} of {end}");
    let (mut again, _) = open(world.disk, world.now_ms, MANY, false);
    assert_eq!(again.read_all(), kept);
}

#[test]
fn a_file_from_beyond_the_end_is_no_damage_any_more_when_somebody_has_looked() {
    let (mut world, _) = open(Disk::default(), 1000, MANY, false);
    world.create("t", PARTITION.incarnation.0);
    world.publish(5);
    let beyond = FileName::Topic(TopicFile { partition: PARTITION, base: Offset(1000) });
    world.disk.0.insert(beyond, vec![0; 4096]);
    for start in 0..4 {
        let (mut next, report) = open(world.disk, world.now_ms, MANY, start > 0);
        assert_eq!(report.is_in_doubt, start == 0, "start {start}: {:?}", report.findings);
        // Its checkpoints say so.
        (0..4).for_each(|number| next.create(&format!("of-{start}-{number}"), 100 + 10 * start + number));
        world = next;
    }
    assert!(!world.disk.0.contains_key(&beyond), "nobody wants it");
}
