//! Faults put in on purpose between a shard and its disk, to see that the simulation finds them.

use bytes::Bytes;
use ringmain_model::ShardId;
use ringmain_wal::{BLOCK_BYTES, Effect, FileName, SegmentNumber, SlotName, Slots, choose_slot};

use crate::chance::Chance;
use crate::disk::Disk;

/// A fault put in on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A sync of the log is said to be done and is not: answers come before it.
    LogSyncSkipped,
    /// A sync of the directory is said to be done and is not.
    DirectorySyncSkipped,
    /// The log below the newer checkpoint is gone, not only that below the older one.
    ReleasedBelowNewer,
    /// What stands behind the end of the log chains, and so is taken for a part of it.
    StaleAccepted,
    /// A topic's files go when its deletion is asked for, not when that is durable.
    UnlinkedEarly,
    /// A sync of a topic's segment is said to be done and is not.
    TopicSyncSkipped,
    /// A sync of a checkpoint slot is said to be done and is not.
    SlotSyncSkipped,
    /// A failed sync of the log is said to have succeeded.
    SyncFailureHidden,
    /// An unlinked file of a topic comes back at each start: a shard that does not repeat the unlink keeps it for ever.
    UnlinkForgotten,
    /// A start does not compare the shards: parts of topics that were never made or have ended stay, and settings differ.
    OrphansKept,
    /// Checkpoints do not carry on that a start found damage.
    DoubtForgotten,
}

impl Sabotage {
    /// Whether this effect is said to be done and is not.
    pub(crate) fn skips(self, effect: &Effect) -> bool {
        match effect {
            Effect::Sync { file: FileName::Segment(_) } => self == Self::LogSyncSkipped,
            Effect::Sync { file: FileName::Topic(_) } => self == Self::TopicSyncSkipped,
            Effect::Sync { file: FileName::Slot(_) } => self == Self::SlotSyncSkipped,
            Effect::SyncDirectory => self == Self::DirectorySyncSkipped,
            Effect::Unlink { file: FileName::Topic(_) } => self == Self::UnlinkForgotten,
            _ => false,
        }
    }
}

/// The slots on a disk, if they can be used.
pub(crate) fn slots(shard: ShardId, disk: &Disk) -> Option<Slots> {
    let [a, b] = [SlotName::A, SlotName::B].map(|slot| disk.whole(FileName::Slot(slot)));
    choose_slot(shard, a.as_ref(), b.as_ref()).ok()
}

/// Damages the newer slot, or the older one, if both are valid; says whether it did.
pub(crate) fn damage_slot(shard: ShardId, disk: &mut Disk, is_newer: bool) -> bool {
    let Some(Slots { newer: Some((newer, _)), older: Some(_), .. }) = slots(shard, disk) else { return false };
    // Damage to the only slot that a power loss would leave is more than a broker can stand.
    if !is_newer && !disk.is_durable(FileName::Slot(newer)) {
        return false;
    }
    let slot = if is_newer { newer } else { newer.other() };
    disk.damage(FileName::Slot(slot), |content| content[20] ^= 1);
    true
}

/// Zeroes all log segments below the newer checkpoint.
pub(crate) fn zero_below_newer(shard: ShardId, disk: &mut Disk) {
    let Some(Slots { newer: Some((_, content)), .. }) = slots(shard, disk) else { return };
    for (file, _) in disk.list() {
        if matches!(file, FileName::Segment(number) if number < content.checkpoint.position.segment) {
            disk.damage(file, |content| content.fill(0));
        }
    }
}

/// A whole commit batch on a disk, at the place that it names.
struct Found {
    segment: SegmentNumber,
    position: usize,
    sequence: u64,
    bytes: Bytes,
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The batch at the start of `bytes`, without filling, if its checksum is right. `FORMAT.md` of the wal draws it.
fn whole_batch(bytes: &Bytes) -> Option<Bytes> {
    let length = word(bytes, 4)? as usize;
    let batch =
        (bytes.get(8..12)? == b"RMCB" && length > 64 && length <= bytes.len()).then(|| bytes.slice(..length))?;
    (crc32c::crc32c(&batch[4..]) == word(&batch, 0)?).then_some(batch)
}

fn batches(disk: &Disk) -> Vec<Found> {
    let mut found = Vec::new();
    for (file, _) in disk.list() {
        let FileName::Segment(segment) = file else { continue };
        let content = disk.whole(file).unwrap_or_default();
        for position in (BLOCK_BYTES as usize..content.len()).step_by(BLOCK_BYTES as usize) {
            if let Some(bytes) = whole_batch(&content.slice(position..)) {
                let sequence = number(&bytes, 16).unwrap_or(0);
                found.push(Found { segment, position, sequence, bytes });
            }
        }
    }
    found
}

/// The last whole batch of the log that stands where it says: its segment's number, its block and its sequence.
pub(crate) fn last_batch(disk: &Disk) -> Option<(SegmentNumber, usize, u64)> {
    let stands = |one: &Found| {
        number(&one.bytes, 32) == Some(one.segment.0)
            && word(&one.bytes, 40) == Some((one.position as u64 / BLOCK_BYTES) as u32)
    };
    let found = batches(disk).into_iter().filter(stands).max_by_key(|one| one.sequence)?;
    Some((found.segment, found.position, found.sequence))
}

/// Behind the last batch of the log an older one is made to chain to it. Says whether there was room and an older one.
pub(crate) fn chain_stale(disk: &mut Disk, chance: &mut Chance) -> bool {
    let found = batches(disk);
    let stands = |one: &&Found| {
        number(&one.bytes, 32) == Some(one.segment.0)
            && word(&one.bytes, 40) == Some((one.position as u64 / BLOCK_BYTES) as u32)
    };
    let Some(last) = found.iter().filter(stands).max_by_key(|one| one.sequence) else { return false };
    let older: Vec<_> = found.iter().filter(|one| one.sequence < last.sequence).collect();
    if older.is_empty() {
        return false;
    }
    let stale = older[chance.index(older.len())];
    let position = last.position + last.bytes.len().next_multiple_of(BLOCK_BYTES as usize);
    let file = FileName::Segment(last.segment);
    if disk.whole(file).is_none_or(|content| content.len() < position + stale.bytes.len()) {
        return false;
    }
    let mut bytes = stale.bytes.to_vec();
    bytes[16..24].copy_from_slice(&(last.sequence + 1).to_le_bytes());
    bytes[24..32].copy_from_slice(&last.bytes[24..32]);
    bytes[32..40].copy_from_slice(&last.segment.0.to_le_bytes());
    bytes[40..44].copy_from_slice(&((position as u64 / BLOCK_BYTES) as u32).to_le_bytes());
    bytes[44..48].copy_from_slice(&last.bytes[0..4]);
    let checksum = crc32c::crc32c(&bytes[4..]);
    bytes[0..4].copy_from_slice(&checksum.to_le_bytes());
    disk.damage(file, |content| content[position..position + bytes.len()].copy_from_slice(&bytes));
    true
}
