//! What a checkpoint says, and the envelope of a slot around it. Pure, on the core that owns the shard.

use bytes::Bytes;
use ringmain_model::{PartitionRef, ShardId};

use crate::effect::SlotName;
use crate::entry::{
    self, ClockAnchor, Entry, EntryDamage, GroupProgress, KnownMessages, LogMarks, PartitionAges, TopicCreated,
};
use crate::fields::{Fields, length32};
use crate::position::{BLOCK_BYTES, LogPosition, SegmentNumber, Sequence, whole_blocks};
use crate::topic::PartitionSegments;

const MAGIC: &[u8; 8] = b"RMSLOT\0\0";
/// What this program reads. A checkpoint without flags is written as version 1, which has none.
const SLOT_VERSION: u32 = 2;
const VERSION_WITHOUT_FLAGS: u32 = 1;
const FLAG_IN_DOUBT: u16 = 1;
const FLAG_SETTLED: u16 = 2;
const FIXED_BYTES: usize = 72;
/// Segments of one partition in one entry; a longer list takes several, so that an entry's length stays within 32 bits.
const SEGMENTS_PER_ENTRY: usize = 4096;

/// Whether it is known what a shard deleted. Goes from checkpoint to checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Doubt {
    /// It is.
    #[default]
    No,
    /// A start found damage: what a start does not know, it keeps, until somebody says that the damage was seen.
    Open,
    /// Somebody has said so. Records that are missing are no reason to doubt again.
    Settled,
}

impl Doubt {
    fn flags(self) -> u16 {
        match self {
            Self::No => 0,
            Self::Open => FLAG_IN_DOUBT,
            Self::Settled => FLAG_SETTLED,
        }
    }

    fn of_flags(flags: u16) -> Option<Self> {
        [Self::No, Self::Open, Self::Settled].into_iter().find(|doubt| doubt.flags() == flags)
    }
}

/// How a shard stood when the log had come to `position`: replaying from there makes it stand as it stands now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// Where replay starts.
    pub position: LogPosition,
    /// Segments that damage touched: they are set aside, never recycled.
    pub held: Vec<SegmentNumber>,
    /// Whether it is known what was deleted.
    pub doubt: Doubt,
    /// Topics, each with its settings.
    pub topics: Vec<TopicCreated>,
    /// Start and end of each partition's log.
    pub marks: Vec<LogMarks>,
    /// Where each group stands.
    pub groups: Vec<GroupProgress>,
    /// Topic segments of each partition that has some; one without any is left out of the slot.
    pub segments: Vec<PartitionSegments>,
    /// Messages that were named by their publishers.
    pub known: Vec<KnownMessages>,
    /// Partitions that damage has cut.
    pub set_aside: Vec<PartitionRef>,
    /// How the clocks stood to each other.
    pub clock: Option<ClockAnchor>,
    /// When records came, of partitions that keep them for a time.
    pub ages: Vec<PartitionAges>,
}

impl Checkpoint {
    /// A checkpoint that says nothing but where replay starts.
    #[must_use]
    pub fn at(position: LogPosition) -> Self {
        Self {
            position,
            held: Vec::new(),
            doubt: Doubt::No,
            topics: Vec::new(),
            marks: Vec::new(),
            groups: Vec::new(),
            segments: Vec::new(),
            known: Vec::new(),
            set_aside: Vec::new(),
            clock: None,
            ages: Vec::new(),
        }
    }
}

/// A slot that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotContent {
    /// Number of the checkpoint, from 1.
    pub sequence: u64,
    /// What it says.
    pub checkpoint: Checkpoint,
}

/// Why a file is no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SlotDamage {
    /// Too short, another magic, a wrong checksum, or content that cannot be.
    #[error("the checkpoint slot is damaged")]
    Damaged,
    /// A whole slot of a newer version.
    #[error("it was written by a newer program (version {0}, this one reads {SLOT_VERSION}): start that one")]
    Newer(u32),
    /// A whole slot of another shard.
    #[error("it belongs to shard {}", .0.0)]
    Foreign(ShardId),
}

/// The bytes of a slot, filled up to a block.
#[must_use]
pub fn encode_slot(shard: ShardId, sequence: u64, checkpoint: &Checkpoint) -> Vec<u8> {
    let lists = || {
        checkpoint.segments.iter().flat_map(|one| {
            let has_gap = one.has_gap();
            one.segments.chunks(SEGMENTS_PER_ENTRY).map(move |segments| (one.partition, segments, has_gap))
        })
    };
    let count = checkpoint.topics.len()
        + checkpoint.marks.len()
        + checkpoint.groups.len()
        + checkpoint.known.len()
        + checkpoint.set_aside.len()
        + checkpoint.ages.len()
        + usize::from(checkpoint.clock.is_some())
        + lists().count();
    let position = &checkpoint.position;
    let mut out = Vec::with_capacity(FIXED_BYTES + 8 * checkpoint.held.len() + 128 * count);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[0; 4]);
    let flags = checkpoint.doubt.flags();
    let version = if flags == 0 { VERSION_WITHOUT_FLAGS } else { SLOT_VERSION };
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&shard.0.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&position.previous_checksum.to_le_bytes());
    out.extend_from_slice(&position.segment.0.to_le_bytes());
    out.extend_from_slice(&position.position.to_le_bytes());
    out.extend_from_slice(&position.next.0.to_le_bytes());
    out.extend_from_slice(&length32(checkpoint.held.len()).to_le_bytes());
    out.extend_from_slice(&length32(count).to_le_bytes());
    for held in &checkpoint.held {
        out.extend_from_slice(&held.0.to_le_bytes());
    }
    let topics = checkpoint.topics.iter().cloned().map(Entry::TopicCreated);
    let marks = checkpoint.marks.iter().copied().map(Entry::LogMarks);
    let groups = checkpoint.groups.iter().cloned().map(Entry::GroupProgress);
    let clock = checkpoint.clock.iter().copied().map(Entry::Clock);
    let ages = checkpoint.ages.iter().cloned().map(Entry::PartitionAges);
    let set_aside = checkpoint.set_aside.iter().copied().map(Entry::SetAside);
    let known = checkpoint.known.iter().cloned().map(Entry::KnownMessages);
    for content in topics.chain(marks).chain(groups).chain(known).chain(set_aside).chain(clock).chain(ages) {
        // None of these shares bytes, so nothing is left to append.
        let _ = entry::encode(&content, &mut out);
    }
    let can_be_read = |one: &PartitionSegments| one.segments.is_empty() || one.is_well_formed();
    debug_assert!(checkpoint.segments.iter().all(can_be_read), "a slot names only segments that can be");
    for (partition, segments, has_gap) in lists() {
        entry::put_segments(&mut out, partition, segments, has_gap);
    }
    let length = out.len();
    out[16..24].copy_from_slice(&(length as u64).to_le_bytes());
    let checksum = crc32c::crc32c(&out[12..]);
    out[8..12].copy_from_slice(&checksum.to_le_bytes());
    out.resize(usize::try_from(whole_blocks(length as u64)).unwrap_or(length), 0);
    out
}

/// Reads a slot's file; what follows the slot in it is of no account.
///
/// # Errors
/// What is wrong. A newer version or another shard is told only of a slot whose checksum is right.
pub fn decode_slot(shard: ShardId, file: &Bytes) -> Result<SlotContent, SlotDamage> {
    let damaged = SlotDamage::Damaged;
    let mut fields = Fields::of(file);
    let has_magic = fields.take(8) == Some(MAGIC.as_slice());
    let checksum = fields.u32().filter(|_| has_magic).ok_or(damaged)?;
    let version = fields.u32().ok_or(damaged)?;
    let length = fields.u64().and_then(|length| usize::try_from(length).ok()).ok_or(damaged)?;
    let slot = file.get(12..length).filter(|_| length >= FIXED_BYTES).ok_or(damaged)?;
    if crc32c::crc32c(slot) != checksum {
        return Err(damaged);
    }
    if !(VERSION_WITHOUT_FLAGS..=SLOT_VERSION).contains(&version) {
        return Err(SlotDamage::Newer(version));
    }
    let slot = file.slice(..length);
    read_slot(shard, version, &slot)?.ok_or(damaged)
}

/// `Ok(None)` means that the content cannot be.
fn read_slot(shard: ShardId, version: u32, slot: &Bytes) -> Result<Option<SlotContent>, SlotDamage> {
    let Some(head) = slot.get(24..FIXED_BYTES) else { return Ok(None) };
    let mut fields = Fields::of(head);
    let Some(head) = read_head(&mut fields) else { return Ok(None) };
    let Head { sequence, owner, flags, position, held_count, count } = head;
    // In one form alone: what says nothing more is version 1.
    let Some(doubt) = Doubt::of_flags(flags).filter(|_| (version == VERSION_WITHOUT_FLAGS) == (flags == 0)) else {
        return Ok(None);
    };
    if owner != shard {
        return Err(SlotDamage::Foreign(owner));
    }
    let mut fields = Fields::of(&slot[FIXED_BYTES..]);
    let mut checkpoint = Checkpoint { doubt, ..Checkpoint::at(position) };
    for _ in 0..held_count {
        let Some(number) = fields.u64() else { return Ok(None) };
        checkpoint.held.push(SegmentNumber(number));
    }
    let mut rest = slot.slice(slot.len() - fields.left()..);
    let mut seen = 0_u32;
    while !rest.is_empty() {
        match entry::decode(&rest) {
            Ok((entry, length)) => {
                match entry {
                    Entry::TopicCreated(topic) => checkpoint.topics.push(topic),
                    Entry::LogMarks(marks) => checkpoint.marks.push(marks),
                    Entry::GroupProgress(progress) => checkpoint.groups.push(progress),
                    Entry::KnownMessages(known) => checkpoint.known.push(known),
                    Entry::SetAside(partition) => checkpoint.set_aside.push(partition),
                    Entry::Clock(anchor) => checkpoint.clock = Some(anchor),
                    Entry::PartitionAges(ages) => checkpoint.ages.push(ages),
                    Entry::PartitionSegments(segments) => {
                        if !add_segments(&mut checkpoint.segments, segments) {
                            return Ok(None);
                        }
                    }
                    _ => return Ok(None),
                }
                seen = seen.saturating_add(1);
                rest = rest.slice(length..);
            }
            // The checksum says that these bytes are meant: a newer program's, under the same version.
            Err(EntryDamage::Newer) => return Err(SlotDamage::Newer(SLOT_VERSION)),
            Err(EntryDamage::Malformed) => return Ok(None),
        }
    }
    Ok((seen == count).then_some(SlotContent { sequence, checkpoint }))
}

/// Adds a list, or the next part of the last one; says whether it belongs there.
fn add_segments(lists: &mut Vec<PartitionSegments>, next: PartitionSegments) -> bool {
    let Some(last) = lists.last_mut().filter(|last| last.partition == next.partition) else {
        lists.push(next);
        return true;
    };
    let is_full = last.segments.len().is_multiple_of(SEGMENTS_PER_ENTRY);
    let goes_on = last.segments.last().is_some_and(|segment| segment.is_sealed()) && last.end() <= next.base();
    last.segments.extend(next.segments);
    is_full && goes_on
}

/// The envelope of a slot behind its checksum, version and length.
struct Head {
    sequence: u64,
    owner: ShardId,
    flags: u16,
    position: LogPosition,
    held_count: u32,
    count: u32,
}

fn read_head(fields: &mut Fields<'_>) -> Option<Head> {
    let sequence = fields.u64()?;
    let owner = ShardId(fields.u16()?);
    let flags = fields.u16()?;
    let previous_checksum = fields.u32()?;
    let segment = SegmentNumber(fields.u64()?);
    let position = fields.u64().filter(|position| position.is_multiple_of(BLOCK_BYTES))?;
    let next = Sequence(fields.u64()?);
    let position = LogPosition { segment, position, next, previous_checksum };
    Some(Head { sequence, owner, flags, position, held_count: fields.u32()?, count: fields.u32()? })
}

/// What a start makes of the two slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slots {
    /// The slot that counts; `None` when none is valid and none need ever have been finished: then the whole log must be there,
    /// which the [`LogOpener`](crate::LogOpener) finds out.
    pub newer: Option<(SlotName, SlotContent)>,
    /// Where the other slot's replay would start, if it is valid: the log is kept from there on. Nothing may be released before
    /// [`SlotWriter`](crate::SlotWriter) has confirmed the slots.
    pub older: Option<LogPosition>,
    /// The slot that is damaged, to be reported. It is the next to be written.
    pub damaged: Option<SlotName>,
    /// Files that are there.
    pub present: [bool; 2],
}

/// Why the two slots cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SlotsRefused {
    /// Both are there and damaged.
    #[error("both checkpoint slots are damaged: look at them with `ringmain inspect`, restore one from a copy")]
    BothDamaged,
    /// Slot A is not there and B is damaged. B is made when A is finished, so that two checkpoints were there once.
    #[error(
        "checkpoint slot A is missing and B is damaged: look at it with `ringmain inspect`, put one back from a copy; nothing was \
         changed"
    )]
    FirstMissing,
    /// One was written by a newer program or belongs to another shard.
    #[error("checkpoint slot {0:?}: {1}; nothing was changed")]
    Slot(SlotName, SlotDamage),
}

/// Chooses the newer valid slot of the two files, each `None` if it is not there.
///
/// # Errors
/// When nothing may be done with this directory; nothing was changed.
pub fn choose_slot(shard: ShardId, a: Option<&Bytes>, b: Option<&Bytes>) -> Result<Slots, SlotsRefused> {
    let mut valid = Vec::new();
    let mut damaged = Vec::new();
    for (name, file) in [(SlotName::A, a), (SlotName::B, b)] {
        let Some(file) = file else { continue };
        match decode_slot(shard, file) {
            Ok(content) => valid.push((name, content)),
            Err(SlotDamage::Damaged) => damaged.push(name),
            Err(refusal) => return Err(SlotsRefused::Slot(name, refusal)),
        }
    }
    if damaged.len() == 2 {
        return Err(SlotsRefused::BothDamaged);
    }
    if a.is_none() && valid.is_empty() && !damaged.is_empty() {
        return Err(SlotsRefused::FirstMissing);
    }
    valid.sort_by_key(|(_, content)| content.sequence);
    let newer = valid.pop();
    let older = valid.pop().map(|(_, content)| content.checkpoint.position);
    Ok(Slots { newer, older, damaged: damaged.first().copied(), present: [a.is_some(), b.is_some()] })
}
