//! What a data directory says of itself: its version and its number of shards. Read and written on the starting thread.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// The version that this program writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;
/// The file's name in the data directory.
pub(super) const FILE: &str = "description";
const FILE_BEING_WRITTEN: &str = "description.new";
/// Bytes that are read of it: a description of this version has some thirty.
const BYTES_MAX: u64 = 4096;

/// What the directory says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Description {
    /// Shards over which its topics are spread.
    pub(super) shards: u16,
}

/// Why a description cannot be used.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// A newer program wrote it.
    Newer(u32),
    /// It is no description.
    Damaged,
    /// The system cannot read it.
    System(io::Error),
}

impl Description {
    /// The text of the file: a line with the version, then one line for each thing, a key and a value.
    pub(super) fn encode(self) -> String {
        format!("ringmain-data {VERSION}\nshards {}\n", self.shards)
    }

    /// Reads the text of a file.
    pub(super) fn decode(text: &str) -> Result<Self, Unreadable> {
        let mut lines = text.lines();
        let version = lines.next().and_then(|line| line.strip_prefix("ringmain-data ")).ok_or(Unreadable::Damaged)?;
        let version = version.parse().map_err(|_| Unreadable::Damaged)?;
        if version > VERSION {
            return Err(Unreadable::Newer(version));
        }
        let shards = lines.next().and_then(|line| line.strip_prefix("shards ")).ok_or(Unreadable::Damaged)?;
        let shards = shards.parse().ok().filter(|shards| *shards > 0).ok_or(Unreadable::Damaged)?;
        let description = Self { shards };
        // Nothing but what this version writes: a line that it does not know may matter.
        if description.encode() == text { Ok(description) } else { Err(Unreadable::Damaged) }
    }

    /// Reads the description of a directory; `None` when there is none.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, Unreadable> {
        let file = match File::open(directory.join(FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Unreadable::System(error)),
        };
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, BYTES_MAX), &mut bytes).map_err(Unreadable::System)?;
        let text = String::from_utf8(bytes).map_err(|_| Unreadable::Damaged)?;
        Self::decode(&text).map(Some)
    }

    /// Writes it so that after a crash there is all of it or nothing.
    pub(super) fn write(self, directory: &Path) -> io::Result<()> {
        let new = directory.join(FILE_BEING_WRITTEN);
        let mut file = File::create(&new)?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, directory.join(FILE))?;
        sync_directory(directory)
    }
}

/// Makes durable which names a directory holds.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
