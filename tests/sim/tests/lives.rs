//! Of two lives of one name that damage leaves in a log the later one serves, whatever the order in which they are found.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use ringmain_engine::{Command, Now, OpeningReport, PlacementChange, Reply, ShardSettings, StorageSettings};
use ringmain_model::{Incarnation, Message, Offset, PartitionRef, ShardId, Storage, TopicConfig, TopicName};
use ringmain_sim::{Disk, Plain};
use ringmain_wal::{
    BLOCK_BYTES, BatchBuilder, Effect, Entry, FileName, LogOpener, LogOutput, LogSettings, LogWriter, OpenOutput,
    SegmentNumber, TopicCreated, TopicFile,
};

const SHARD: ShardId = ShardId(0);
const FIRST: FileName = FileName::Segment(SegmentNumber(1));

fn partition(life: u64) -> PartitionRef {
    PartitionRef { incarnation: Incarnation(life), partition: 0 }
}

fn name() -> TopicName {
    TopicName::new("t").unwrap()
}

fn created(life: u64, created_us: i64) -> Entry {
    let config = TopicConfig { storage: Storage::Wal, ..TopicConfig::default() };
    Entry::TopicCreated(TopicCreated {
        incarnation: Incarnation(life),
        name: name(),
        created_us,
        partitions: 1,
        config,
    })
}

fn records(life: u64, text: &str) -> Entry {
    let mut builder = BatchBuilder::new(partition(life), Offset(0), 0);
    builder.push(&Message::of(text.as_bytes().to_vec()), 1_700_000_000_000_000);
    Entry::Records(builder.finish().unwrap())
}

fn deleted(life: u64) -> Entry {
    Entry::TopicDeleted { incarnation: Incarnation(life), name: name() }
}

/// A disk whose log has one batch for each entry, in the blocks from the second on.
fn written(entries: &[Entry]) -> Disk {
    let mut disk = Disk::new(1 << 30);
    let (mut opener, mut out, mut opened) = (LogOpener::new(SHARD, None, &[]), Vec::new(), None);
    opener.start(&mut out);
    while let Some(output) = out.pop() {
        match output {
            OpenOutput::Do { operation, effect } => opener.completed(operation, &disk.perform(&effect), &mut out),
            OpenOutput::Opened(done) => opened = Some(done),
            other => panic!("{other:?}"),
        }
    }
    let mut out = Vec::new();
    let mut writer = LogWriter::new(LogSettings::new(SHARD, 5), opened.unwrap(), &mut out);
    let mut settle = |writer: &mut LogWriter, out: &mut Vec<LogOutput>| {
        while !out.is_empty() {
            for output in std::mem::take(out) {
                if let LogOutput::Do { operation, effect } = output {
                    writer.completed(operation, &disk.perform(&effect), out);
                }
            }
        }
    };
    settle(&mut writer, &mut out);
    for entry in entries {
        writer.append(entry, &mut out).unwrap();
        writer.turn_ended(&mut out);
        settle(&mut writer, &mut out);
    }
    disk
}

fn open(disk: Disk) -> (Plain, OpeningReport) {
    let storage = |id: ShardId| StorageSettings::new(id, 77);
    let settings = ShardSettings { cores: 1, ..ShardSettings::default() };
    let now = Now { unix_us: 1_700_000_000_000_000, monotonic_ms: 0 };
    let opened = Plain::open(vec![disk], settings, storage, now);
    let (plain, mut reports) = opened.map_err(|(reason, _)| reason).expect("it opens");
    (plain, reports.remove(0))
}

#[track_caller]
fn expect_served(plain: &mut Plain, life: u64, text: &str) {
    let placed: Vec<_> = plain.placements();
    let is_life = |placement: &PlacementChange| matches!(placement, PlacementChange::Add { incarnation, .. } if *incarnation == Incarnation(life));
    assert!(placed.len() == 1 && is_life(&placed[0]), "{placed:?}");
    let read = Command::Read {
        partition: partition(life),
        from: Offset(0),
        bytes_max: 1000,
        records_max: 10,
        following: false,
    };
    let Reply::Page(page) = plain.ask(0, read).unwrap() else { panic!("no page") };
    let payloads: Vec<_> =
        page.batches.iter().flat_map(|batch| batch.records().map(|one| one.payload.to_vec())).collect();
    assert_eq!(payloads, [text.as_bytes().to_vec()]);
}

/// The whole batch in a block of the first segment is lost.
fn lose_batch(disk: &mut Disk, number: usize) {
    let at = number * usize::try_from(BLOCK_BYTES).unwrap();
    disk.damage(FIRST, |content| content[at + 70] ^= 1);
}

#[test]
fn the_later_of_two_lives_serves_and_the_files_of_the_older_one_stay() {
    // Numbers and clocks say nothing of the order in which they lived.
    for (older, newer, times) in [(64, 128, [5, 9]), (128, 64, [5, 9]), (64, 128, [9, 5]), (128, 64, [9, 5])] {
        let log = [
            created(older, times[0]),
            records(older, "old"),
            deleted(older),
            created(newer, times[1]),
            records(newer, "new"),
        ];
        let mut disk = written(&log);
        let file = FileName::Topic(TopicFile { partition: partition(older), base: Offset(0) });
        disk.perform(&Effect::Allocate { file, bytes: BLOCK_BYTES });
        disk.perform(&Effect::SyncDirectory);
        lose_batch(&mut disk, 3);
        let (mut plain, report) = open(disk);
        assert_eq!(report.outlived, [name()], "{older} {newer}: {report:?}");
        expect_served(&mut plain, newer, "new");
        // Checkpoints come, and starts that find nothing wrong any more.
        for _ in 0..3 {
            plain.pass_ms(120_000);
            let (again, report) = open(plain.disks.remove(0));
            plain = again;
            assert!(report.outlived.is_empty() && report.is_in_doubt, "{report:?}");
            assert_eq!(report.kept.len(), 1);
            expect_served(&mut plain, newer, "new");
            assert!(plain.disks[0].whole(file).is_some(), "what the older life left is kept");
        }
        // The name is free again after one delete.
        let gone = plain.ask(0, Command::Delete { name: name() }).unwrap();
        assert!(matches!(gone, Reply::Deleted), "{gone:?}");
        assert!(plain.placements().is_empty());
        let (plain, _) = open(plain.disks.remove(0));
        assert!(plain.placements().is_empty());
    }
}

#[test]
fn three_lives_of_which_two_lost_their_end_leave_the_last() {
    let log = [created(64, 3), deleted(64), created(192, 2), deleted(192), created(128, 1), records(128, "last")];
    let mut disk = written(&log);
    lose_batch(&mut disk, 2);
    lose_batch(&mut disk, 4);
    let (mut plain, report) = open(disk);
    assert_eq!(report.outlived, [name(), name()]);
    expect_served(&mut plain, 128, "last");
}

#[test]
fn lives_that_ended_as_they_should_are_nothing_to_tell_of() {
    let log = [created(64, 3), deleted(64), created(192, 2), records(192, "this")];
    let (mut plain, report) = open(written(&log));
    assert_eq!((report.outlived.len(), report.is_in_doubt), (0, false));
    expect_served(&mut plain, 192, "this");
}
