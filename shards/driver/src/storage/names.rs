//! How the files of a shard are called. Plain text in and out, for any core.

use std::path::{Path, PathBuf};

use ringmain_model::{Incarnation, Offset, PartitionRef, ShardId};
use ringmain_wal::{FileName, SegmentNumber, SlotName, TopicFile};

/// The name of a file in its shard's folder.
pub(super) fn text_of(file: FileName) -> String {
    match file {
        FileName::Segment(number) => format!("{:016x}.log", number.0),
        FileName::Preparing(number) => format!("{:016x}.preparing", number.0),
        FileName::Quarantined(number) => format!("{:016x}.quarantined", number.0),
        FileName::Slot(SlotName::A) => "checkpoint-a".to_owned(),
        FileName::Slot(SlotName::B) => "checkpoint-b".to_owned(),
        FileName::Topic(TopicFile { partition, base }) => {
            format!("topic-{:016x}-{:08x}-{:016x}.segment", partition.incarnation.0, partition.partition, base.0)
        }
    }
}

/// The file of that name; `None` when it is none of ours. Strict: only what [`text_of`] writes is read.
pub(super) fn parse(text: &str) -> Option<FileName> {
    match text {
        "checkpoint-a" => return Some(FileName::Slot(SlotName::A)),
        "checkpoint-b" => return Some(FileName::Slot(SlotName::B)),
        _ => {}
    }
    let (stem, ending) = text.rsplit_once('.')?;
    let number = || hexadecimal(stem, 16).map(SegmentNumber);
    match ending {
        "log" => number().map(FileName::Segment),
        "preparing" => number().map(FileName::Preparing),
        "quarantined" => number().map(FileName::Quarantined),
        "segment" => {
            let mut parts = stem.strip_prefix("topic-")?.split('-');
            let incarnation = Incarnation(hexadecimal(parts.next()?, 16)?);
            let partition = u32::try_from(hexadecimal(parts.next()?, 8)?).ok()?;
            let base = Offset(hexadecimal(parts.next()?, 16)?);
            if parts.next().is_some() {
                return None;
            }
            Some(FileName::Topic(TopicFile { partition: PartitionRef { incarnation, partition }, base }))
        }
        _ => None,
    }
}

/// A number of exactly that many digits, all of them lower case: `from_str_radix` alone would take a sign and capitals too.
fn hexadecimal(text: &str, digits: usize) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u64::from_str_radix(text, 16).ok() } else { None }
}

/// The folder of a shard.
pub(super) fn folder_of(directory: &Path, shard: ShardId) -> PathBuf {
    directory.join(folder_text(shard))
}

pub(super) fn folder_text(shard: ShardId) -> String {
    format!("shard-{:03}", shard.0)
}

/// The shard of a folder of that name; `None` when it is none of ours.
pub(super) fn parse_folder(text: &str) -> Option<ShardId> {
    let shard = ShardId(text.strip_prefix("shard-")?.parse().ok()?);
    (folder_text(shard) == text).then_some(shard)
}
