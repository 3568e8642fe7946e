//! A lock file that keeps a second process out of a directory. Taken once by the main thread.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// The most that is read of a lock file: more than the decimal digits of any process number.
const CONTENT_BYTES_MAX: u64 = 32;

/// Holds the lock until it is dropped, or until the process ends in whatever way. The file stays: were
/// it removed, two processes could hold locks on two files of one name.
#[derive(Debug)]
pub struct LockGuard {
    /// The lock belongs to the open file.
    file: File,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // Closing would not be enough: a child process that is just being started holds a copy of the
        // descriptor until it runs its own program. If this fails, the lock ends with the last copy.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Somebody else has the lock; the inner error of what [`lock_exclusive`] gives then.
#[derive(Debug)]
pub struct LockHeld {
    /// The lock file.
    pub path: PathBuf,
    /// The process that wrote its number there, as it is called in its own container; none when it cannot
    /// be read.
    pub process: Option<u32>,
}

impl fmt::Display for LockHeld {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is locked by ", self.path.display())?;
        match self.process {
            Some(process) => write!(formatter, "process {process}"),
            None => write!(formatter, "another process"),
        }
    }
}

impl std::error::Error for LockHeld {}

/// Takes an exclusive lock on a file (flock(2)), made if needed, and writes the number of this process into
/// it. Does not wait. Only for a local disk: network file systems may know no such lock.
///
/// # Errors
///
/// `ResourceBusy` with a [`LockHeld`] inside when it is taken, by this process or another; otherwise what
/// the system says.
pub fn lock_exclusive(path: &Path) -> io::Result<LockGuard> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            // A holder that has not yet written, or wrote nonsense, stays without a name.
            let _ = file.take(CONTENT_BYTES_MAX).read_to_string(&mut text);
            let held = LockHeld { path: path.to_owned(), process: text.trim().parse().ok() };
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, held));
        }
        Err(error) => return Err(error.into()),
    }
    file.set_len(0)?;
    file.rewind()?;
    // The lock holds without a name too, so a full disk keeps nobody from starting.
    let _ = writeln!(file, "{}", std::process::id());
    Ok(LockGuard { file })
}
