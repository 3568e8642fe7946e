//! Names of the files in a shard's folder; on the main thread.

use std::path::Path;

use ringmain_model::ShardId;
use ringmain_wal::{FileName, SegmentNumber, SlotName};

/// What a file is by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Named {
    /// A file that the log knows.
    Log(FileName),
    /// Records of one partition that have left the log.
    TopicSegment,
    /// No name that we give.
    Unknown,
}

impl Named {
    pub(super) fn of(path: &Path) -> Self {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Self::Unknown };
        match name {
            "checkpoint-a" => return Self::Log(FileName::Slot(SlotName::A)),
            "checkpoint-b" => return Self::Log(FileName::Slot(SlotName::B)),
            _ => {}
        }
        let Some((stem, ending)) = name.rsplit_once('.') else { return Self::Unknown };
        if ending == "segment" && is_topic_segment(stem) {
            return Self::TopicSegment;
        }
        let Some(number) = hexadecimal(stem).map(SegmentNumber) else { return Self::Unknown };
        match ending {
            "log" => Self::Log(FileName::Segment(number)),
            "preparing" => Self::Log(FileName::Preparing(number)),
            "quarantined" => Self::Log(FileName::Quarantined(number)),
            _ => Self::Unknown,
        }
    }

    /// The segment's number that the name tells.
    pub(super) fn segment(self) -> Option<SegmentNumber> {
        match self {
            Self::Log(FileName::Segment(number) | FileName::Preparing(number) | FileName::Quarantined(number)) => {
                Some(number)
            }
            _ => None,
        }
    }

    pub(super) fn is_segment(self) -> bool {
        matches!(self, Self::Log(FileName::Segment(_) | FileName::Quarantined(_)))
    }

    pub(super) fn is_quarantined(self) -> bool {
        matches!(self, Self::Log(FileName::Quarantined(_)))
    }

    pub(super) fn is_slot(self) -> bool {
        matches!(self, Self::Log(FileName::Slot(_)))
    }
}

/// Sixteen digits, as the log's numbers are written.
fn hexadecimal(text: &str) -> Option<u64> {
    let is_ours = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_ours { u64::from_str_radix(text, 16).ok() } else { None }
}

/// `topic-<incarnation>-<partition>-<base offset>`.
fn is_topic_segment(stem: &str) -> bool {
    let Some(rest) = stem.strip_prefix("topic-") else { return false };
    let parts: Vec<&str> = rest.split('-').collect();
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The shard of a folder named `shard-NNN`.
pub(super) fn shard(path: &Path) -> Option<ShardId> {
    let digits = path.file_name()?.to_str()?.strip_prefix("shard-")?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(ShardId)
}
