//! What a start would make of a shard's folder: the broker's own opener, over files that are only read; on the main thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ringmain_model::{Incarnation, Offset, PartitionRef, ShardId};
use ringmain_wal::{
    BLOCK_BYTES, Completion, Effect, Failure, FileName, LogOpener, OpenOutput, OpenRefused, Opened, SegmentHeader,
    SlotName, Slots, TopicFile, choose_slot,
};
use serde::Serialize;

use super::damage::{Damage, Damages};
use super::file::shown;
use super::finding::FindingView;
use super::name::{self, Named};
use super::recovered::{Recovered, TopicView};
use super::slot;
use super::source::{PIECE_BYTES_MAX, Source};
use super::stored;

/// How a start would end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Opens,
    Refuses,
    /// The files could not be read, so that nothing is known.
    Unreadable,
}

/// The checkpoint from which a start would go on.
#[derive(Clone, Debug, Serialize)]
struct CheckpointView {
    slot: char,
    sequence: u64,
}

/// Where the log would go on.
#[derive(Clone, Debug, Serialize)]
struct GoesOn {
    next_sequence: u64,
    segment: u64,
    position: u64,
    segments_used: usize,
    segments_spare: usize,
}

/// What a start would do with a shard's folder.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdict {
    shard: Option<u16>,
    outcome: Outcome,
    /// Why it refuses, or why nothing is known.
    reason: Option<String>,
    /// Files went while they were being looked at.
    has_moved: bool,
    checkpoint: Option<CheckpointView>,
    damaged_slot: Option<char>,
    findings: Vec<FindingView>,
    /// What is wrong with the topic segments that the checkpoint names.
    stored_damage: Vec<Damage>,
    goes_on: Option<GoesOn>,
    held_segments: Vec<u64>,
    /// Files half made, which it removes.
    removes: Vec<String>,
    topics: usize,
    partitions: usize,
    groups: usize,
    /// Records that the log gives back, each counted once.
    records_from_log: u64,
    /// Records that the checkpoint says are kept outside of what is replayed.
    records_from_checkpoint: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_list: Option<Vec<TopicView>>,
}

impl Verdict {
    pub(super) fn of(folder: &Path, files: &[(Named, PathBuf)], is_verbose: bool) -> Self {
        let mut verdict = Self {
            shard: None,
            outcome: Outcome::Opens,
            reason: None,
            has_moved: false,
            checkpoint: None,
            damaged_slot: None,
            findings: Vec::new(),
            stored_damage: Vec::new(),
            goes_on: None,
            held_segments: Vec::new(),
            removes: Vec::new(),
            topics: 0,
            partitions: 0,
            groups: 0,
            records_from_log: 0,
            records_from_checkpoint: 0,
            topic_list: None,
        };
        let ended = Reader::of(files).and_then(|mut reader| verdict.open((folder, files), &mut reader, is_verbose));
        if let Err(error) = ended {
            verdict.has_moved = error.kind() == io::ErrorKind::NotFound;
            (verdict.outcome, verdict.reason) = (Outcome::Unreadable, Some(error.to_string()));
        }
        verdict
    }

    fn open(
        &mut self,
        (folder, files): (&Path, &[(Named, PathBuf)]),
        reader: &mut Reader,
        is_verbose: bool,
    ) -> io::Result<()> {
        let slots = [reader.slot(SlotName::A)?, reader.slot(SlotName::B)?];
        let shard = match name::shard(folder) {
            Some(shard) => shard,
            // A copy under another name: its files know whose they are.
            None => match reader.owner(&slots)? {
                Some(shard) => shard,
                None => ShardId(0),
            },
        };
        self.shard = Some(shard.0);
        let slots = match choose_slot(shard, slots[0].as_ref(), slots[1].as_ref()) {
            Ok(slots) => slots,
            Err(refused) => {
                (self.outcome, self.reason) = (Outcome::Refuses, Some(refused.to_string()));
                return Ok(());
            }
        };
        let checkpoint = slots.newer.as_ref().map(|(_, content)| content.checkpoint.clone());
        let recovered = self.replay(shard, slots, reader, is_verbose);
        if let Some(checkpoint) = checkpoint {
            let counts = |partition| !recovered.has_deleted(partition);
            self.stored_damage = stored::check(&shown(folder), &checkpoint, counts, files)?;
        }
        Ok(())
    }

    fn replay(&mut self, shard: ShardId, slots: Slots, reader: &mut Reader, is_verbose: bool) -> Recovered {
        self.damaged_slot = slots.damaged.map(letter);
        self.checkpoint = slots
            .newer
            .as_ref()
            .map(|(name, content)| CheckpointView { slot: letter(*name), sequence: content.sequence });
        let checkpoint = slots.newer.map(|(_, content)| content.checkpoint);
        let mut recovered = Recovered::from(checkpoint.as_ref());
        let mut opener = LogOpener::new(shard, checkpoint.as_ref(), &reader.list());
        let mut outputs = Vec::new();
        opener.start(&mut outputs);
        while !outputs.is_empty() {
            for output in std::mem::take(&mut outputs) {
                match output {
                    OpenOutput::Do { operation, effect } => {
                        let completion = self.answer(&effect, reader);
                        opener.completed(operation, &completion, &mut outputs);
                    }
                    OpenOutput::Entry { entry, .. } => recovered.take(&entry),
                    OpenOutput::Finding(finding) => self.findings.push(finding.into()),
                    OpenOutput::Opened(opened) => self.opened(&opened, &recovered, is_verbose),
                    OpenOutput::Refused(refused) => self.refused(&refused, reader),
                }
            }
        }
        recovered
    }

    /// Reads are done; what would change or flush anything is only said to be done.
    fn answer(&mut self, effect: &Effect, reader: &mut Reader) -> Completion {
        match effect {
            Effect::Read { file, position, bytes } => match reader.read(*file, *position, *bytes) {
                Ok(bytes) => Completion::Read(bytes),
                Err(error) => {
                    let failure = Completion::Failed(Failure::System(error.raw_os_error().unwrap_or(0)));
                    reader.failure = Some(error);
                    failure
                }
            },
            Effect::Unlink { file } => {
                self.removes.extend(reader.name(*file));
                Completion::Done
            }
            Effect::Sync { .. } | Effect::SyncDirectory => Completion::Done,
            // An opener asks for none of these; should it ever, nothing is done and it is not told otherwise.
            Effect::Allocate { .. } | Effect::Write { .. } | Effect::Rename { .. } => {
                Completion::Failed(Failure::System(0))
            }
        }
    }

    fn opened(&mut self, opened: &Opened, recovered: &Recovered, is_verbose: bool) {
        self.goes_on = Some(GoesOn {
            next_sequence: opened.position.next.0,
            segment: opened.position.segment.0,
            position: opened.position.position,
            segments_used: opened.used.len(),
            segments_spare: opened.spare.len(),
        });
        self.held_segments = opened.held.iter().map(|number| number.0).collect();
        self.topics = recovered.topics();
        self.partitions = recovered.partitions();
        self.groups = recovered.groups();
        (self.records_from_log, self.records_from_checkpoint) = recovered.records();
        self.topic_list = is_verbose.then(|| recovered.list());
    }

    fn refused(&mut self, refused: &OpenRefused, reader: &mut Reader) {
        // A start that fails to read refuses, and so do we; but of our reading that is to be known.
        self.has_moved = reader.failure.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.outcome = if reader.failure.is_some() { Outcome::Unreadable } else { Outcome::Refuses };
        self.reason = Some(match (&reader.failure, refused) {
            (Some(error), OpenRefused::Failed { segment, .. }) => format!("log segment {segment}: {error}"),
            _ => refused.to_string(),
        });
        self.removes.clear();
    }

    /// Adds what is wrong to the rest.
    pub(super) fn tell(&self, path: &str, damages: &mut Damages) {
        let reason = self.reason.clone().unwrap_or_default();
        let whole = |text: String| Damage { path: path.to_owned(), position: None, sequence: None, text };
        match self.outcome {
            Outcome::Opens => {}
            Outcome::Refuses => damages.add(whole(format!("a start would refuse: {reason}"))),
            // Files went while they were being looked at: that is a broker at work, and no damage.
            Outcome::Unreadable if self.has_moved => {}
            Outcome::Unreadable => damages.add_unreadable(path, format!("cannot be read: {reason}")),
        }
        self.findings.iter().for_each(|finding| damages.add(finding.damage(path)));
        self.stored_damage.iter().for_each(|damage| damages.add(damage.clone()));
    }

    pub(super) fn print(&self, out: &mut impl io::Write) -> io::Result<()> {
        let shard = self.shard.map_or("unknown".to_owned(), |shard| shard.to_string());
        writeln!(out, "Verdict on shard {shard}:")?;
        match &self.checkpoint {
            Some(CheckpointView { slot, sequence }) => {
                writeln!(out, "  A start would begin with checkpoint {sequence}, from slot {slot}.")?;
            }
            None => writeln!(out, "  There is no checkpoint that counts: a start would read the whole log.")?,
        }
        if let Some(slot) = self.damaged_slot {
            writeln!(
                out,
                "  Slot {slot} is damaged or was never finished; the next checkpoint would be written there."
            )?;
        }
        self.findings.iter().try_for_each(|finding| writeln!(out, "  {}", finding.text))?;
        self.stored_damage.iter().try_for_each(|damage| {
            let place = damage.position.map(|position| format!(" at {position}")).unwrap_or_default();
            writeln!(out, "  DAMAGE in {}{place}: {}.", damage.path, damage.text)
        })?;
        let reason = self.reason.as_deref().unwrap_or_default();
        match (&self.outcome, &self.goes_on) {
            (Outcome::Refuses, _) => return writeln!(out, "  It would REFUSE and change nothing: {reason}."),
            (Outcome::Unreadable, _) => return writeln!(out, "  What it would do is not known: {reason}."),
            (Outcome::Opens, None) => {}
            (Outcome::Opens, Some(goes_on)) => {
                let GoesOn { next_sequence, segment, position, segments_used, segments_spare } = goes_on;
                writeln!(
                    out,
                    "  The log ends in segment {segment} at {position}; the next batch would be {next_sequence}, in a new segment. \
                     Segments in use: {segments_used}, to be recycled: {segments_spare}."
                )?;
            }
        }
        if !self.held_segments.is_empty() {
            let held: Vec<String> = self.held_segments.iter().map(u64::to_string).collect();
            let held = held.join(", ");
            writeln!(
                out,
                "  It would set aside as quarantined, and never recycle, what damage touched: segments {held}."
            )?;
        }
        self.removes
            .iter()
            .try_for_each(|name| writeln!(out, "  It would remove {name}, which was never finished."))?;
        let Self { topics, partitions, groups, records_from_log, records_from_checkpoint, .. } = self;
        writeln!(
            out,
            "  Recovered: topics {topics}, partitions {partitions}, groups {groups}, records {records_from_log} from the log and \
             {records_from_checkpoint} that the checkpoint places before it."
        )?;
        self.topic_list.iter().flatten().try_for_each(|topic| writeln!(out, "    {topic}"))
    }
}

fn letter(slot: SlotName) -> char {
    match slot {
        SlotName::A => 'A',
        SlotName::B => 'B',
    }
}

/// The files of a shard's folder, for reading alone.
#[derive(Debug)]
struct Reader {
    files: BTreeMap<FileName, (PathBuf, u64)>,
    has_topic_segments: bool,
    /// The file that was read last: the opener reads one after another.
    open: RefCell<Option<(FileName, Source)>>,
    failure: Option<io::Error>,
}

impl Reader {
    fn of(files: &[(Named, PathBuf)]) -> io::Result<Self> {
        let mut found = BTreeMap::new();
        for (named, path) in files {
            if let Named::Log(file) = named {
                let metadata = std::fs::metadata(path)?;
                found.insert(*file, (path.clone(), metadata.len()));
            }
        }
        let has_topic_segments = files.iter().any(|(named, _)| *named == Named::TopicSegment);
        Ok(Self { files: found, has_topic_segments, open: RefCell::new(None), failure: None })
    }

    fn list(&self) -> Vec<(FileName, u64)> {
        // An opener of the log asks whether there are topic segments, not which.
        let partition = PartitionRef { incarnation: Incarnation(0), partition: 0 };
        let topic = (FileName::Topic(TopicFile { partition, base: Offset(0) }), 0);
        let found = self.files.iter().map(|(file, (_, bytes))| (*file, *bytes));
        found.chain(self.has_topic_segments.then_some(topic)).collect()
    }

    fn name(&self, file: FileName) -> Option<String> {
        let (path, _) = self.files.get(&file)?;
        path.file_name().map(|name| name.to_string_lossy().into_owned())
    }

    fn slot(&self, slot: SlotName) -> io::Result<Option<Bytes>> {
        let Some((path, _)) = self.files.get(&FileName::Slot(slot)) else { return Ok(None) };
        slot::read(&mut Source::open(path)?).map(Some)
    }

    fn read(&self, file: FileName, position: u64, bytes: u64) -> io::Result<Bytes> {
        if bytes > 2 * PIECE_BYTES_MAX {
            // Only a damaged length in a file larger than any segment asks for that much.
            let text = format!("{bytes} bytes would have to be read at once, more than a log segment has");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let mut open = self.open.borrow_mut();
        if let Some((_, source)) = open.as_ref().filter(|(name, _)| *name == file) {
            return source.read(position, bytes);
        }
        let (path, _) = self.files.get(&file).ok_or(io::ErrorKind::NotFound)?;
        let (_, source) = open.insert((file, Source::open(path)?));
        source.read(position, bytes)
    }

    /// The shard that the files say they belong to: a valid slot's, or that of a valid segment.
    fn owner(&self, slots: &[Option<Bytes>]) -> io::Result<Option<ShardId>> {
        if let Some(view) = slots.iter().flatten().find_map(|file| slot::view(file, false).ok()) {
            return Ok(Some(ShardId(view.shard)));
        }
        for file in self.files.keys().filter(|file| matches!(file, FileName::Segment(_))) {
            let block = self.read(*file, 0, BLOCK_BYTES)?;
            if let Ok(header) = SegmentHeader::decode(&block) {
                return Ok(Some(header.shard));
            }
        }
        Ok(None)
    }
}
