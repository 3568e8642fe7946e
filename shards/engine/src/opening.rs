//! Opens a shard's directory: slots, log, replay, and the shard that goes on from there. Decisions on the opening thread.

use std::collections::BTreeSet;

use bytes::Bytes;
use ringmain_model::limit::{
    EPOCHS_PER_SEGMENT_BITS, IMAGE_WEIGHT_PER_TURN, STORE_BATCHES_MAX, TAIL_BYTES_TO_STORE, TAILS_BYTES_MAX,
};
use ringmain_model::{Offset, ShardId, TopicName};
use ringmain_wal::{
    Completion, Doubt, Effect as FileEffect, FileName, Finding, LogOpener, LogSettings, LogWriter, OpenOutput,
    OpenRefused, Opened, OperationId, SlotName, SlotWriter, Slots, SlotsRefused, TopicFile, choose_slot,
};

use crate::checkpoint::Checkpointing;
use crate::command::{Effect, Now, PlacementChange};
use crate::replay::Replay;
use crate::shard::{Shard, ShardSettings};
use crate::shard_log::ShardLog;

/// How a shard stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StorageSettings {
    /// The log.
    pub log: LogSettings,
    /// Bytes of a topic's segment before the next one begins.
    pub topic_segment_bytes: u64,
    /// Segments that one partition keeps.
    pub topic_segments_max: u64,
    /// The smallest that a segment of a topic with little retention may be.
    pub topic_segment_bytes_min: u64,
    /// Bytes that the log may grow by before a checkpoint begins.
    pub checkpoint_bytes: u64,
    /// Bytes of a partition's records that a checkpoint moves to a topic segment; less is written again at the log's head.
    pub tail_bytes_to_store: u64,
    /// Bytes of all tails that are written again; beyond, smaller ones move to topic segments, too.
    pub tails_bytes_max: u64,
    /// How much of a checkpoint's image is made in one turn: a partition counts 16, and so do its groups, a known message 1.
    pub image_weight_per_turn: usize,
    /// Record batches that a checkpoint gives to topic segments at a time.
    pub store_batches_max: usize,
    /// Somebody has looked at the damage that earlier starts found: what they kept because of it may go.
    pub forgets_damage: bool,
}

impl StorageSettings {
    /// Settings of a real shard; `epoch` must be random, fresh and secret.
    #[must_use]
    pub fn new(shard: ShardId, epoch: u64) -> Self {
        Self {
            log: LogSettings::new(shard, epoch),
            topic_segment_bytes: 64 << 20,
            topic_segments_max: 10,
            topic_segment_bytes_min: 1 << 20,
            checkpoint_bytes: 64 << 20,
            tail_bytes_to_store: TAIL_BYTES_TO_STORE,
            tails_bytes_max: TAILS_BYTES_MAX,
            image_weight_per_turn: IMAGE_WEIGHT_PER_TURN,
            store_batches_max: STORE_BATCHES_MAX,
            forgets_damage: false,
        }
    }
}

/// Whether a shard takes what is to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorageState {
    /// It has no log: memory topics alone.
    Memory,
    /// It does.
    Open,
    /// Not now: writes wait for the disk.
    Busy,
    /// Not before there is room on the disk.
    Full,
    /// Not before the next start: a write failed, and what is on the disk is not known.
    Poisoned,
}

/// Counts of a shard's storage since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StorageStats {
    /// Commit batches that became durable: as many syncs of the log.
    pub commits: u64,
    /// Bytes of them on the disk.
    pub commit_bytes: u64,
    /// Entries in them.
    pub commit_entries: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Checkpoints that failed and were or will be tried again.
    pub checkpoint_failures: u64,
    /// Bytes written to topic segments.
    pub segment_bytes: u64,
    /// Bytes read from topic segments.
    pub read_bytes: u64,
    /// Bytes of records that the log holds and topic segments do not.
    pub tail_bytes: u64,
}

/// What an opener says.
#[derive(Debug)]
pub enum OpeningOutput {
    /// Do this and bring the result.
    Do {
        /// Comes back with the result.
        operation: OperationId,
        /// What to do.
        effect: FileEffect,
    },
    /// The shard is ready.
    Opened(Box<OpenedShard>),
    /// The log cannot be opened; nothing was changed.
    Refused(OpenRefused),
}

/// A shard as it was found.
#[derive(Debug)]
pub struct OpenedShard {
    /// The shard.
    pub shard: Shard,
    /// What it does first.
    pub effects: Vec<Effect>,
    /// What opening found.
    pub report: OpeningReport,
}

/// What opening found.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct OpeningReport {
    /// What a person should know.
    pub findings: Vec<Finding>,
    /// A checkpoint slot that is damaged; the other one was used, or the whole log, if `checkpoint` says that there is none.
    pub damaged_slot: Option<SlotName>,
    /// Number of the checkpoint from which the log was replayed.
    pub checkpoint: Option<u64>,
    /// Entries replayed.
    pub entries: u64,
    /// Topics, memory topics excluded.
    pub topics: u64,
    /// Their records.
    pub records: u64,
    /// Their groups.
    pub groups: u64,
    /// Topic segments that are not there: the topic, the file, the first offset and the one after the last.
    pub missing: Vec<(TopicName, TopicFile, Offset, Offset)>,
    /// Records that are nowhere: the topic, the first offset and the one after the last.
    pub lost: Vec<(TopicName, Offset, Offset)>,
    /// Topics of which this shard has partitions and the shard that decides about them has nothing, and whether they were removed.
    pub orphans: Vec<(TopicName, bool)>,
    /// Topics of which an earlier life was found whose end is lost: it is out of service, the later one serves.
    pub outlived: Vec<TopicName>,
    /// This start or an earlier one found damage, so that nothing is removed that nobody knows of.
    pub is_in_doubt: bool,
    /// The checkpoint that was there said so.
    pub was_in_doubt: bool,
    /// Topic segments that nobody knows of and that are kept because of that.
    pub kept: Vec<TopicFile>,
}

/// Opens one shard.
#[derive(Debug)]
pub struct ShardOpener {
    storage: StorageSettings,
    slots: Slots,
    opener: LogOpener,
    shard: Option<Shard>,
    replay: Replay,
    report: OpeningReport,
    /// Topic segments that were found.
    topic_files: BTreeSet<TopicFile>,
}

impl ShardOpener {
    /// An opener of a directory with these `files` and their sizes; `slots` are the whole contents of slot A and B, where they are
    /// there.
    ///
    /// # Errors
    /// When the slots cannot be used; nothing was changed.
    pub fn new(
        id: ShardId,
        settings: ShardSettings,
        storage: StorageSettings,
        files: &[(FileName, u64)],
        slots: &[Option<Bytes>; 2],
    ) -> Result<Self, SlotsRefused> {
        let slots = choose_slot(id, slots[0].as_ref(), slots[1].as_ref())?;
        let checkpoint = slots.newer.as_ref().map(|(_, content)| &content.checkpoint);
        let opener = LogOpener::new(id, checkpoint, files);
        let (mut shard, mut replay) = (Shard::new(id, settings), Replay::default());
        if let Some(checkpoint) = checkpoint {
            shard.replay_checkpoint(checkpoint, &mut replay);
        }
        let report = OpeningReport {
            damaged_slot: slots.damaged,
            checkpoint: slots.newer.as_ref().map(|(_, content)| content.sequence),
            ..OpeningReport::default()
        };
        let topic_files = files.iter().filter_map(|(file, _)| match file {
            FileName::Topic(file) => Some(*file),
            _ => None,
        });
        let topic_files = topic_files.collect();
        Ok(Self { storage, slots, opener, shard: Some(shard), replay, report, topic_files })
    }

    /// Begins.
    pub fn start(&mut self, out: &mut Vec<OpeningOutput>) {
        let mut outputs = Vec::new();
        self.opener.start(&mut outputs);
        self.take(outputs, out);
    }

    /// Takes the result of an operation.
    pub fn completed(&mut self, operation: OperationId, completion: &Completion, out: &mut Vec<OpeningOutput>) {
        let mut outputs = Vec::new();
        self.opener.completed(operation, completion, &mut outputs);
        self.take(outputs, out);
    }

    fn take(&mut self, outputs: Vec<OpenOutput>, out: &mut Vec<OpeningOutput>) {
        for output in outputs {
            match output {
                OpenOutput::Do { operation, effect } => out.push(OpeningOutput::Do { operation, effect }),
                OpenOutput::Entry { entry, .. } => {
                    if let Some(shard) = &mut self.shard {
                        shard.replay(entry, &mut self.replay);
                    }
                }
                OpenOutput::Finding(finding) => self.report.findings.push(finding),
                OpenOutput::Refused(refused) => out.push(OpeningOutput::Refused(refused)),
                OpenOutput::Opened(opened) => {
                    let opened = self.shard.take().map(|shard| self.finish(shard, opened));
                    out.extend(opened.map(|opened| OpeningOutput::Opened(Box::new(opened))));
                }
            }
        }
    }

    fn finish(&mut self, mut shard: Shard, opened: Opened) -> OpenedShard {
        let mut report = std::mem::take(&mut self.report);
        shard.replayed(std::mem::take(&mut self.replay), &self.storage, &self.topic_files, &mut report);
        self.find_lost_ends(&shard, &mut report);
        shard.doubt = self.doubt(&report);
        report.is_in_doubt = shard.doubt == Doubt::Open;
        report.was_in_doubt = self.noted_doubt() == Doubt::Open;
        let (mut log_outputs, mut slot_outputs) = (Vec::new(), Vec::new());
        // Each start makes segments with numbers of their own before a group gives anything out.
        shard.next_epoch = shard.next_epoch.max(opened.next_number.0 << EPOCHS_PER_SEGMENT_BITS);
        for finding in &report.findings {
            shard.set_aside(finding);
        }
        let bytes_found = opened.used.iter().map(|segment| segment.bytes).sum();
        let writer = LogWriter::new(self.storage.log, opened, &mut log_outputs);
        let slots = SlotWriter::new(shard.id(), &self.slots, &mut slot_outputs);
        // Two checkpoints come at once where the slots do not say of doubt what counts from now on.
        let valid = usize::from(self.slots.newer.is_some()) + usize::from(self.slots.older.is_some());
        let slots_valid = if self.noted_doubt() == shard.doubt { valid } else { 0 };
        let mut log = ShardLog::new(self.storage, writer, slots, Checkpointing::new(slots_valid, bytes_found));
        self.drop_strangers(&shard, &mut log, &mut report);
        (log.log_outputs, log.slot_outputs) = (log_outputs, slot_outputs);
        shard.log = Some(Box::new(log));
        let mut effects = Vec::new();
        shard.settle_log(Now::default(), &mut effects);
        shard.unlink_files(&mut effects);
        OpenedShard { shard, effects, report }
    }
}

impl ShardOpener {
    /// Whether it is known what was deleted, by what this start found, and earlier ones, whose checkpoints have moved on since.
    fn doubt(&self, report: &OpeningReport) -> Doubt {
        let is_damage = |finding: &Finding| !matches!(finding, Finding::Cut { .. });
        let (noted, has_word) = (self.noted_doubt(), self.storage.forgets_damage);
        if !report.outlived.is_empty() || report.findings.iter().any(is_damage) {
            return Doubt::Open;
        }
        // What is lost for good is found again by each start.
        match (noted, report.lost.is_empty()) {
            (Doubt::Open, _) | (Doubt::No, false) if !has_word => Doubt::Open,
            (_, false) => Doubt::Settled,
            (_, true) => Doubt::No,
        }
    }

    /// What the newer checkpoint says.
    fn noted_doubt(&self) -> Doubt {
        self.slots.newer.as_ref().map_or(Doubt::No, |(_, content)| content.checkpoint.doubt)
    }

    /// A file that begins at the end of its partition's records, or behind, held some that are lost: their offsets were given.
    fn find_lost_ends(&self, shard: &Shard, report: &mut OpeningReport) {
        for file in &self.topic_files {
            let Some(topic) = shard.partitions.get(&file.partition) else { continue };
            let end = topic.log.high_water().offset();
            if file.base >= end && !topic.is_set_aside {
                let (awaited, found) = (Some(end), file.base);
                report.findings.push(Finding::Quarantined { partition: file.partition, awaited, found });
            }
        }
    }

    /// Files that no slot names: those of topics that are gone go at once, those that a checkpoint left which came to no end go when
    /// no slot can name them. Where something is damaged nobody knows what is gone, and nothing goes.
    fn drop_strangers(&self, shard: &Shard, log: &mut ShardLog, report: &mut OpeningReport) {
        for file in &self.topic_files {
            match shard.partitions.get(&file.partition) {
                Some(topic) if topic.log.has_segment(file.base) => {}
                _ if report.is_in_doubt => report.kept.push(*file),
                Some(_) => log.checkpointing.drop_found(std::iter::once(*file)),
                None => log.checkpointing.unlinks.push(*file),
            }
        }
        for (_, topic) in shard.partitions_in_order() {
            log.drop_files(topic.log.dropped.clone());
        }
    }
}

impl Shard {
    /// How the shard's storage stands.
    #[must_use]
    pub fn storage_state(&self) -> StorageState {
        self.log.as_ref().map_or(StorageState::Memory, |log| log.state)
    }

    /// Counts of the shard's storage.
    #[must_use]
    pub fn storage_stats(&self) -> StorageStats {
        let stats = self.log.as_ref().map(|log| log.stats).unwrap_or_default();
        StorageStats { tail_bytes: self.bytes.tails, ..stats }
    }

    /// Whether everything admitted is durable, or never will be: the process may end.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.is_settled())
    }

    /// The topics that this shard decides about, for the placement tables of a start.
    pub fn placements(&self) -> impl Iterator<Item = PlacementChange> {
        let firsts = self.partitions_in_order().into_iter().filter(|(partition, _)| partition.partition == 0);
        let living = firsts.filter_map(|(partition, _)| Some((partition, self.living(partition)?)));
        living.map(|(partition, topic)| self.placement_of(partition.incarnation, topic))
    }
}
