//! A checkpoint slot as people and programs read it; on the main thread.

use std::io;

use bytes::Bytes;
use ringmain_model::ShardId;
use ringmain_wal::{BLOCK_BYTES, Doubt, Entry, SlotContent, SlotDamage, decode_slot};
use serde::Serialize;

use super::entry::EntryView;
use super::source::Source;

/// A slot is read whole, because its checksum covers all of it.
const SLOT_BYTES_MAX: u64 = 1 << 30;

/// A slot that was read.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SlotView {
    pub(super) sequence: u64,
    pub(super) shard: u16,
    pub(super) segment: u64,
    pub(super) position: u64,
    pub(super) next_sequence: u64,
    pub(super) previous_checksum: u32,
    pub(super) held_segments: Vec<u64>,
    /// A start found damage, and nobody has said that it was seen.
    pub(super) in_doubt: bool,
    pub(super) topic_count: usize,
    pub(super) marks_count: usize,
    pub(super) group_count: usize,
    /// Files of partitions.
    pub(super) topic_segment_count: usize,
    /// What it holds, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entries: Option<Vec<EntryView>>,
}

/// The bytes of a slot's file as far as its envelope says that they count.
pub(super) fn read(source: &mut Source) -> io::Result<Bytes> {
    let head = source.get(0, BLOCK_BYTES)?;
    let told = head.get(16..).and_then(|rest| rest.first_chunk()).map_or(0, |length| u64::from_le_bytes(*length));
    // A length that cannot be is damage, which the block alone shows as well.
    let bytes = if told <= source.bytes() { told.max(BLOCK_BYTES) } else { BLOCK_BYTES };
    if bytes > SLOT_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it says that it is larger than any checkpoint"));
    }
    source.read(0, bytes.min(source.bytes()))
}

/// Reads a slot of whichever shard it is.
pub(super) fn view(file: &Bytes, is_verbose: bool) -> Result<SlotView, String> {
    // The owner stands under the checksum, so asking for the wrong one tells the right one.
    let (shard, content) = match decode_slot(ShardId(0), file) {
        Err(SlotDamage::Foreign(owner)) => (owner, decode_slot(owner, file)),
        decoded => (ShardId(0), decoded),
    };
    content.map(|content| of(shard, &content, is_verbose)).map_err(|damage| damage.to_string())
}

fn of(shard: ShardId, content: &SlotContent, is_verbose: bool) -> SlotView {
    let checkpoint = &content.checkpoint;
    let entries = is_verbose.then(|| {
        let topics = checkpoint.topics.iter().map(EntryView::from);
        let marks = checkpoint.marks.iter().map(EntryView::from);
        let groups = checkpoint.groups.iter().map(EntryView::from);
        let stored = checkpoint.segments.iter().map(EntryView::from);
        let known = checkpoint.known.iter().map(|known| EntryView::from(&Entry::KnownMessages(known.clone())));
        let set_aside = checkpoint.set_aside.iter().map(|partition| EntryView::from(&Entry::SetAside(*partition)));
        topics.chain(marks).chain(groups).chain(stored).chain(known).chain(set_aside).collect()
    });
    SlotView {
        sequence: content.sequence,
        shard: shard.0,
        segment: checkpoint.position.segment.0,
        position: checkpoint.position.position,
        next_sequence: checkpoint.position.next.0,
        previous_checksum: checkpoint.position.previous_checksum,
        held_segments: checkpoint.held.iter().map(|number| number.0).collect(),
        in_doubt: checkpoint.doubt == Doubt::Open,
        topic_count: checkpoint.topics.len(),
        marks_count: checkpoint.marks.len(),
        group_count: checkpoint.groups.len(),
        topic_segment_count: checkpoint.segments.iter().map(|stored| stored.segments.len()).sum(),
        entries,
    }
}

impl SlotView {
    pub(super) fn print(&self, out: &mut impl io::Write) -> io::Result<()> {
        writeln!(out, "  checkpoint  {} of shard {}, checksum ok", self.sequence, self.shard)?;
        let Self { segment, position, next_sequence, .. } = self;
        writeln!(out, "  replay      from batch {next_sequence} in segment {segment} at {position}")?;
        if self.held_segments.is_empty() {
            writeln!(out, "  held        no segment")?;
        } else {
            let held: Vec<String> = self.held_segments.iter().map(u64::to_string).collect();
            writeln!(out, "  held        segments {}, which damage touched", held.join(", "))?;
        }
        if self.in_doubt {
            writeln!(
                out,
                "  IN DOUBT    a start found damage: no start removes what it does not know, until a file `damage-seen` in this folder says \
                 that somebody has looked"
            )?;
        }
        let Self { topic_count, marks_count, group_count, topic_segment_count: files, .. } = self;
        writeln!(
            out,
            "  holds       topics {topic_count}, partitions {marks_count}, groups {group_count}, topic segments {files}"
        )?;
        self.entries.iter().flatten().try_for_each(|entry| writeln!(out, "      {entry}"))
    }
}
