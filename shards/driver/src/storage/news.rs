//! Tells an operator what happens to a shard's storage while it runs. On the core that owns the shard.

use ringmain_engine::StorageNews;
use ringmain_model::ShardId;
use ringmain_wal::FileName;

use super::names::text_of;

/// Writes the news to the log, with what to do about it.
pub(crate) fn tell_news(shard: ShardId, news: &StorageNews) {
    let shard = shard.0;
    match news {
        StorageNews::Poisoned(failure) if failure.is_want_of_descriptors() => tracing::error!(
            shard,
            %failure,
            "a file that the log writes could not be opened: this shard stores nothing more until the broker is started again; reading goes on"
        ),
        StorageNews::Poisoned(failure) => tracing::error!(
            shard,
            %failure,
            "a write to the disk failed: this shard stores nothing more until the broker is started again; reading goes on; check the disk first"
        ),
        StorageNews::Full(failure) if failure.is_want_of_descriptors() => {
            tracing::warn!(shard, %failure, "no file can be opened for another segment of the log: publishes are refused with storage_full, all else goes on");
        }
        StorageNews::Full(failure) => {
            tracing::warn!(shard, %failure, "no room for another segment of the log: publishes are refused with storage_full, all else goes on");
        }
        StorageNews::Room => tracing::info!(shard, "there is room for the log again"),
        StorageNews::CheckpointFailed(failure) => {
            tracing::warn!(shard, %failure, "a checkpoint failed and is tried again; until then the log grows");
        }
        StorageNews::ReadFailed { file, failure } => {
            let file = text_of(FileName::Topic(*file));
            tracing::warn!(shard, file, %failure, "a read failed: readers are refused, groups try again");
        }
        StorageNews::IndexDamaged { file, why } => {
            let file = text_of(FileName::Topic(*file));
            tracing::warn!(
                shard,
                file,
                why,
                "the index of a topic segment is damaged: it is made again from the segment"
            );
        }
        StorageNews::SegmentGivenUp { topic, file, failure } => {
            let file = text_of(FileName::Topic(*file));
            tracing::error!(
                shard,
                topic = topic.as_str(),
                file,
                %failure,
                "a topic segment cannot be written to: the topic goes on in a new file; look at this one with `ringmain inspect`"
            );
        }
        StorageNews::Unreadable { topic, file, from, end, why } => {
            let file = text_of(FileName::Topic(*file));
            tracing::error!(
                shard,
                topic = topic.as_str(),
                file,
                why,
                from = from.0,
                end = end.0,
                "records cannot be read: readers are told of a gap; look at the file with `ringmain inspect`"
            );
        }
    }
}
