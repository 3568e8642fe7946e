//! Promise: what one start kept because something was damaged no later start removes, until an operator says that the damage was seen.

use crate::deadline::wait_until;
use crate::stored_directory::{Bytes, DataDirectory};
use std::fs;
use std::path::PathBuf;

const MESSAGES: u64 = 12;
/// A topic segment of a topic that no checkpoint and no log knows.
const STRANGER: &str = "topic-00000000000000aa-00000000-0000000000000000.segment";

/// A directory with a hole in its log and a stranger among its files.
fn damaged() -> (DataDirectory, PathBuf) {
    let data = DataDirectory::new();
    let broker = data.start();
    broker.create_logged_topic("t");
    wait_until("both slots are written", || data.marked(b"RMSLOT\0\0").len() == 2);
    broker.publish_numbers("t", 0..MESSAGES);
    drop(broker);
    let batches = data.batches();
    let batch = &batches[batches.len() - 3];
    Bytes::of(&batch.file).unwrap().flip(batch.position + batch.length - 1, 1);
    let folder = batch.file.parent().unwrap().to_owned();
    fs::write(folder.join(STRANGER), "records of which nobody knows whether they were deleted").unwrap();
    (data, folder)
}

#[test]
fn what_is_in_doubt_is_kept_until_somebody_has_looked() {
    let (data, folder) = damaged();
    let slots = || data.marked(b"RMSLOT\0\0").iter().map(|slot| fs::read(slot).unwrap()).collect::<Vec<_>>();
    let before = slots();
    let broker = data.start();
    wait_until("both checkpoints know of the damage", || slots().iter().all(|slot| !before.contains(slot)));
    // They move on, and with them what the log tells of it.
    broker.create_logged_topic("whole");
    let of_start = slots();
    wait_until("both checkpoints are later ones", || {
        for _ in 0..10 {
            broker.publish("whole", &[0; 512 << 10]);
        }
        slots().iter().all(|slot| !of_start.contains(slot))
    });
    drop(broker);
    for start in 0..3 {
        data.start().publish("whole", b"x");
        assert!(folder.join(STRANGER).exists(), "gone after start {start}");
    }
    let in_doubt = slots();
    fs::write(folder.join("damage-seen"), "").unwrap();
    let broker = data.start();
    wait_until("it goes with the word", || !folder.join(STRANGER).exists());
    assert!(broker.everything("t", 0).offsets().len() as u64 >= MESSAGES - 3, "of the topic nothing more is lost");
    drop(broker);
    // Without doubt a stranger goes at once again.
    fs::write(folder.join(STRANGER), "another").unwrap();
    let broker = data.start();
    wait_until("it goes", || !folder.join(STRANGER).exists());
    wait_until("both checkpoints say so", || slots().iter().all(|slot| !in_doubt.contains(slot)));
    drop(broker);
    let _broker = data.start();
    assert!(!folder.join("damage-seen").exists(), "the word holds once");
}
