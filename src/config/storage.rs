//! Settings of storage: where topics keep their messages, and the data directory; on the main thread.

use std::path::PathBuf;

use ringmain_driver::{StorageConfig, SyncChoice};
use ringmain_model::Storage;
use ringmain_model::limit::{LOGGED_MESSAGE_BYTES_MAX, MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX};

use super::{ConfigError, ServeFlags, Sources, key, size};

const SHARDS: super::Key = key("shards", "RINGMAIN_SHARDS");
const DIRECTORY_DEFAULT: &str = "./data";

/// What was chosen.
#[derive(Debug)]
pub(super) struct StorageChoice {
    /// Of topics that do not say.
    pub(super) default: Storage,
    /// The data directory, if one is to be opened.
    pub(super) config: Option<StorageConfig>,
}

impl Sources<'_> {
    pub(super) fn storage(&self, flags: &ServeFlags) -> Result<StorageChoice, ConfigError> {
        let modes = [("memory", Storage::Memory), ("wal", Storage::Wal)];
        let default = self.word(flags.storage.as_ref(), key("storage", "STORAGE_MODE"), &modes, Storage::Memory)?;
        let directory = match self.text(flags.wal_dir.as_ref(), key("wal-dir", "WAL_DIR")) {
            Some((key, value)) if value.is_empty() => {
                return Err(ConfigError { key, value, fix: "give the path of a folder".to_owned() });
            }
            given => given.map(|(_, path)| path),
        };
        let segment_bytes = key("wal-segment-size", "WAL_SEGMENT_SIZE");
        let topic_segment_bytes =
            self.number(flags.wal_segment_size.as_ref(), segment_bytes, 1 << 20..=1 << 30, 64 << 20)?;
        let segments = key("wal-max-segments", "WAL_MAX_SEGMENTS");
        let topic_segments_max = self.number(flags.wal_max_segments.as_ref(), segments, 1..=65_536, 10)?;
        let ways =
            [("auto", None), ("dsync", Some(SyncChoice::WriteThrough)), ("fdatasync", Some(SyncChoice::WriteThenSync))];
        let sync = self.word(flags.sync.as_ref(), key("sync", "RINGMAIN_SYNC"), &ways, None)?;
        let direct_io = key("direct-io", "RINGMAIN_DIRECT_IO");
        let direct = self.word(flags.direct_io.as_ref(), direct_io, &[("true", true), ("false", false)], true)?;
        if default == Storage::Memory && directory.is_none() {
            return Ok(StorageChoice { default, config: None });
        }
        let config = StorageConfig {
            directory: PathBuf::from(directory.unwrap_or_else(|| DIRECTORY_DEFAULT.to_owned())),
            shards_given: self.text(flags.shards.as_ref(), SHARDS).is_some(),
            topic_segment_bytes,
            message_bytes_max: MESSAGE_BYTES_DEFAULT,
            topic_segments_max,
            direct,
            sync,
        };
        Ok(StorageChoice { default, config: Some(config) })
    }

    pub(super) fn message_bytes(&self, flags: &ServeFlags, storage: &StorageChoice) -> Result<usize, ConfigError> {
        let flag = flags.max_message_bytes.as_ref();
        let message_bytes = key("max-message-bytes", "RINGMAIN_MAX_MESSAGE_BYTES");
        let bytes = self.number(flag, message_bytes, 1..=MESSAGE_BYTES_MAX as u64, MESSAGE_BYTES_DEFAULT as u64)?;
        if storage.config.is_some() && bytes > LOGGED_MESSAGE_BYTES_MAX as u64 {
            let (key, value) = self.text(flag, message_bytes).unwrap_or_default();
            let fix = format!(
                "choose at most {LOGGED_MESSAGE_BYTES_MAX} while there is a data directory, or leave STORAGE_MODE and WAL_DIR out"
            );
            return Err(ConfigError { key, value, fix });
        }
        Ok(size(bytes))
    }
}
