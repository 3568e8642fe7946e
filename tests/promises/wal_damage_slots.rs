//! Promise: one damaged checkpoint costs nothing; two refuse to start, say how to look at them, and change nothing, and so do missing ones
//! unless the whole log is there. So does whatever a newer program wrote. Files that are none of the broker's are left alone.

use crate::deadline::wait_until;
use crate::stored_directory::{Bytes, DataDirectory};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

const MESSAGES: u64 = 20;
const SLOT: &[u8; 8] = b"RMSLOT\0\0";
const LOG: &[u8; 8] = b"RMLOGSEG";

/// A directory with both slots, whose broker was killed.
fn written() -> DataDirectory {
    let data = DataDirectory::new();
    let broker = data.start();
    broker.create_logged_topic("t");
    broker.publish_numbers("t", 0..MESSAGES);
    broker.group_post("t", "g", "fetch", json!({ "max": 5, "from_offset": 0 }));
    broker.group_post("t", "g", "ack", json!({ "offsets": [0, 1, 2] }));
    wait_until("both slots are written", || data.marked(SLOT).len() == 2);
    drop(broker);
    data
}

#[track_caller]
fn expect_all(data: &DataDirectory) {
    let broker = data.start();
    let everything = broker.everything("t", 0);
    assert_eq!(everything.offsets(), (0..MESSAGES).collect::<Vec<_>>());
    assert!(everything.messages.iter().all(|(offset, bytes)| *bytes == offset.to_string().into_bytes()));
    assert_eq!(broker.group("t", "g")["committed_offset"], 3);
}

/// Panics unless a start is refused that names these words, and no file is another than before.
#[track_caller]
fn expect_refusal_that_changes_nothing(data: &DataDirectory, words: &[&str]) -> String {
    let before = data.contents();
    let told = data.expect_refusal();
    assert!(words.iter().all(|word| told.contains(word)), "{words:?}: {told}");
    let after = data.contents();
    let strip = |contents: &std::collections::BTreeMap<PathBuf, Vec<u8>>| {
        // The lock file has the number of the process that held it last.
        let kept = contents.iter().filter(|(path, _)| !path.to_string_lossy().contains("lock"));
        kept.map(|(path, bytes)| (path.clone(), bytes.clone())).collect::<Vec<_>>()
    };
    assert!(strip(&before) == strip(&after), "something changed: {:?} {:?}", before.keys(), after.keys());
    told
}

/// Places of a slot at which a flip is damage: all fields of its envelope, and its content.
fn places(slot: &Path) -> Vec<u64> {
    let length = Bytes::of(slot).unwrap().number(16, 8);
    vec![0, 9, 17, 25, 33, 34, 37, 41, 49, 57, 65, 69, 72, length - 1]
}

#[test]
fn one_damaged_slot_costs_nothing() {
    let written = written();
    for (index, slot) in written.marked(SLOT).iter().enumerate() {
        for place in places(slot).into_iter().skip(index).step_by(2) {
            println!("slot {index}, {place}");
            let data = written.copy();
            Bytes::of(&data.marked(SLOT)[index]).unwrap().flip(place, 1);
            expect_all(&data);
        }
        for length in [0, 71] {
            println!("slot {index} of {length} bytes");
            let data = written.copy();
            let slot = data.marked(SLOT)[index].clone();
            fs::OpenOptions::new().write(true).open(slot).unwrap().set_len(length).unwrap();
            expect_all(&data);
        }
    }
}

#[test]
fn two_damaged_slots_refuse_to_start() {
    let written = written();
    let data = written.copy();
    for slot in data.marked(SLOT) {
        Bytes::of(&slot).unwrap().flip(30, 1);
    }
    expect_refusal_that_changes_nothing(&data, &["ringmain inspect", "slot"]);
    // Told and refused each time, and one that is put back is all that is needed.
    expect_refusal_that_changes_nothing(&data, &["ringmain inspect"]);
    let slot = written.marked(SLOT)[0].clone();
    fs::copy(&slot, data.path().join(slot.strip_prefix(written.path()).unwrap())).unwrap();
    expect_all(&data);
}

#[test]
fn missing_slots_cost_nothing_while_the_whole_log_is_there() {
    let written = written();
    for (a_is_damaged, what) in [(false, "both are missing"), (true, "the second is missing, the first damaged")] {
        println!("{what}");
        let data = written.copy();
        let slots = data.marked(SLOT);
        fs::remove_file(&slots[1]).unwrap();
        if a_is_damaged {
            Bytes::of(&slots[0]).unwrap().flip(30, 1);
        } else {
            fs::remove_file(&slots[0]).unwrap();
        }
        expect_all(&data);
        expect_all(&data);
    }
}

#[test]
fn missing_slots_refuse_to_start_where_the_log_is_not_whole() {
    let written = written();
    // The first is missing and the second damaged: both were there once.
    let data = written.copy();
    let slots = data.marked(SLOT);
    fs::remove_file(&slots[0]).unwrap();
    Bytes::of(&slots[1]).unwrap().flip(30, 1);
    expect_refusal_that_changes_nothing(&data, &["checkpoint-a", "missing", "checkpoint-b", "damaged", "from a copy"]);
    // The log's beginning was released, as far as anybody can tell: all of it that is left, or nothing.
    let first = written.marked(LOG)[0].strip_prefix(written.path()).unwrap().to_owned();
    for a_is_damaged in [false, true] {
        let data = written.copy();
        let slots = data.marked(SLOT);
        // One more start, whose batches stand in a segment of their own.
        data.start().create_logged_topic("of-the-second-start");
        assert!(data.batches().iter().any(|batch| !batch.file.ends_with(&first)));
        fs::remove_file(data.path().join(&first)).unwrap();
        fs::remove_file(&slots[1]).unwrap();
        if a_is_damaged {
            Bytes::of(&slots[0]).unwrap().flip(30, 1);
        } else {
            fs::remove_file(&slots[0]).unwrap();
        }
        let words = ["checkpoint-a", "checkpoint-b", "from a copy", "ringmain inspect"];
        expect_refusal_that_changes_nothing(&data, &words);
        // Put back, it is all there again.
        fs::copy(written.path().join(&first), data.path().join(&first)).unwrap();
        expect_all(&data);
    }
}

/// Gives a block of the log, or of a slot, a newer version and a right checksum.
fn make_newer(file: &Bytes, length: usize) {
    file.write(12, &3_u32.to_le_bytes());
    let checksum = checksum(&file.text(12, length - 12).unwrap());
    file.write(8, &checksum.to_le_bytes());
}

/// crc32c, bit by bit: the test shares no code with the broker.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |checksum: u32, byte| {
        (0..8).fold(checksum ^ u32::from(*byte), |checksum, _| checksum >> 1 ^ (0x82f6_3b78 * (checksum & 1)))
    })
}

#[test]
fn what_a_newer_program_wrote_is_refused_and_left_as_it_is() {
    assert_eq!(checksum(b"123456789"), 0xe306_9283);
    let written = written();
    for index in 0..written.marked(SLOT).len() {
        let data = written.copy();
        let slot = Bytes::of(&data.marked(SLOT)[index]).unwrap();
        make_newer(&slot, slot.number(16, 8) as usize);
        expect_refusal_that_changes_nothing(&data, &["slot", "version 3"]);
    }
    for index in 0..written.marked(LOG).len() {
        let data = written.copy();
        make_newer(&Bytes::of(&data.marked(LOG)[index]).unwrap(), 4096);
        expect_refusal_that_changes_nothing(&data, &["newer", "nothing was changed"]);
    }
    // A batch of the log, whose version stands elsewhere.
    let last = written.batches().pop().unwrap();
    let data = written.copy();
    let file = Bytes::of(&data.path().join(last.file.strip_prefix(written.path()).unwrap())).unwrap();
    file.write(last.position + 12, &2_u32.to_le_bytes());
    let sum = checksum(&file.text(last.position + 4, last.length as usize - 4).unwrap());
    file.write(last.position, &sum.to_le_bytes());
    expect_refusal_that_changes_nothing(&data, &["newer", "nothing was changed"]);
}

#[test]
fn files_that_are_none_of_ours_are_left_alone() {
    let data = written();
    let shard = data.marked(SLOT)[0].parent().unwrap().to_owned();
    let mut strangers = Vec::new();
    for folder in [data.path().to_owned(), shard] {
        for name in
            ["notes.txt", ".hidden", "log-1.bak", "lost+found", "00000000000000000001.old", "ü", "slot-c", "0.tmp"]
        {
            let path = folder.join(name);
            if name == "lost+found" {
                fs::create_dir(&path).unwrap();
                strangers.push(path.join("inside"));
            } else {
                strangers.push(path);
            }
            fs::write(strangers.last().unwrap(), format!("mine: {name}")).unwrap();
        }
    }
    expect_all(&data);
    expect_all(&data);
    for path in strangers {
        let name = path.file_name().unwrap().to_string_lossy().replace("inside", "lost+found");
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("mine: {name}"), "{}", path.display());
    }
}
