//! Moves large tails of records to topic segments, a part of them at a time. A checkpoint's work, on the core that owns the shard.

use std::collections::VecDeque;

use ringmain_model::{Offset, PartitionRef, TopicConfig};
use ringmain_wal::{Failure, PartitionSegments, SegmentsOutput, StoreJob, TopicFile};

use crate::command::{Effect, Now, StorageNews};
use crate::loads::NOT_THERE;
use crate::opening::StorageSettings;
use crate::shard::Shard;
use crate::shard_log::Machine;

/// Tails that move to topic segments, up to which offset.
type Stores = VecDeque<(PartitionRef, Offset)>;
/// Tails that are written again, from which offset up to which.
type Rewrites = VecDeque<(PartitionRef, Offset, Offset)>;

impl Shard {
    /// Which tails move to topic segments, and which are written again.
    pub(crate) fn divide_tails(&self) -> (Stores, Rewrites) {
        let Some(log) = &self.log else { return Default::default() };
        let topics = self.partitions_in_order().into_iter().map(|(_, topic)| topic);
        // Also those whose end is not durable yet: a crash may bring them back.
        let tails: Vec<_> = topics.filter(|topic| topic.is_logged()).filter_map(|topic| topic.log.tail()).collect();
        // So many small tails that they would fill the log by themselves are not left there.
        let mut bytes_to_store = log.settings.tail_bytes_to_store;
        // On a full disk what is left of the log is for deletes and progress: copies that would not fit beside them would only
        // use it up.
        let tails_bytes_max = log.settings.tails_bytes_max.min(log.writer.room_bytes() / 2);
        let left = |least: u64| tails.iter().map(|tail| tail.3).filter(|bytes| *bytes < least).sum::<u64>();
        while bytes_to_store > 1 && left(bytes_to_store) > tails_bytes_max {
            bytes_to_store /= 2;
        }
        let (mut stores, mut rewrites) = (VecDeque::new(), VecDeque::new());
        for (partition, from, end, bytes) in tails {
            if bytes >= bytes_to_store {
                stores.push_back((partition, end));
            } else {
                rewrites.push_back((partition, from, end));
            }
        }
        (stores, rewrites)
    }

    /// Sends the next of the large tails on their way, when those before have arrived: a bounded number of batches, so that neither
    /// their list nor the plan for them grows with what the log holds.
    pub(crate) fn store_tails(&mut self, now: Now) {
        let Some(log) = self.log.as_mut().filter(|log| log.segments.is_ready()) else { return };
        let Some(stores) = log.checkpointing.stores_left() else { return };
        let (mut jobs, mut batches_left) = (Vec::new(), log.settings.store_batches_max);
        while batches_left > 0
            && let Some((partition, end)) = stores.front().copied()
        {
            let topic = self.partitions.get(&partition);
            let batches = topic.map(|topic| topic.log.batches_to_store(end, batches_left)).unwrap_or_default();
            let (Some(topic), Some(last)) = (topic, batches.last()) else {
                // All of it has moved, or gone.
                stores.pop_front();
                continue;
            };
            let is_rest = last.end() >= end;
            batches_left -= batches.len();
            jobs.push(StoreJob {
                partition,
                name: topic.name.clone(),
                config: topic.config.clone(),
                last: topic.log.segments().last().cloned(),
                batches,
                segment_bytes_max: topic_segment_bytes(&log.settings, &topic.config),
            });
            if !is_rest {
                break;
            }
            stores.pop_front();
        }
        let is_storing = !jobs.is_empty() && log.segments.begin(jobs, now.unix_us, &mut log.segment_outputs);
        log.checkpointing.set_storing(is_storing);
    }

    /// The last segment of a partition cannot be written to: its records go on in a new file. Of a file that is gone they are lost;
    /// otherwise readers find out what can still be read.
    fn give_up_file(&mut self, file: TopicFile, failure: Failure, effects: &mut Vec<Effect>) {
        let (Some(log), Some(topic)) = (&mut self.log, self.partitions.get_mut(&file.partition)) else { return };
        log.checkpointing.store_again(file.partition, topic.log.high_water().offset());
        let Some((from, end)) = topic.log.give_up_segment(file.base) else { return };
        log.loads.forget(file);
        if failure == NOT_THERE {
            self.lose(file, from, end, failure.to_string(), effects);
        } else {
            let topic = topic.name.clone();
            effects.push(Effect::StorageNews(StorageNews::SegmentGivenUp { topic, file, failure }));
        }
    }

    pub(crate) fn take_segments_output(&mut self, now: Now, output: SegmentsOutput, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        match output {
            SegmentsOutput::Do { operation, effect } => {
                log.stats.segment_bytes += effect.write_bytes();
                log.operate(Machine::Segments(operation), effect, effects);
            }
            SegmentsOutput::GivenUp { file, failure } => self.give_up_file(file, failure, effects),
            SegmentsOutput::Stored(stored) => {
                for one in stored {
                    self.take_stored(one, effects);
                }
                if let Some(log) = &mut self.log {
                    log.checkpointing.set_storing(false);
                }
                self.unlink_files(effects);
            }
            SegmentsOutput::Failed(failure) => self.checkpoint_failed(now, failure, effects),
            SegmentsOutput::Poisoned(failure) => self.poison(failure, effects),
        }
    }

    /// Records of a partition have moved to topic segments.
    fn take_stored(&mut self, stored: PartitionSegments, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        let files = stored.segments.iter().map(|segment| TopicFile { partition: stored.partition, base: segment.base });
        let Some(topic) = self.partitions.get_mut(&stored.partition) else {
            // Deleted meanwhile.
            log.checkpointing.unlinks.extend(files);
            return;
        };
        for file in files {
            log.loads.forget(file);
            log.checkpointing.keep(file);
        }
        topic.log.add_segments(stored.segments, &mut self.bytes);
        let start = topic.log.log_start();
        let age_ms = self.clock.now_ms();
        topic.log.retain(&topic.config.retention, age_ms, log.settings.topic_segments_max, &mut self.bytes);
        if topic.log.log_start() > start {
            topic.evict_from_groups(&mut self.listed_groups, effects);
        }
        log.drop_files(topic.log.take_dropped());
    }
}

/// Retention by bytes drops whole segments, so those of a small topic are small.
fn topic_segment_bytes(settings: &StorageSettings, config: &TopicConfig) -> u64 {
    settings.topic_segment_bytes.min((config.retention.max_bytes / 4).max(settings.topic_segment_bytes_min))
}
