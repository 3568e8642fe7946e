//! A data directory is one process's, keeps its number of shards, and is never mistaken for something else.

use std::fs;

use crate::storage::description::{Description, Unreadable};
use crate::storage::directory::{DataDirectory, DirectoryError};

use super::stage::Scratch;

#[test]
fn a_description_is_read_back_and_nothing_else_is_taken_for_one() {
    let description = Description { shards: 12 };
    assert_eq!(description.encode(), "ringmain-data 1\nshards 12\n");
    assert_eq!(Description::decode(&description.encode()).unwrap(), description);
    let damaged = [
        "",
        "ringmain-data 1\n",
        "ringmain-data 1\nshards 0\n",
        "ringmain-data 1\nshards 65536\n",
        "ringmain-data 1\nshards 12",
        "ringmain-data 1\nshards 12\ncolour blue\n",
        "ringmain-data 01\nshards 12\n",
        "ringmain-data x\nshards 12\n",
        "shards 12\nringmain-data 1\n",
    ];
    for text in damaged {
        assert!(matches!(Description::decode(text), Err(Unreadable::Damaged)), "{text:?}");
    }
    // Whatever a newer version says after its version is for newer programs.
    assert!(matches!(Description::decode("ringmain-data 2\ncolour blue\n"), Err(Unreadable::Newer(2))));
}

#[test]
fn a_new_directory_is_made_with_all_that_it_stands_in_and_opened_again() {
    let scratch = Scratch::new();
    let path = scratch.path().join("var/lib/ringmain");
    let directory = DataDirectory::open(&path, 3, false).unwrap();
    assert_eq!(directory.shards(), 3);
    for shard in ["shard-000", "shard-001", "shard-002"] {
        assert!(path.join(shard).is_dir());
    }
    drop(directory);
    assert_eq!(DataDirectory::open(&path, 1, false).unwrap().shards(), 3, "its own number counts");
    assert_eq!(DataDirectory::open(&path, 3, true).unwrap().shards(), 3);
    let refused = DataDirectory::open(&path, 4, true).unwrap_err();
    assert!(matches!(refused, DirectoryError::Shards { found: 3, wanted: 4, .. }), "{refused}");
    assert!(refused.to_string().contains("set it to 3"), "{refused}");
}

#[test]
fn a_second_process_is_told_which_one_has_the_directory() {
    let scratch = Scratch::new();
    let first = DataDirectory::open(scratch.path(), 1, false).unwrap();
    let refused = DataDirectory::open(scratch.path(), 1, false).unwrap_err();
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    drop(first);
    DataDirectory::open(scratch.path(), 1, false).unwrap();
}

#[test]
fn what_is_lost_or_foreign_is_refused_and_left_as_it_is() {
    let scratch = Scratch::new();
    drop(DataDirectory::open(scratch.path(), 2, false).unwrap());
    let description = scratch.path().join("description");
    let refusal = |text: &str| {
        fs::write(&description, text).unwrap();
        let refused = DataDirectory::open(scratch.path(), 2, false).unwrap_err();
        assert_eq!(fs::read_to_string(&description).unwrap(), text);
        refused
    };
    assert!(matches!(refusal("ringmain-data 2\n"), DirectoryError::Newer { version: 2, .. }));
    assert!(matches!(refusal("nonsense"), DirectoryError::Damaged { .. }));
    assert!(matches!(refusal("ringmain-data 1\nshards 3\n"), DirectoryError::FolderMissing { .. }));

    fs::remove_file(&description).unwrap();
    // A first start that was killed before it had described its empty folders.
    drop(DataDirectory::open(scratch.path(), 2, false).unwrap());
    fs::remove_file(&description).unwrap();
    fs::write(scratch.path().join("shard-001/checkpoint-a"), "x").unwrap();
    let refused = DataDirectory::open(scratch.path(), 2, false).unwrap_err();
    assert!(matches!(refused, DirectoryError::Undescribed { .. }), "{refused}");
    assert!(!description.exists());
}

#[test]
fn what_is_no_directory_is_told_with_the_cure() {
    let scratch = Scratch::new();
    let path = scratch.path().join("file");
    fs::write(&path, "x").unwrap();
    let refused = DataDirectory::open(&path.join("data"), 1, false).unwrap_err();
    assert!(refused.to_string().contains("WAL_DIR"), "{refused}");
}
