//! Promise: `ringmain inspect` tells what a file of a data directory is and holds, names what is damaged in it, ends with an
//! exit code that a script can use, and never changes a byte.

use crate::broker::{Folder, program};
use crate::subcommands::Outcome;
use ringmain_wal::SegmentHeader;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const BLOCK: usize = 4096;

/// The bytes of a file that every version of the program reads.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("shards/wal/tests/data").join(name)).unwrap()
}

pub(crate) fn segment() -> Vec<u8> {
    golden("log-segment-v1.bin")
}

pub(crate) fn write(folder: &Folder, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

fn command(path: &Path, flags: &[&str]) -> (Command, Folder) {
    let folder = Folder::new();
    let mut command = program(&folder, &["timeout", "--signal=KILL", "30"]);
    command.arg("inspect").arg(path).args(flags);
    (command, folder)
}

/// All files below a path with their bytes and the time of their last change.
fn picture(path: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let Ok(metadata) = fs::metadata(path) else { return Vec::new() };
    if metadata.is_dir() {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        return names.iter().flat_map(|name| picture(name)).collect();
    }
    let bytes = if metadata.is_file() { fs::read(path).unwrap() } else { Vec::new() };
    vec![(path.to_owned(), bytes, metadata.modified().unwrap())]
}

/// Inspects a path, and checks that nothing below it was changed.
#[track_caller]
pub(crate) fn inspect(path: &Path, flags: &[&str]) -> Outcome {
    let before = picture(path);
    let (mut command, _folder) = command(path, flags);
    let output = command.output().unwrap();
    assert!(picture(path) == before, "{} was changed", path.display());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let outcome = Outcome { code: output.status.code(), out: text(output.stdout), words: text(output.stderr) };
    assert!(!outcome.words.contains("panicked"), "{outcome:?}");
    outcome
}

/// The JSON document of a path, which is one line.
#[track_caller]
pub(crate) fn document(path: &Path, flags: &[&str], code: i32) -> Value {
    let outcome = inspect(path, &[flags, &["--json"]].concat()).expect(code);
    assert_eq!(outcome.out.lines().count(), 1, "{outcome:?}");
    serde_json::from_str(&outcome.out).unwrap()
}

#[track_caller]
pub(crate) fn assert_has(outcome: &Outcome, words: &[&str]) {
    for word in words {
        assert!(outcome.out.contains(word), "{word:?} is not in:\n{}{}", outcome.out, outcome.words);
    }
}

#[test]
fn a_log_segment_is_told_by_its_content() {
    let folder = Folder::new();
    let path = write(&folder, "some name", &segment());
    let outcome = inspect(&path, &[]).expect(0);
    assert_has(&outcome, &["log segment, 16384 bytes", "segment 1 of shard 3, epoch 0123456789abcdef", "zeros follow"]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = outcome.out.lines().map(words).collect();
    for line in ["4096 489 1 5 ok first here", "8192 204 2 3 ok ok", "12288 4096 zeros"] {
        assert!(lines.iter().any(|one| one == line), "{line:?} is not in {lines:?}");
    }
    assert!(outcome.words.is_empty() && !outcome.out.contains("topic-1"), "{outcome:?}");

    let outcome = inspect(&path, &["--verbose"]).expect(0);
    assert_has(
        &outcome,
        &["topic created", "\"topic-1\"", "topic changed", "partitions 4", "topic deleted", "group deleted"],
    );
    assert_has(&outcome, &["offsets 0 to 2, count 3", "2023-11-14T22:13:20Z", "committed 3, acknowledged 5 to 7"]);
}

#[test]
fn a_log_segment_is_told_as_json() {
    let folder = Folder::new();
    let path = write(&folder, "0000000000000001.log", &segment());
    let told = document(&path, &["--verbose"], 0);
    assert_eq!((&told["kind"], &told["bytes"]), (&"log_segment".into(), &16384.into()));
    assert_eq!((&told["header"]["segment"], &told["header"]["shard"]), (&1.into(), &3.into()));
    assert_eq!(told["header"]["epoch"], "0123456789abcdef");
    let items = told["items"].as_array().unwrap();
    let kinds: Vec<_> = items.iter().map(|item| item["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["batch", "batch", "zeros"]);
    assert_eq!(items[1]["previous_checksum"], items[0]["checksum"]);
    assert_eq!((&items[0]["chain_ok"], &items[1]["chain_ok"]), (&Value::Null, &true.into()));
    let kinds = |item: &Value| -> Vec<String> {
        item["entries"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&items[0]), ["topic_created", "topic_created", "records", "topic_changed", "group_progress"]);
    assert_eq!(kinds(&items[1]), ["topic_deleted", "group_deleted", "records"]);
    let records = &items[1]["entries"][2];
    assert_eq!((&records["incarnation"], &records["first_offset"]), (&"0000000000000001".into(), &3.into()));
    assert_eq!((&told["log_end"]["position"], &told["log_end"]["reason"]), (&12288.into(), &"zeros".into()));
    assert_eq!((&told["damage_count"], &told["damage"]), (&0.into(), &Value::Array(vec![])));
    assert!(document(&path, &[], 0)["items"][0].get("entries").is_none());
}

#[test]
fn a_checkpoint_slot_and_record_batches_are_told() {
    let folder = Folder::new();
    let slot = write(&folder, "checkpoint-a", &golden("checkpoint-slot-v1.bin"));
    let outcome = inspect(&slot, &["--verbose"]).expect(0);
    assert_has(&outcome, &["41 of shard 3", "from batch 3 in segment 1 at 12288", "segments 5, 6", "\"topic-1\""]);
    assert_has(&outcome, &["starts at 1, ends before 4", "group \"group\""]);
    let told = document(&slot, &[], 0);
    assert_eq!((&told["kind"], &told["slot"]["sequence"]), (&"checkpoint_slot".into(), &41.into()));
    assert_eq!(told["slot"]["held_segments"], serde_json::json!([5, 6]));
    assert_eq!((&told["slot"]["topic_count"], &told["slot"]["group_count"]), (&1.into(), &1.into()));

    let batch = golden("record-batch-v1.bin");
    let two = write(&folder, "batches", &[batch.clone(), batch.clone()].concat());
    assert_has(&inspect(&two, &[]).expect(0), &["record batches, 282 bytes", "partition 3, offsets 41 to 43"]);
    let told = document(&two, &[], 0);
    assert_eq!((&told["batches"][1]["position"], &told["batches"][1]["count"]), (&141.into(), &3.into()));
    let cut = write(&folder, "cut", &batch[..140]);
    assert_eq!(document(&cut, &[], 1)["damage"][0]["position"], 0);
}

#[test]
fn each_flipped_byte_is_found_and_its_batch_named() {
    let folder = Folder::new();
    // All of a header in its fields, and something of the content.
    for (block, sequence, length) in [(1, 1, 489), (2, 2, 204)] {
        for byte in (0..52).chain([64, length - 1]) {
            let mut bytes = segment();
            bytes[block * BLOCK + byte] ^= 0x20;
            let path = write(&folder, "0000000000000001.log", &bytes);
            let told = document(&path, &[], 1);
            let damage = &told["damage"][0];
            assert_eq!(damage["position"], block * BLOCK, "byte {byte} of batch {sequence}: {told}");
            // The first one's own number is all that tells it, and may be what is damaged.
            let is_told = block == 2 || !(16..24).contains(&byte);
            assert!(!is_told || damage["sequence"] == sequence, "byte {byte} of batch {sequence}: {told}");
        }
    }
    let mut bytes = segment();
    bytes[2 * BLOCK + 100] ^= 1;
    let outcome = inspect(&write(&folder, "0000000000000001.log", &bytes), &[]).expect(1);
    assert_has(&outcome, &["NOT WHOLE", "DAMAGE at 8192: batch 2"]);
    assert!(outcome.words.contains("batch 2"), "{outcome:?}");
    // Filling is covered by nothing.
    let mut bytes = segment();
    bytes[BLOCK + 600] ^= 1;
    inspect(&write(&folder, "0000000000000001.log", &bytes), &[]).expect(0);
}

#[test]
fn damaged_headers_and_slots_are_found() {
    let folder = Folder::new();
    let mut bytes = segment();
    bytes[0] ^= 1;
    for name in ["0000000000000001.log", "some name"] {
        let outcome = inspect(&write(&folder, name, &bytes), &[]).expect(1);
        assert_has(&outcome, &["log segment", "header      DAMAGED", "(2 in all)"]);
    }
    let wrong = write(&folder, "0000000000000002.log", &segment());
    assert_has(&inspect(&wrong, &[]).expect(1), &["which is not its name"]);
    for at in [0, 10, 30, 100] {
        let mut bytes = golden("checkpoint-slot-v1.bin");
        bytes[at] ^= 1;
        let told = document(&write(&folder, "checkpoint-b", &bytes), &[], 1);
        assert_eq!((&told["kind"], &told["slot"]), (&"checkpoint_slot".into(), &Value::Null), "byte {at}");
    }
}

#[test]
fn every_cut_of_a_file_is_told() {
    let folder = Folder::new();
    let whole = segment();
    for length in (0..BLOCK).step_by(511).chain((BLOCK..whole.len()).step_by(97)) {
        let path = write(&folder, "0000000000000001.log", &whole[..length]);
        let told = document(&path, &[], 1);
        assert_eq!((&told["kind"], &told["bytes"]), (&"log_segment".into(), &length.into()), "cut at {length}");
    }
    let slot = golden("checkpoint-slot-v1.bin");
    let counts = usize::try_from(u64::from_le_bytes(slot[16..24].try_into().unwrap())).unwrap();
    for length in (0..counts).step_by(9) {
        inspect(&write(&folder, "checkpoint-a", &slot[..length]), &[]).expect(1);
    }
    let outcome = inspect(&write(&folder, "empty", b""), &[]).expect(1);
    assert_has(&outcome, &["unknown, 0 bytes", "the file is empty"]);
    assert_has(&inspect(&write(&folder, "other", b"#!/bin/sh\n"), &[]).expect(1), &["none of Ringmain's files"]);
}

#[test]
fn what_cannot_be_read_is_a_matter_of_usage() {
    let folder = Folder::new();
    let outcome = inspect(&folder.path().join("nothing"), &[]).expect(2);
    assert!(outcome.words.contains("nothing") && outcome.out.is_empty(), "{outcome:?}");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let outcome = inspect(&pipe, &[]).expect(2);
    assert!(outcome.words.contains("neither a file nor a directory"), "{outcome:?}");
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let folder = Folder::new();
    let path = write(&folder, "0000000000000001.log", &segment());
    for flags in [&["--verbose"][..], &["--verbose", "--json"]] {
        let (mut command, _folder) = command(&path, flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        // Whether the pipe was closed before the few bytes were written is chance; a panic never is.
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    }
}

#[test]
fn a_large_file_costs_little_memory() {
    let folder = Folder::new();
    let path = write(&folder, "0000000000000001.log", &segment());
    // As if most of it were zeros that a disk never had to store.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    let header = SegmentHeader { bytes: 1 << 30, ..SegmentHeader::decode(&segment()).unwrap() };
    file.write_all_at(&header.encode(), 0).unwrap();
    let own = Folder::new();
    let mut limited = program(&own, &["sh", "-c", "ulimit -v 262144 && exec timeout --signal=KILL 120 \"$0\" \"$@\""]);
    let output = limited.arg("inspect").arg(&path).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("zeros follow"), "{told}");
}
