//! The log's part of the end of a turn: what was gathered is written, with progress and clocks. On the core that owns the shard.

use ringmain_model::RefusalKind;
use ringmain_model::limit::{LOG_RETRY_MS, PROGRESS_LOG_MS};
use ringmain_wal::Entry;

use crate::command::{Effect, Now, Reply};
use crate::opening::StorageState;
use crate::shard::Shard;
use crate::shard_log::Awaiting;

impl Shard {
    /// The log's part of the end of a turn.
    pub(crate) fn end_log_turn(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.retry_parked(now, effects);
        let Some(log) = &mut self.log else { return };
        if log.is_poisoned() {
            return self.settle_log(now, effects);
        }
        if log.retry_ms.is_some_and(|retry_ms| retry_ms <= now.monotonic_ms) {
            log.retry_ms = Some(now.monotonic_ms + LOG_RETRY_MS);
            log.writer.try_again(&mut log.log_outputs);
        }
        if log.state == StorageState::Busy && log.parked.is_empty() && log.writer.has_room_for_records() {
            log.state = StorageState::Open;
        }
        if !log.writer.is_writing() {
            self.close_logged_batches();
            self.log_clock(now);
            self.log_progress(now, effects);
            self.go_on_with_checkpoint(now, effects);
            if let Some(log) = &mut self.log {
                log.writer.turn_ended(&mut log.log_outputs);
            }
        }
        self.settle_log(now, effects);
    }

    /// Tells the log how the clocks stand, while topics keep messages for a time and something is logged anyway, or one clock has
    /// jumped.
    fn log_clock(&mut self, now: Now) {
        let Some(log) = self.log.as_mut() else { return };
        let anchor = self.clock.anchor_to_log(now, log.writer.is_dirty()).filter(|_| !self.due_ages.is_empty());
        if let Some(anchor) = anchor
            && log.append(&Entry::Clock(anchor), None).is_ok()
        {
            self.clock.note_logged(anchor);
        }
    }

    /// Appends the progress of groups, if somebody waits for it or it is time.
    fn log_progress(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(log) = &mut self.log else { return };
        let is_due = log.progress_due_ms.is_some_and(|due_ms| due_ms <= now.monotonic_ms);
        if is_due || log.is_progress_urgent {
            self.log_all_progress(now, false, effects);
        }
    }

    /// Appends the progress of groups that the log does not have; says whether it has all now.
    /// With `is_to_free` a checkpoint waits for it.
    pub(crate) fn log_all_progress(&mut self, now: Now, is_to_free: bool, effects: &mut Vec<Effect>) -> bool {
        let Some(log) = &mut self.log else { return false };
        (log.progress_due_ms, log.is_progress_urgent) = (None, false);
        let mut unlogged = std::mem::take(&mut log.unlogged_groups).into_iter();
        while let Some((partition, name)) = unlogged.next() {
            let Some(topic) = self.partitions.get_mut(&partition).filter(|topic| !topic.is_ending) else { continue };
            let Some(group) = topic.groups.get_mut(&name) else { continue };
            let progress = group.image(partition);
            let entry = Entry::GroupProgress(progress);
            let appended = log
                .append_marks(&mut topic.log, is_to_free)
                .and_then(|()| if is_to_free { log.append_to_free(&entry) } else { log.append(&entry, None) });
            match appended {
                Ok(sequence) => {
                    group.is_unlogged = false;
                    if !group.is_begun() {
                        let epoch = group.epoch();
                        log.wait_for(sequence, Awaiting::Begin { partition, group: name, epoch });
                    }
                    for (to, reply) in group.take_answers() {
                        let group = group.name.clone();
                        let awaiting = match reply {
                            Reply::Joined { high_water, .. } => Awaiting::Join { to, partition, group, high_water },
                            reply => Awaiting::Reply { to, reply },
                        };
                        log.wait_for(sequence, awaiting);
                    }
                }
                Err(refusal) => {
                    if refusal.kind == RefusalKind::StorageFull {
                        group.refuse_answers(effects);
                    }
                    log.unlogged_groups.push((partition, name));
                    log.progress_due_ms = Some(now.monotonic_ms + PROGRESS_LOG_MS);
                    if refusal.kind != RefusalKind::StorageFull {
                        // There is no room for the others either, and their images cost time.
                        log.unlogged_groups.extend(unlogged);
                        break;
                    }
                }
            }
        }
        self.log.as_ref().is_some_and(|log| log.unlogged_groups.is_empty())
    }
}
