//! What the log wants done with files, and what came of it. Values that the driver of the owner's core performs.

use bytes::Bytes;
use ringmain_model::{Offset, PartitionRef};

use crate::position::SegmentNumber;

/// Error numbers of the system: too many open files in this process, and in all.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// A file of a shard's directory. The driver gives each its path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FileName {
    /// A part of the log.
    Segment(SegmentNumber),
    /// A segment being made.
    Preparing(SegmentNumber),
    /// A segment kept because of damage.
    Quarantined(SegmentNumber),
    /// A checkpoint.
    Slot(SlotName),
    /// Records of one partition that have left the log.
    Topic(TopicFile),
}

/// A topic segment, named by its partition and its first offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TopicFile {
    /// Whose records.
    pub partition: PartitionRef,
    /// The first one.
    pub base: Offset,
}

/// One of the two places of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SlotName {
    /// The first.
    A,
    /// The second.
    B,
}

impl SlotName {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// A number that the result comes back with; one state machine uses each once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OperationId(pub u64);

/// One thing to do with files. Positions and lengths of segments are whole blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Create a file that is not there, with room for that many bytes. When that fails, no file may be left behind.
    Allocate {
        /// The file.
        file: FileName,
        /// Its size.
        bytes: u64,
    },
    /// Write the parts one after another from `position` on.
    Write {
        /// The file.
        file: FileName,
        /// Bytes from its start.
        position: u64,
        /// What to write; their sum is a whole number of blocks.
        parts: Vec<Bytes>,
    },
    /// Make all that was written to the file durable.
    Sync {
        /// The file.
        file: FileName,
    },
    /// Make creations, renames and unlinks durable.
    SyncDirectory,
    /// Give a file another name that is free.
    Rename {
        /// The present name.
        from: FileName,
        /// The new name.
        to: FileName,
    },
    /// Remove a file.
    Unlink {
        /// The file.
        file: FileName,
    },
    /// Read; the answer may be shorter where the file ends.
    Read {
        /// The file.
        file: FileName,
        /// Bytes from its start.
        position: u64,
        /// How many.
        bytes: u64,
    },
}

impl Effect {
    /// Bytes that a write carries; 0 for anything else.
    #[must_use]
    pub fn write_bytes(&self) -> u64 {
        match self {
            Self::Write { parts, .. } => parts.iter().map(|part| part.len() as u64).sum(),
            _ => 0,
        }
    }
}

/// What came of an effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Completion {
    /// It is done.
    Done,
    /// That many bytes were written.
    Written(u64),
    /// What was read.
    Read(Bytes),
    /// It failed.
    Failed(Failure),
}

/// Why an effect failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// No room on the device, or a quota is used up.
    #[error("no space left on the device")]
    NoSpace,
    /// Fewer bytes were written than asked.
    #[error("the write stopped after {written} bytes")]
    Short {
        /// How many were.
        written: u64,
    },
    /// The system's error number.
    #[error("{}", system_words(*.0))]
    System(i32),
}

/// What an error number of the system means, where it does not mean that the disk is bad.
fn system_words(number: i32) -> String {
    match number {
        EMFILE => "this process has as many files and connections open as it may, its limit of open files (RLIMIT_NOFILE): raise it with `ulimit -n`, or LimitNOFILE= of its service".to_owned(),
        ENFILE => "the system has as many files open as it may (fs.file-max): raise it with `sysctl fs.file-max`, or end what holds them".to_owned(),
        number => format!("the system answered with error {number}"),
    }
}

impl Failure {
    /// Whether there is no descriptor for a file, which says nothing of the disk.
    #[must_use]
    pub fn is_want_of_descriptors(self) -> bool {
        matches!(self, Self::System(EMFILE | ENFILE))
    }

    /// Whether it speaks of one file alone: there is none of that name, it is no file, it may not be written, or its place on the
    /// disk is bad. Want of room, memory or descriptors would meet any other file as well.
    pub(crate) fn is_of_the_file(self) -> bool {
        // EPERM, ENOENT, EIO, ENXIO, EACCES, EISDIR, EINVAL, ETXTBSY, ELOOP.
        matches!(self, Self::System(1 | 2 | 5 | 6 | 13 | 21 | 22 | 26 | 40))
    }
}

/// Checks that a completion is a success; a write must have written all of `write_bytes`.
///
/// # Errors
/// The failure.
pub(crate) fn succeeded(completion: &Completion, write_bytes: u64) -> Result<(), Failure> {
    match completion {
        Completion::Failed(failure) => Err(*failure),
        Completion::Written(written) if *written != write_bytes => Err(Failure::Short { written: *written }),
        Completion::Done | Completion::Read(_) if write_bytes > 0 => Err(Failure::Short { written: 0 }),
        _ => Ok(()),
    }
}
