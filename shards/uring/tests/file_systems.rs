//! File systems that are memory are written buffered; a full one tells how far it came, and goes on when there is room.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;
mod stage;

use std::path::Path;
use std::process::Command;

use ringmain_uring::{SyncChoice, WriteSync, measure_sync};

use disk::{BOTH, Disk, NEW, Scratch};
use stage::pattern;

/// A file system in memory with this much room, unmounted at the end.
struct Mount(Scratch);

impl Mount {
    fn new(bytes: u32) -> Mount {
        let scratch = Scratch::new();
        let size = format!("size={bytes}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&scratch.path).status();
        assert!(status.unwrap().success(), "root can mount");
        Mount(scratch)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0.path).status();
    }
}

#[test]
fn memory_is_written_buffered() {
    let scratch = Scratch::under(Path::new("/dev/shm"));
    let mut disk = Disk::new();
    for choice in BOTH {
        disk.ring.set_sync_choice(choice);
        let file = disk.ring.open_file(&scratch.file(&format!("{choice:?}")), NEW).unwrap();
        let facts = disk.ring.file_facts(file).unwrap();
        assert_eq!((facts.direct, facts.block_bytes), (false, 4096));
        assert!(disk.write(file, 0, &pattern(5000, 1), WriteSync::Data).synced);
        assert_eq!(disk.read(file, 0, 8192), pattern(5000, 1));
        disk.close(file);
    }
    measure_sync(&scratch.path).unwrap();
}

/// Fills the disk by writes that grow a file; gives how much went in and the reason for the end.
fn fill(disk: &mut Disk, path: &Path) -> (u64, Option<i32>) {
    let file = disk.ring.open_file(path, NEW).unwrap();
    let mut position = 0;
    loop {
        let written = disk.write(file, position, &pattern(64 * 1024, position), WriteSync::Data);
        position += u64::from(written.bytes);
        if written.bytes == 64 * 1024 {
            assert!(written.synced && written.error.is_none());
            continue;
        }
        assert!(!written.synced, "a short write is not durable");
        if let Some(error) = written.error {
            assert_eq!(written.bytes, 0);
            drop(written);
            let last = position - 4096;
            let whole = last / (64 * 1024) * 64 * 1024;
            let expected = &pattern(64 * 1024, whole)[(last - whole) as usize..][..4096];
            assert_eq!(disk.read(file, last, 4096), expected, "what was told as written is there");
            disk.close(file);
            return (position, Some(error));
        }
        assert!(position < 1 << 30, "it never filled up");
    }
}

#[test]
fn a_full_disk_is_told_and_writing_goes_on_when_there_is_room() {
    if !rustix::process::geteuid().is_root() {
        // Only root can mount a small file system. Elsewhere this test shows nothing.
        return;
    }
    // Not a multiple of the writes, so that one of them comes half way.
    const ROOM: u32 = 64 * 1024 * 9 + 4096 * 5;
    let mount = Mount::new(ROOM);
    let mut disk = Disk::new();
    for choice in BOTH {
        disk.ring.set_sync_choice(choice);
        let path = mount.0.file("full");
        let (bytes, error) = fill(&mut disk, &path);
        assert_eq!(error, Some(libc::ENOSPC));
        assert!(bytes > 64 * 1024 * 8 && bytes <= u64::from(ROOM), "{bytes}");

        let more = disk.ring.open_file(&mount.0.file("more"), NEW).unwrap();
        let operation = disk.ring.allocate(more, 1 << 20).unwrap();
        assert_eq!(disk.finish(operation).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        let operation = disk.ring.unlink(&path).unwrap();
        disk.finish(operation).unwrap();
        assert!(disk.write(more, 0, &[1; 64 * 1024], WriteSync::Data).synced);
        disk.close(more);
        let operation = disk.ring.unlink(&mount.0.file("more")).unwrap();
        disk.finish(operation).unwrap();
    }
    let tiny = Mount::new(4096 * 4);
    let error = measure_sync(&tiny.0.path).unwrap_err();
    assert!(error.to_string().contains("write"), "{error}");
    assert_eq!(std::fs::read_dir(&tiny.0.path).unwrap().count(), 0);
}

#[test]
fn both_ways_of_syncing_are_measured() {
    let scratch = Scratch::new();
    let measure = measure_sync(&scratch.path).unwrap();
    let through = measure.write_through_us.expect("every Linux of the tests knows RWF_DSYNC");
    let is_clearly_faster = through * 5 <= measure.write_then_sync_us * 4;
    assert_eq!(measure.choice == SyncChoice::WriteThrough, is_clearly_faster);
    assert_eq!(std::fs::read_dir(&scratch.path).unwrap().count(), 0, "nothing is left behind");
    assert!(measure_sync(&scratch.file("none")).is_err());
}
