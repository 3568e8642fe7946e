//! The data directory as a whole: its lock, its description, its shards' folders. On the starting thread.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringmain_model::ShardId;
use ringmain_uring::{LockGuard, LockHeld, lock_exclusive};

use super::description::{Description, FILE, Unreadable, VERSION, sync_directory};
use super::names::{folder_of, parse_folder};

/// The lock file's name in the data directory.
const LOCK: &str = "lock";

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The system refused something.
    #[error(
        "the data directory {path}: {what} failed: {error}; check that the path is right and that this user may write there, or choose another with WAL_DIR"
    )]
    System {
        /// The directory.
        path: PathBuf,
        /// What was done.
        what: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// Another process has it.
    #[error("the data directory {path} is in use by {}: end that process, or choose another directory with WAL_DIR",
        match .process { Some(process) => format!("process {process}"), None => "another process".to_owned() })]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process, if it told its number.
        process: Option<u32>,
    },
    /// A newer program made it.
    #[error(
        "the data directory {path} has version {version} and this program knows versions up to {VERSION}: start the program that wrote it; nothing was changed"
    )]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Its description cannot be read.
    #[error("the file {path} does not describe a data directory: put it back from a copy; nothing was changed")]
    Damaged {
        /// The description.
        path: PathBuf,
    },
    /// Shards with data, and nothing that says how many there are.
    #[error(
        "the data directory {path} has shards with data but no file `{FILE}`: put that file back from a copy, or choose another directory with WAL_DIR; nothing was changed"
    )]
    Undescribed {
        /// The directory.
        path: PathBuf,
    },
    /// It has another number of shards than was asked for.
    #[error(
        "the data directory {path} has {found} shards and RINGMAIN_SHARDS asks for {wanted}: leave RINGMAIN_SHARDS out or set it to {found}; the number of shards of a directory cannot change"
    )]
    Shards {
        /// The directory.
        path: PathBuf,
        /// Its number.
        found: u16,
        /// What was asked for.
        wanted: u16,
    },
    /// A shard's folder is gone.
    #[error(
        "the folder {path} is missing, and with it all topics of that shard: put it back from a copy, or make it by hand, empty, to go on without them; nothing was changed"
    )]
    FolderMissing {
        /// The folder.
        path: PathBuf,
    },
}

/// A data directory that this process alone uses.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    pub(super) path: PathBuf,
    pub(super) shards: u16,
    /// Keeps others out; handed on to what lives as long as the broker.
    pub(crate) lock: LockGuard,
}

impl DataDirectory {
    /// Locks the directory and reads what it says of itself; makes what is missing of a new one. `shards` is the number wanted,
    /// which only counts for a new directory unless it is `given` by name.
    pub(crate) fn open(path: &Path, shards: u16, given: bool) -> Result<Self, DirectoryError> {
        let failed = |what| move |error| DirectoryError::System { path: path.to_owned(), what, error };
        make_durably(path).map_err(failed("making it"))?;
        let lock = lock_exclusive(&path.join(LOCK)).map_err(|error| lock_error(path, error))?;
        let shards = match Description::read(path) {
            Ok(Some(description)) => {
                if given && description.shards != shards {
                    let (found, wanted) = (description.shards, shards);
                    return Err(DirectoryError::Shards { path: path.to_owned(), found, wanted });
                }
                let gone = (0..description.shards).map(|shard| folder_of(path, ShardId(shard)));
                if let Some(path) = gone.into_iter().find(|folder| !folder.is_dir()) {
                    return Err(DirectoryError::FolderMissing { path });
                }
                description.shards
            }
            Ok(None) => {
                if has_data(path).map_err(failed("reading it"))? {
                    return Err(DirectoryError::Undescribed { path: path.to_owned() });
                }
                // The description comes last: what it speaks of is there then, and a folder that is missing later was lost.
                for shard in 0..shards {
                    make_durably(&folder_of(path, ShardId(shard))).map_err(failed("making a shard's folder"))?;
                }
                Description { shards }.write(path).map_err(failed("writing its description"))?;
                shards
            }
            Err(Unreadable::Newer(version)) => return Err(DirectoryError::Newer { path: path.to_owned(), version }),
            Err(Unreadable::Damaged) => return Err(DirectoryError::Damaged { path: path.join(FILE) }),
            Err(Unreadable::System(error)) => return Err(failed("reading its description")(error)),
        };
        Ok(Self { path: path.to_owned(), shards, lock })
    }

    /// Its number of shards.
    pub(crate) fn shards(&self) -> u16 {
        self.shards
    }

    /// The folder of a shard.
    pub(crate) fn folder(&self, shard: ShardId) -> PathBuf {
        folder_of(&self.path, shard)
    }
}

fn lock_error(path: &Path, error: io::Error) -> DirectoryError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<LockHeld>()) {
        Some(held) => DirectoryError::Locked { path: path.to_owned(), process: held.process },
        None => DirectoryError::System { path: path.to_owned(), what: "locking it", error },
    }
}

/// Makes a directory with all that it stands in, each name durable, so that no crash takes back what was made below it.
fn make_durably(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    make_durably(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_directory(parent)
}

/// Whether some shard's folder holds something. Empty ones are what a start left that was killed before it had described them.
fn has_data(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let is_folder = entry.file_name().to_str().is_some_and(|name| parse_folder(name).is_some());
        if is_folder && fs::read_dir(entry.path())?.next().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
