//! What clients of a shard may rely on, kept in the plainest way, in memory that never fails.

mod group;
mod letters;
mod life;
mod seen;

use std::collections::BTreeMap;

use bytes::Bytes;
use ringmain_engine::{Record, TopicStats};
use ringmain_model::{
    Incarnation, Message, MessageId, Offset, PartitionRef, RefusalKind, ShardId, Storage, TopicConfig, TopicName,
};

pub use group::{Ack, GroupModel, Verb};
use letters::LetterKey;
pub use life::{Life, Standing};

use crate::chance::Chance;

/// Bits of a key that say the number of the partition; incarnations have none there.
const NUMBER_BITS: u64 = 63;

/// A partition as one number.
#[must_use]
pub fn key_of(partition: PartitionRef) -> u64 {
    partition.incarnation.0 | u64::from(partition.partition)
}

/// The partition of a key. That of any number is the first of a topic, if the lowest bits are left out.
#[must_use]
pub fn partition_of(key: u64) -> PartitionRef {
    PartitionRef { incarnation: Incarnation(key & !NUMBER_BITS), partition: (key & NUMBER_BITS) as u32 }
}

/// Whether two keys are of the same topic's life.
#[must_use]
pub fn is_of_topic(one: u64, other: u64) -> bool {
    one & !NUMBER_BITS == other & !NUMBER_BITS
}

/// An outcome of a check: what is wrong, in a sentence.
pub type Check<T = ()> = Result<T, String>;

/// What became of a publish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Asked, not answered.
    Open,
    /// Answered with this offset before it was durable: until it is seen, a crash may take it back.
    Appended(u64),
    /// It has this offset for good: answered as durable, or seen.
    Stored(u64),
    /// The answer was lost or said that the outcome is unknown: it is there once or not at all.
    Unknown,
    /// Refused: it must never be seen.
    Refused(RefusalKind),
    /// A start did not find it: it must never be seen.
    Lost,
}

/// One message that somebody published.
#[derive(Clone, Debug)]
pub struct Publish {
    /// The topic's life.
    pub life: u64,
    /// What was sent.
    pub message: Message,
    /// What became of it.
    pub outcome: Outcome,
    /// It is a dead letter: tried again until it is stored, so that its number says nothing of its place.
    pub is_letter: bool,
}

/// Messages that were published together.
#[derive(Clone, Copy, Debug)]
struct Together {
    life: u64,
    first: u64,
    count: u64,
}

/// How the settings of the shard bound what a topic keeps.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes that a topic's segments hold before the oldest is let go.
    pub segments_bytes: u64,
}

/// All that was asked and answered since the data directory was made.
#[derive(Debug)]
pub struct Model {
    /// Lives of topics, those that are over included: one for each partition, by its key.
    pub lives: BTreeMap<u64, Life>,
    /// Messages by their number.
    pub publishes: Vec<Publish>,
    batches: Vec<Together>,
    /// Numbers of dead letters, by the life of the topic that they go to and their id.
    letters: BTreeMap<(u64, [u8; 16]), u64>,
    letter_ids: BTreeMap<LetterKey, [u8; 16]>,
    letter_keys: BTreeMap<[u8; 16], LetterKey>,
    /// Number of the process that runs, from 1.
    pub run: u64,
    bounds: Bounds,
}

/// The message with that number: no two are alike, and each says its number.
#[must_use]
pub fn message(id: u64, payload_bytes: usize, chance: &mut Chance) -> Message {
    let mut payload = id.to_le_bytes().to_vec();
    let mut filling = Chance::of(id);
    while payload.len() < payload_bytes {
        payload.extend_from_slice(&filling.number().to_le_bytes());
    }
    payload.truncate(payload_bytes);
    let key = if payload_bytes < 8 {
        Some(Bytes::copy_from_slice(&id.to_le_bytes()))
    } else {
        chance.one_in(4).then(|| Bytes::from_static(b"k"))
    };
    let headers = if chance.one_in(5) { vec![(Bytes::from_static(b"name"), Bytes::from(vec![7; 9]))] } else { vec![] };
    let named = chance.one_in(3).then(|| named(id));
    Message { payload: Bytes::from(payload), key, headers, id: named }
}

/// The client's name of the message with that number.
fn named(id: u64) -> MessageId {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&id.to_le_bytes());
    MessageId { name, content: Chance::of(id).number() }
}

/// The number that a record says.
fn id_of(record: &Record<'_>) -> Option<u64> {
    let bytes = record.key.filter(|key| key.len() == 8).or_else(|| record.payload.get(..8))?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn is_same(message: &Message, record: &Record<'_>) -> bool {
    let headers = record.headers.map(|(name, value)| (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
    message.payload == record.payload
        && message.key.as_deref() == record.key
        && headers.collect::<Vec<_>>() == message.headers
}

/// The most that a message can take in a log, its share of batch headers and filling included.
fn bytes_max(message: &Message) -> u64 {
    message.bytes() as u64 + 200
}

impl Model {
    /// Nothing was ever asked.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            lives: BTreeMap::new(),
            publishes: Vec::new(),
            batches: Vec::new(),
            letters: BTreeMap::new(),
            letter_ids: BTreeMap::new(),
            letter_keys: BTreeMap::new(),
            run: 0,
            bounds,
        }
    }

    /// The life of that incarnation.
    ///
    /// # Errors
    /// When nobody asked for it.
    pub fn life(&mut self, incarnation: u64) -> Check<&mut Life> {
        self.lives.get_mut(&incarnation).ok_or_else(|| format!("nobody made a topic {incarnation:x}"))
    }

    /// Somebody asks for a topic.
    pub fn create_asked(
        &mut self,
        incarnation: Incarnation,
        name: &TopicName,
        config: &TopicConfig,
        partitions: u32,
        first: ShardId,
        shards: u16,
    ) {
        for number in 0..partitions {
            let node = usize::from(first.of_partition(number, shards).0);
            let life = Life { node, number, partitions, ..Life::new(name.clone(), config.clone()) };
            self.lives.insert(key_of(PartitionRef { incarnation, partition: number }), life);
        }
    }

    /// The keys of all partitions of a topic's life.
    #[must_use]
    pub fn siblings(&self, key: u64) -> Vec<u64> {
        let first = partition_of(key).incarnation.0;
        self.lives.range(first..=first | NUMBER_BITS).map(|(key, _)| *key).collect()
    }

    /// Does something with all partitions of a topic's life.
    pub fn all_of(&mut self, key: u64, each: impl Fn(&mut Life)) {
        let first = partition_of(key).incarnation.0;
        self.lives.range_mut(first..=first | NUMBER_BITS).for_each(|(_, life)| each(life));
    }

    /// Whether the topic has several partitions.
    #[must_use]
    pub fn has_several(&self, key: Option<u64>) -> bool {
        key.and_then(|key| self.lives.get(&key)).is_some_and(|life| life.partitions > 1)
    }

    /// Somebody publishes.
    pub fn publish_asked(&mut self, life: u64, message: Message) {
        self.publishes.push(Publish { life, message, outcome: Outcome::Open, is_letter: false });
    }

    /// The last `count` messages are published together.
    pub fn are_together(&mut self, life: u64, count: u64) {
        let first = self.publishes.len() as u64 - count;
        self.batches.push(Together { life, first, count });
    }

    /// A message of that life which is stored and has an id, so that a repeat must be answered with its offset.
    #[must_use]
    pub fn any_to_repeat(&self, life: u64, chance: &mut Chance) -> Option<(u64, u64)> {
        let from = chance.index(self.publishes.len().max(1)) as u64;
        let from_there = (from..).zip(self.publishes.iter().skip(from as usize)).take(50);
        from_there
            .filter(|(_, publish)| publish.life == life && !publish.is_letter && publish.message.id.is_some())
            .find_map(|(id, publish)| if let Outcome::Stored(at) = publish.outcome { Some((id, at)) } else { None })
    }

    /// A publish is answered.
    ///
    /// # Errors
    /// When its offset cannot be.
    pub fn published(&mut self, id: u64, offset: Offset, is_durable: bool) -> Check {
        let publish = &mut self.publishes[id as usize];
        let life = self.lives.get_mut(&publish.life).ok_or("a publish of no topic was answered")?;
        if let Outcome::Stored(seen) = publish.outcome
            && seen != offset.0
        {
            return Err(format!("message {id} was seen at {seen} and is answered to be at {offset}"));
        }
        if let Some(kept) = life.records.get(&offset.0)
            && kept.id != id
        {
            return Err(format!("offset {offset} is answered to message {id} and belongs to {}", kept.id));
        }
        if is_durable {
            publish.outcome = Outcome::Stored(offset.0);
            life.creation = Standing::Sure;
            life.stored(id, offset.0, None, publish.is_letter)?;
        } else if publish.outcome == Outcome::Open {
            publish.outcome = Outcome::Appended(offset.0);
        }
        Ok(())
    }

    /// A publish is refused.
    ///
    /// # Errors
    /// When it was seen meanwhile.
    pub fn publish_refused(&mut self, id: u64, kind: RefusalKind, was_deleted_since: bool) -> Check {
        let publish = &mut self.publishes[id as usize];
        let may_be_stored = kind == RefusalKind::OutcomeUnknown || was_deleted_since;
        match publish.outcome {
            Outcome::Stored(_) if may_be_stored => {}
            Outcome::Stored(at) => return Err(format!("message {id} is at {at} and is refused: {kind:?}")),
            // An earlier try may have stored it.
            Outcome::Unknown if publish.is_letter => {}
            _ if may_be_stored => publish.outcome = Outcome::Unknown,
            _ => publish.outcome = Outcome::Refused(kind),
        }
        Ok(())
    }

    /// The process is gone, whatever became of the disk.
    pub fn crashed(&mut self) {
        for publish in &mut self.publishes {
            if publish.outcome == Outcome::Open {
                publish.outcome = Outcome::Unknown;
            }
        }
        for life in self.lives.values_mut() {
            life.crashed();
        }
    }

    /// A start found these topics.
    ///
    /// # Errors
    /// When one is there that must not be, or one is not there that must be.
    pub fn recovered(&mut self, found: &[(TopicName, u64, u32)]) -> Check {
        self.run += 1;
        for (at, (name, incarnation, partitions)) in found.iter().enumerate() {
            if found[..at].iter().any(|(other_name, other, _)| other_name == name || other == incarnation) {
                return Err(format!("the topic {name} or its incarnation {incarnation:x} was found twice"));
            }
            let life = self.life(*incarnation)?;
            if life.partitions != *partitions {
                return Err(format!(
                    "{} has {} partitions and was found with {partitions}",
                    life.name, life.partitions
                ));
            }
            if life.name != *name {
                return Err(format!("the topic {} was found as {name}", life.name));
            }
            if life.config.storage == Storage::Memory {
                return Err(format!("the memory topic {name} came back"));
            }
            if life.creation == Standing::Never || life.deletion == Standing::Sure {
                return Err(format!("the topic {name} ({incarnation:x}) was deleted or refused, and came back"));
            }
        }
        for (incarnation, life) in &mut self.lives {
            let is_found = found.iter().any(|(_, other, _)| is_of_topic(*other, *incarnation));
            let must_be = life.config.storage == Storage::Wal
                && life.creation == Standing::Sure
                && life.deletion == Standing::Never;
            if must_be && !is_found {
                return Err(format!("the topic {} ({incarnation:x}) is lost", life.name));
            }
            if is_found {
                (life.creation, life.deletion) = (Standing::Sure, Standing::Never);
                life.is_recovering = true;
            } else if life.creation != Standing::Never {
                (life.creation, life.deletion) = (Standing::Never, Standing::Sure);
            }
        }
        Ok(())
    }

    /// All of a topic was read after a start.
    ///
    /// # Errors
    /// When something that was visible or answered is gone.
    pub fn read_whole(&mut self, incarnation: u64, stats: &TopicStats) -> Check {
        let run = self.run;
        let life = self.lives.get_mut(&incarnation).ok_or("a topic that nobody made was read")?;
        let (start, end) = (stats.log_start.offset().0, stats.high_water.offset().0);
        if end < life.visible_end {
            return Err(format!(
                "{} was visible up to {} and ends at {end} after a start",
                life.name, life.visible_end
            ));
        }
        life.visible_end = end;
        // What lies below the log start may have been stored. A start from an older checkpoint may find it again.
        let first_kept =
            life.records.range(start..).find(|(_, kept)| !kept.is_letter).map_or(u64::MAX, |(_, kept)| kept.id);
        for (id, publish) in (0..).zip(&mut self.publishes) {
            if publish.life != incarnation {
                continue;
            }
            match publish.outcome {
                Outcome::Appended(at) if at < start => {}
                Outcome::Unknown if start > 0 && (publish.is_letter || id < first_kept) => {}
                Outcome::Unknown | Outcome::Appended(_) => publish.outcome = Outcome::Lost,
                Outcome::Stored(at) if at >= end => return Err(format!("a stored message at {at} is behind the end")),
                _ => {}
            }
        }
        if let Some(missing) = (start..end).find(|offset| !life.records.contains_key(offset)) {
            return Err(format!("{} has no record at {missing}, between {start} and {end}", life.name));
        }
        self.check_together(incarnation)?;
        let life = self.lives.get_mut(&incarnation).ok_or("a topic that nobody made was read")?;
        life.settle_config(&stats.config)?;
        life.is_recovering = false;
        life.recovered_groups(run, &stats.groups)
    }

    /// Of what was published together a start finds all or nothing.
    fn check_together(&self, incarnation: u64) -> Check {
        for batch in self.batches.iter().filter(|batch| batch.life == incarnation) {
            let of_batch = &self.publishes[batch.first as usize..(batch.first + batch.count) as usize];
            let stored = of_batch.iter().filter(|publish| matches!(publish.outcome, Outcome::Stored(_))).count();
            if stored > 0 && of_batch.iter().any(|publish| publish.outcome == Outcome::Lost) {
                return Err(format!("of {batch:?} only {stored} were found after a start"));
            }
        }
        Ok(())
    }
}
