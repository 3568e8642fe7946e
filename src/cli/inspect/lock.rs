//! Whether a running broker holds a data directory's lock file, asked without touching the lock; on the main thread.
//!
//! Trying to take the lock would answer too, but could turn away a broker that starts in the same moment. The kernel lists all
//! locks in `/proc/locks`, except those of processes that this one may not see, such as those in another container.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::Serialize;

/// What a running broker means for what is read.
pub(super) const RUNNING: &str =
    "reading harms nothing, but files change while they are read, so that what looks torn may be whole";

/// Files stand that deep below a data directory at most.
const DEPTH: usize = 2;

/// What is known of a lock file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LockView {
    /// Whether the file is there.
    pub(super) present: bool,
    /// Whether a process holds it; `None` when the system does not say.
    pub(super) held: Option<bool>,
    /// The process that holds it, where it is one.
    pub(super) process: Option<u32>,
}

/// Looks at the lock file of a data directory.
pub(super) fn look(path: &Path) -> LockView {
    let Ok(metadata) = fs::metadata(path) else { return LockView { present: false, held: Some(false), process: None } };
    let Ok(locks) = fs::read_to_string("/proc/locks") else {
        return LockView { present: true, held: None, process: None };
    };
    let holder = locks.lines().find_map(|line| holder(line, metadata.dev(), metadata.ino()));
    LockView { present: true, held: Some(holder.is_some()), process: holder.flatten() }
}

/// Words about a running broker in whose data directory a shard's folder or a file stands, if there is one.
pub(super) fn warning(path: &Path) -> Option<String> {
    let whole = fs::canonicalize(path).ok()?;
    let above = whole.ancestors().skip(1).take(DEPTH).map(|folder| folder.join("lock"));
    let lock = above.map(|path| look(&path)).find(|lock| lock.held == Some(true))?;
    Some(format!("{} is running here: {RUNNING}", lock.holder()))
}

impl LockView {
    /// Who holds the lock.
    pub(super) fn holder(&self) -> String {
        self.process.map_or("a broker".to_owned(), |process| format!("a broker, process {process},"))
    }
}

/// The process of a line, if that tells of a lock held on the file: `1: FLOCK ADVISORY WRITE 4711 fd:01:1234 0 EOF`. Locks of
/// an open file description have no process and are told with -1.
fn holder(line: &str, device: u64, inode: u64) -> Option<Option<u32>> {
    // A line with an arrow tells of a process that waits for the lock.
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK" | "POSIX" | "OFDLCK", _, _, process, file, ..] = words.as_slice() else { return None };
    let mut parts = file.split(':');
    let major = u64::from_str_radix(parts.next()?, 16).ok()?;
    let minor = u64::from_str_radix(parts.next()?, 16).ok()?;
    let is_same = parts.next()?.parse() == Ok(inode) && (major, minor) == numbers(device);
    is_same.then(|| process.parse().ok())
}

/// The major and minor number of a device as `stat` packs them on Linux.
fn numbers(device: u64) -> (u64, u64) {
    let major = ((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff);
    let minor = ((device >> 12) & 0xffff_ff00) | (device & 0xff);
    (major, minor)
}
