//! Small logs on a pretend disk that works, and the things that are written to them.

use bytes::Bytes;
use ringmain_model::{
    GroupName, Incarnation, Message, Offset, PartitionRef, Retention, ShardId, Storage, TopicConfig, TopicName,
};
use ringmain_wal::{
    BLOCK_BYTES, BatchBuilder, Checkpoint, Completion, Effect, Entry, FileName, Finding, GroupProgress, LogOpener,
    LogOutput, LogPosition, LogSettings, LogWriter, NotAdmitted, OpenOutput, OpenRefused, Opened, SegmentNumber,
    Sequence, TopicCreated,
};

use crate::disk::Disk;

pub const SHARD: ShardId = ShardId(3);

pub fn partition(life: u64) -> PartitionRef {
    PartitionRef { incarnation: Incarnation(life), partition: 0 }
}

pub fn created(life: u64) -> Entry {
    let retention = Retention { max_messages: 10, max_bytes: 1 << 20, max_age_ms: None };
    Entry::TopicCreated(TopicCreated {
        incarnation: Incarnation(life),
        name: TopicName::new(&format!("topic-{life}")).unwrap(),
        created_us: 1_700_000_000_000_000,
        partitions: 1,
        config: TopicConfig { storage: Storage::Memory, retention, ack_wait_ms: 30_000, ..TopicConfig::default() },
    })
}

pub fn records(life: u64, base: u64, count: u64, payload_bytes: usize) -> Entry {
    let mut builder = BatchBuilder::new(partition(life), Offset(base), 0);
    for index in 0..count {
        let fill = (life * 31 + base + index) as u8;
        builder.push(&Message::of(vec![fill; payload_bytes]), 1_700_000_000_000_000);
    }
    Entry::Records(builder.finish().unwrap())
}

pub fn progress(life: u64, committed: u64) -> Entry {
    Entry::GroupProgress(GroupProgress {
        partition: partition(life),
        group: GroupName::new("group").unwrap(),
        epoch: 1,
        committed: Offset(committed),
        acked: vec![(Offset(committed + 2), Offset(committed + 5))],
        attempts: vec![(Offset(committed), 2), (Offset(committed + 1), 1)],
    })
}

pub fn settings(epoch: u64) -> LogSettings {
    LogSettings {
        segment_bytes_first: 4 * BLOCK_BYTES,
        segment_bytes_max: 16 * BLOCK_BYTES,
        segments_max: 8,
        batch_bytes_max: 8192,
        waiting_batches_max: 2,
        fill_bytes: 8192,
        ..LogSettings::new(SHARD, epoch)
    }
}

/// What opening said.
#[derive(Default, Debug)]
pub struct Opening {
    pub entries: Vec<(Sequence, Entry)>,
    pub findings: Vec<Finding>,
    pub opened: Option<Opened>,
    pub refused: Option<OpenRefused>,
    pub effects: Vec<Effect>,
}

pub fn open(disk: &mut Disk, checkpoint: Option<&Checkpoint>) -> Opening {
    let mut opener = LogOpener::new(SHARD, checkpoint, &disk.list());
    let (mut outputs, mut opening) = (Vec::new(), Opening::default());
    opener.start(&mut outputs);
    while !outputs.is_empty() {
        for output in std::mem::take(&mut outputs) {
            match output {
                OpenOutput::Do { operation, effect } => {
                    let completion = disk.perform(&effect);
                    if !matches!(effect, Effect::Read { .. }) {
                        opening.effects.push(effect);
                    }
                    opener.completed(operation, &completion, &mut outputs);
                }
                OpenOutput::Entry { sequence, entry } => opening.entries.push((sequence, entry)),
                OpenOutput::Finding(finding) => opening.findings.push(finding),
                OpenOutput::Opened(opened) => opening.opened = Some(opened),
                OpenOutput::Refused(refused) => opening.refused = Some(refused),
            }
        }
    }
    assert!(opening.opened.is_some() != opening.refused.is_some(), "the opener came to no end");
    opening
}

/// A writer whose effects are performed at once.
pub struct Log {
    pub disk: Disk,
    pub writer: LogWriter,
    pub said: Vec<LogOutput>,
    outputs: Vec<LogOutput>,
}

impl Log {
    pub fn on(mut disk: Disk, epoch: u64, checkpoint: Option<&Checkpoint>) -> Self {
        let opened = open(&mut disk, checkpoint).opened.unwrap();
        let mut outputs = Vec::new();
        let writer = LogWriter::new(settings(epoch), opened, &mut outputs);
        let mut log = Self { disk, writer, said: Vec::new(), outputs };
        log.settle();
        log
    }

    pub fn settle(&mut self) {
        while !self.outputs.is_empty() {
            for output in std::mem::take(&mut self.outputs) {
                match output {
                    LogOutput::Do { operation, effect } => {
                        let completion: Completion = self.disk.perform(&effect);
                        self.writer.completed(operation, &completion, &mut self.outputs);
                    }
                    said => self.said.push(said),
                }
            }
        }
    }

    pub fn append(&mut self, entry: &Entry) -> Result<Sequence, NotAdmitted> {
        let admitted = self.writer.append(entry, &mut self.outputs);
        self.settle();
        admitted
    }

    /// Appends one entry as one durable batch.
    pub fn commit(&mut self, entry: &Entry) -> Sequence {
        let sequence = self.append(entry).unwrap();
        self.end_turn();
        assert!(self.said.contains(&LogOutput::Durable(sequence)));
        sequence
    }

    pub fn end_turn(&mut self) {
        self.writer.turn_ended(&mut self.outputs);
        self.settle();
    }

    pub fn release(&mut self, position: &LogPosition) {
        self.writer.release(position, &mut self.outputs);
        self.settle();
    }

    pub fn try_again(&mut self) {
        self.writer.try_again(&mut self.outputs);
        self.settle();
    }
}

pub fn bare_checkpoint(position: LogPosition) -> Checkpoint {
    Checkpoint::at(position)
}

pub fn segment(number: u64) -> FileName {
    FileName::Segment(SegmentNumber(number))
}

/// A log of one topic and `batches` batches of records, one block each, as it stands on the disk; with what was written.
pub fn written(batches: u64) -> (Disk, Vec<(Sequence, Entry)>) {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    let mut entries = vec![created(1)];
    entries.extend((0..batches).map(|base| records(1, base, 1, 100)));
    let entries = entries.into_iter().map(|entry| (log.commit(&entry), entry)).collect();
    (log.disk, entries)
}

pub fn flip(disk: &mut Disk, file: FileName, at: usize, bits: u8) {
    disk.damage(file, |content| content[at] ^= bits);
}

pub fn zeros(count: usize) -> Bytes {
    Bytes::from(vec![0; count])
}
