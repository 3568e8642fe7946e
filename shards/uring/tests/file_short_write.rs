//! A write that comes half way or not at all breaks the link to its sync, and tells exactly how far it came.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;

use ringmain_uring::{FileAccess, FileMode, WriteSync};
use rustix::process::{Resource, Rlimit, setrlimit};

use disk::{BOTH, Disk, Scratch, in_child};

const LIMIT: u32 = 3 * 4096;

/// The limit is one of the whole process, and reaching it sends a signal that ends it.
#[allow(unsafe_code, reason = "there is no safe way to ignore a signal")]
fn limit_files() {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = Some(u64::from(LIMIT));
    setrlimit(Resource::Fsize, Rlimit { current: limit, maximum: limit }).unwrap();
}

#[test]
fn a_short_write_is_not_synced() {
    if !in_child("a_short_write_is_not_synced") {
        return;
    }
    limit_files();
    let scratch = Scratch::new();
    let mut disk = Disk::new();
    for direct in [true, false] {
        for choice in BOTH {
            disk.ring.set_sync_choice(choice);
            let path = scratch.file(&format!("{direct}-{choice:?}"));
            let file = disk.ring.open_file(&path, FileMode { access: FileAccess::CreateNew, direct }).unwrap();
            let short = disk.write(file, 4096, &[1; 4 * 4096], WriteSync::Data);
            assert_eq!((short.bytes, short.synced, short.error), (2 * 4096, false, None), "{direct} {choice:?}");
            assert_eq!(short.buffer[..4 * 4096], [1; 4 * 4096], "the buffer comes back for another try");
            drop(short);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), u64::from(LIMIT));

            for position in [LIMIT, 2 * LIMIT] {
                let none = disk.write(file, u64::from(position), &[2; 4096], WriteSync::Data);
                assert_eq!((none.bytes, none.synced, none.error), (0, false, Some(libc::EFBIG)));
            }
            let operation = disk.ring.allocate(file, u64::from(LIMIT) + 1).unwrap();
            assert_eq!(disk.finish(operation).unwrap_err().raw_os_error(), Some(libc::EFBIG));

            let whole = disk.write(file, 0, &[3; LIMIT as usize], WriteSync::Data);
            assert_eq!((whole.bytes, whole.synced, whole.error), (LIMIT, true, None));
            drop(whole);
            assert_eq!(disk.read(file, 0, LIMIT), [3; LIMIT as usize]);
            disk.close(file);
        }
    }
}
