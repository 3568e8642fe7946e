//! What the log's opener finds, as a sentence and as fields; on the main thread.

use ringmain_wal::Finding;
use serde::Serialize;

use super::damage::Damage;

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FindingView {
    kind: &'static str,
    segment: Option<u64>,
    position: Option<u64>,
    sequence: Option<u64>,
    /// A sentence.
    pub(super) text: String,
}

impl FindingView {
    pub(super) fn damage(&self, path: &str) -> Damage {
        let text = self.text.trim_end_matches('.').to_owned();
        Damage { path: path.to_owned(), position: None, sequence: self.sequence, text }
    }
}

impl From<Finding> for FindingView {
    fn from(finding: Finding) -> Self {
        let bare = |kind, text| Self { kind, segment: None, position: None, sequence: None, text };
        match finding {
            Finding::Cut { sequence, segment, position } => Self {
                segment: Some(segment.0),
                position: Some(position),
                sequence: Some(sequence.0),
                ..bare(
                    "cut",
                    format!(
                        "Batch {sequence}, in segment {segment} at {position} or behind it, is not whole and nothing follows it: it \
                         would be CUT, as a write that a crash interrupted. Damage to a last batch that was durable looks the same."
                    ),
                )
            },
            Finding::Hole { from, to, segment, position } => {
                // The hole ends before the batch with which the log goes on.
                let last = to.0.saturating_sub(1).max(from.0);
                let lost =
                    if last == from.0 { format!("Batch {from} is") } else { format!("Batches {from} to {last} are") };
                Self {
                    segment: Some(segment.0),
                    position: Some(position),
                    sequence: Some(from.0),
                    ..bare(
                        "hole",
                        format!(
                            "{lost} LOST, in segment {segment} from {position} on, and the log goes on with batch {to}: it would serve \
                             the rest, and quarantine partitions whose records do not go on where they ended."
                        ),
                    )
                }
            }
            Finding::SegmentMissing(segment) => Self {
                segment: Some(segment.0),
                ..bare("segment_missing", format!("Log segment {segment} is MISSING."))
            },
            Finding::SegmentHeaderDamaged(segment) => Self {
                segment: Some(segment.0),
                ..bare(
                    "segment_header_damaged",
                    format!("The header of log segment {segment} is DAMAGED: its batches count as far as they chain."),
                )
            },
            Finding::SegmentShort { segment, bytes } => Self {
                segment: Some(segment.0),
                position: Some(bytes),
                ..bare(
                    "segment_short",
                    format!("Log segment {segment} is SHORT: it ends after {bytes} bytes, its header tells of more."),
                )
            },
            Finding::Quarantined { partition, awaited, found } => {
                let what = match awaited {
                    Some(awaited) => format!("its records ended before offset {awaited} and go on with {found}"),
                    None => format!("it has records from offset {found} on, and nothing says which topic it is"),
                };
                let (topic, number) = (partition.incarnation, partition.partition);
                bare(
                    "partition_quarantined",
                    format!(
                        "Partition {number} of topic {topic} would be QUARANTINED, its later entries withheld and kept: {what}."
                    ),
                )
            }
        }
    }
}
