//! Promise: `ringmain inspect` of a data directory or a shard's folder tells what a start would make of it, and leaves
//! everything to that start.

use crate::broker::{Broker, Folder, Setup};
use crate::deadline::wait_until;
use crate::inspect::{BLOCK, assert_has, document, golden, inspect, segment, write};
use crate::wal_restart_segments::files_below;
use ringmain_model::{Incarnation, Message, Offset, PartitionRef, ShardId, TopicConfig, TopicName};
use ringmain_wal::{
    BatchBuilder, Checkpoint, Completion, Effect, LogMarks, LogPosition, PartitionSegments, SegmentHeader,
    SegmentNumber, SegmentsOutput, SegmentsWriter, StoreJob, encode_slot,
};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;
use std::fs;
use std::os::unix::fs::FileExt as _;

const LOG: &str = "shard-003/0000000000000001.log";
const SLOT_A: &str = "shard-003/checkpoint-a";
const SLOT_B: &str = "shard-003/checkpoint-b";

/// The golden segment, recycled once: its old batches stand behind another header.
fn recycled() -> Vec<u8> {
    let header = SegmentHeader { number: SegmentNumber(2), epoch: 77, bytes: 4 * BLOCK as u64, shard: ShardId(3) };
    let mut bytes = segment();
    bytes[..BLOCK].copy_from_slice(&header.encode());
    bytes
}

#[test]
fn a_whole_folder_is_well() {
    let folder = Folder::new();
    write(&folder, LOG, &segment());
    write(&folder, "shard-003/0000000000000002.log", &recycled());
    write(&folder, "shard-003/0000000000000003.preparing", &recycled());
    write(&folder, "shard-003/topic-00000000000000ab-0-17.segment", b"to be drawn");
    let shard = folder.path().join("shard-003");
    let outcome = inspect(&shard, &["--verbose"]).expect(0);
    assert_has(
        &outcome,
        &["Verdict on shard 3", "the whole log", "topics 1, partitions 4, groups 0, records 4 from the log"],
    );
    assert_has(&outcome, &["stale: 2 batches of an earlier life, sequences 1 to 2", "bytes of an earlier life follow"]);
    assert_has(&outcome, &["would remove 0000000000000003.preparing", "topic segment", "\"topic-1\"", "No damage"]);
    let told = document(&shard, &[], 0);
    let kinds: Vec<_> =
        told["shards"][0]["files"].as_array().unwrap().iter().map(|file| file["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["log_segment", "log_segment", "preparing", "topic_segment"]);
    let verdict = &told["shards"][0]["verdict"];
    assert_eq!((&told["kind"], &verdict["outcome"]), (&json!("shard_folder"), &json!("opens")));
    assert_eq!(verdict["goes_on"]["next_sequence"], 3);
    assert_eq!((&verdict["topics"], &verdict["records_from_log"]), (&json!(1), &json!(4)));
}

#[test]
fn a_checkpoint_is_where_a_start_begins() {
    let folder = Folder::new();
    write(&folder, LOG, &segment());
    let slot = golden("checkpoint-slot-v1.bin");
    write(&folder, SLOT_A, &slot);
    let shard = folder.path().join("shard-003");
    let verdict = document(&shard, &[], 0)["shards"][0]["verdict"].clone();
    assert_eq!(verdict["checkpoint"], json!({ "slot": "A", "sequence": 41 }));
    assert_eq!((&verdict["records_from_log"], &verdict["records_from_checkpoint"]), (&json!(0), &json!(3)));
    assert_eq!((&verdict["groups"], &verdict["held_segments"]), (&json!(1), &json!([5, 6])));
    // A copy of the folder is of the same shard, whatever its name.
    let copy = folder.path().join("copy");
    fs::rename(&shard, &copy).unwrap();
    assert_eq!(document(&copy, &[], 0)["shards"][0]["verdict"]["shard"], 3);
    fs::rename(&copy, &shard).unwrap();

    write(&folder, SLOT_B, &slot[..100]);
    assert_has(
        &inspect(&shard, &[]).expect(1),
        &["Slot B is damaged or was never finished", "checkpoint 41, from slot A"],
    );
    write(&folder, SLOT_A, &slot[..200]);
    let outcome = inspect(&shard, &[]).expect(1);
    assert_has(&outcome, &["It would REFUSE and change nothing: both checkpoint slots are damaged"]);
    assert_eq!(document(&shard, &[], 1)["shards"][0]["verdict"]["outcome"], "refuses");
}

/// Moves records of a partition into the file, and says what a checkpoint names.
fn store(file: &fs::File, partition: PartitionRef) -> PartitionSegments {
    let mut builder = BatchBuilder::new(partition, Offset(0), 0);
    builder.push(&Message::of(vec![7; 100]), 1_700_000_000_000_000);
    let job = StoreJob {
        partition,
        name: TopicName::new("stored").unwrap(),
        config: TopicConfig::default(),
        last: None,
        batches: vec![builder.finish().unwrap()],
        segment_bytes_max: 1 << 20,
    };
    let (mut writer, mut outputs) = (SegmentsWriter::new(ShardId(3)), Vec::new());
    assert!(writer.begin(vec![job], 1_700_000_000_000_000, &mut outputs));
    while let Some(output) = outputs.pop() {
        let (operation, effect) = match output {
            SegmentsOutput::Do { operation, effect } => (operation, effect),
            SegmentsOutput::Stored(mut stored) => return stored.remove(0),
            other => panic!("{other:?}"),
        };
        let completion = match &effect {
            Effect::Write { position, parts, .. } => {
                file.write_all_at(&parts.concat(), *position).unwrap();
                Completion::Written(effect.write_bytes())
            }
            _ => Completion::Done,
        };
        writer.completed(operation, &completion, &mut outputs);
    }
    panic!("nothing was stored")
}

#[test]
fn topic_segments_are_checked_as_far_as_the_checkpoint_names_them() {
    let folder = Folder::new();
    let partition = PartitionRef { incarnation: Incarnation(0xab), partition: 2 };
    let path = write(&folder, "shard-003/topic-00000000000000ab-2-0.segment", b"");
    let segments = store(&fs::File::options().write(true).open(&path).unwrap(), partition);
    let marks = LogMarks { partition, log_start: Offset(0), log_end: Offset(1) };
    let checkpoint = Checkpoint { marks: vec![marks], segments: vec![segments], ..Checkpoint::at(LogPosition::START) };
    write(&folder, SLOT_A, &encode_slot(ShardId(3), 1, &checkpoint));
    let shard = folder.path().join("shard-003");
    let outcome = inspect(&shard, &["--verbose"]).expect(0);
    assert_has(
        &outcome,
        &["topic 00000000000000ab partition 2 \"stored\" of shard 3, from offset 0 on", "topic segments 1"],
    );
    let told = document(&path, &[], 0);
    assert_eq!((&told["kind"], &told["header"]["topic"]), (&json!("topic_segment"), &json!("stored")));

    let whole = fs::read(&path).unwrap();
    for (at, what) in
        [(20, "is missing or its header is damaged"), (BLOCK + 90, "offsets 0 to 0"), (BLOCK + 3, "offsets 0 to 0")]
    {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_has(&inspect(&shard, &[]).expect(1), &["DAMAGE in", what]);
        assert_eq!(document(&shard, &[], 1)["damage_count"], 1);
    }
    // What stands behind that which the checkpoint names does not count.
    fs::write(&path, [&whole[..], b"half a chunk"].concat()).unwrap();
    inspect(&shard, &[]).expect(0);
    fs::write(&path, &whole[..BLOCK + 50]).unwrap();
    assert_has(&inspect(&shard, &[]).expect(1), &["it is cut"]);
}

#[test]
fn a_torn_end_would_be_cut_and_a_hole_reported() {
    let folder = Folder::new();
    let shard = folder.path().join("shard-003");
    let mut torn = segment();
    torn[2 * BLOCK + 150] ^= 1;
    write(&folder, LOG, &torn);
    let told = document(&shard, &[], 1);
    let finding = &told["shards"][0]["verdict"]["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["sequence"], &finding["position"]),
        (&json!("cut"), &json!(2), &json!(8192))
    );
    assert_eq!(told["damage_count"], 1, "one torn end is told once: {told}");
    assert_has(&inspect(&shard, &[]).expect(1), &["Batch 2", "would be CUT"]);

    let mut hole = segment();
    hole[BLOCK + 150] ^= 1;
    write(&folder, LOG, &hole);
    let outcome = inspect(&shard, &[]).expect(1);
    assert_has(&outcome, &["Batch 1 is LOST", "would be QUARANTINED", "segments 1"]);

    write(&folder, LOG, &segment()[..3 * BLOCK]);
    assert_has(&inspect(&shard, &[]).expect(1), &["Log segment 1 is SHORT"]);
    let mut headless = segment();
    headless[20] ^= 1;
    write(&folder, LOG, &headless);
    assert_has(&inspect(&shard, &[]).expect(1), &["header of log segment 1 is DAMAGED", "records 4 from the log"]);
    fs::rename(folder.path().join(LOG), shard.join("0000000000000001.quarantined")).unwrap();
    assert_has(&inspect(&shard, &[]).expect(1), &["an earlier start set it aside", "It would REFUSE", "first batch"]);
}

#[test]
fn files_of_another_shard_are_refused() {
    let folder = Folder::new();
    write(&folder, "shard-000/0000000000000001.log", &segment());
    let outcome = inspect(folder.path(), &[]).expect(1);
    assert_has(&outcome, &["It would REFUSE", "belongs to shard 3"]);
}

#[test]
fn a_data_directory_is_told_with_its_lock() {
    let folder = Folder::new();
    for number in 0..2_u16 {
        let header =
            SegmentHeader { number: SegmentNumber(1), epoch: 5, bytes: 2 * BLOCK as u64, shard: ShardId(number) };
        let mut bytes = header.encode();
        bytes.resize(2 * BLOCK, 0);
        write(&folder, &format!("shard-{number:03}/0000000000000001.log"), &bytes);
    }
    write(&folder, "description", b"shards 2\n");
    let lock = write(&folder, "lock", b"");
    let outcome = inspect(folder.path(), &[]).expect(0);
    assert_has(
        &outcome,
        &["data directory, shards 2", "shards 2\n", "not held", "Verdict on shard 0", "Verdict on shard 1"],
    );
    let told = document(folder.path(), &[], 0);
    assert_eq!((&told["kind"], &told["description"]), (&json!("data_directory"), &json!("shards 2\n")));
    assert_eq!(told["lock"], json!({ "present": true, "held": false, "process": null }));

    let file = fs::File::open(&lock).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let told = document(folder.path(), &[], 0);
    assert_eq!(told["lock"], json!({ "present": true, "held": true, "process": std::process::id() }));
    assert_has(&inspect(folder.path(), &[]).expect(0), &["is running here", "may be whole"]);
    for name in ["shard-001", "shard-001/0000000000000001.log"] {
        let outcome = inspect(&folder.path().join(name), &[]).expect(0);
        assert!(outcome.words.contains("is running here"), "{outcome:?}");
    }
    drop(file);

    fs::remove_dir_all(folder.path().join("shard-000")).unwrap();
    assert_has(&inspect(folder.path(), &[]).expect(1), &["MISSING     shard-000"]);
}

#[test]
fn a_directory_that_is_none_is_said_to_be_none() {
    let folder = Folder::new();
    for name in [None, Some("notes.txt"), Some("description")] {
        name.inspect(|name| drop(write(&folder, name, b"something else")));
        for flags in [&[][..], &["--json"]] {
            let outcome = inspect(folder.path(), flags).expect(2);
            assert!(outcome.words.contains("neither a data directory nor"), "{outcome:?}");
            assert!(outcome.out.is_empty(), "{outcome:?}");
        }
    }
}

/// The files of topic segments in a broker's folder.
fn segments(broker: &Broker) -> usize {
    files_below(broker.folder()).keys().filter(|path| path.extension().is_some_and(|end| end == "segment")).count()
}

#[test]
fn a_topic_that_was_deleted_after_a_checkpoint_is_no_damage() {
    let mut broker = Setup::new().logged().start();
    broker.create_topic("gone");
    broker.create_topic("stays");
    broker.publish("stays", b"m");
    // A checkpoint names segments of the topic, when enough was written.
    let payload = vec![7; 1 << 20];
    for _ in 0..400 {
        broker.publish("gone", &payload);
        if segments(&broker) > 0 {
            break;
        }
    }
    assert!(segments(&broker) > 0, "no checkpoint moved anything to segments");
    broker.delete_topic("gone");
    wait_until("its segments are gone", || segments(&broker) == 0);
    broker.kill();
    broker.wait_for_exit();
    assert_has(&inspect(&broker.folder().join("data"), &[]).expect(0), &["No damage"]);
    broker.restart();
    assert_eq!(broker.stats("stays")["message_count"], 1);
}
