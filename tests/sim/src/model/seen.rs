//! Checks of what a shard shows: batches, pages, stats, pushes, messages given out.

use ringmain_engine::{Assignment, Page, RecordBatch, TopicStats};
use ringmain_model::{GroupName, Offset};

use super::letters::is_same_letter;
use super::{Check, Model, Outcome, id_of, is_same, key_of};

impl Model {
    /// A batch was seen: each of its records is one that was published, at its offset, for good.
    ///
    /// # Errors
    /// When it is not.
    pub fn see(&mut self, batch: &RecordBatch) -> Check {
        let incarnation = key_of(batch.partition());
        let mut next = batch.base();
        for record in batch.records() {
            if record.offset != next {
                return Err(format!("record {} stands where {next} is awaited", record.offset));
            }
            next = next.plus(1);
            let letter = self.letter_number(incarnation, &record);
            let id = letter.or_else(|| id_of(&record)).filter(|id| *id < self.publishes.len() as u64);
            let id = id.ok_or_else(|| format!("nobody published what stands at {}", record.offset))?;
            let publish = &mut self.publishes[id as usize];
            if publish.life != incarnation {
                return Err(format!("message {id} of topic {:x} was seen in {incarnation:x}", publish.life));
            }
            let is_right = match letter {
                Some(_) => is_same_letter(&publish.message, &record),
                None => is_same(&publish.message, &record),
            };
            if !is_right {
                return Err(format!("message {id} at {} was changed", record.offset));
            }
            let at = record.offset.0;
            match publish.outcome {
                Outcome::Refused(kind) => return Err(format!("message {id} was refused ({kind:?}) and is at {at}")),
                Outcome::Lost => return Err(format!("message {id} was lost in a crash and is at {at} now")),
                Outcome::Stored(before) | Outcome::Appended(before) if before != at => {
                    return Err(format!("message {id} belongs at {before} and is at {at}"));
                }
                _ => publish.outcome = Outcome::Stored(at),
            }
            self.life(incarnation)?.stored(id, at, Some(record.time_us), letter.is_some())?;
        }
        if next != batch.end() {
            return Err(format!("a batch says that it ends at {} and ends at {next}", batch.end()));
        }
        Ok(())
    }

    /// A page was read; `visible_end` is what was known to be visible when it was asked for.
    ///
    /// # Errors
    /// When it has a gap, begins or ends at the wrong place, or holds what was not published.
    pub fn see_page(&mut self, asked: Offset, visible_end: u64, page: &Page) -> Check {
        let (start, end) = (page.log_start.offset(), page.high_water.offset());
        if end.0 < visible_end {
            return Err(format!("a page ends at the high-water mark {end}, and {visible_end} was visible before"));
        }
        if page.from < asked.min(end) || page.from > end {
            return Err(format!("a page asked from {asked} begins at {}, the log ends at {end}", page.from));
        }
        let life = self.life(key_of(page.partition))?;
        let unreadable = life.unreadable.clone();
        let readable_from = |offset: Offset| {
            let is_in = |(from, end): &&(u64, u64)| (*from..*end).contains(&offset.0);
            unreadable.iter().find(is_in).map_or(offset, |(_, end)| Offset(*end))
        };
        if page.from > asked && page.from > start && page.from.0 > life.readable_from(asked.max(start).0) {
            return Err(format!("a page asked from {asked} begins at {}, the log at {start}", page.from));
        }
        if page.batches.is_empty() && life.readable_from(page.from.0) < visible_end {
            return Err(format!("a page from {} is empty below {visible_end}", page.from));
        }
        let mut next = page.from;
        for batch in &page.batches {
            if batch.partition() != page.partition {
                return Err(format!("a page of {} holds a batch of {}", page.partition, batch.partition()));
            }
            while batch.base() > next && readable_from(next) > next {
                next = readable_from(next);
            }
            if batch.base() > next || batch.end() <= next {
                return Err(format!("a page goes on at {} where {next} is awaited", batch.base()));
            }
            if batch.end() > end {
                return Err(format!("a page shows {} above the high-water mark {end}", batch.end()));
            }
            next = batch.end();
            self.see(batch)?;
        }
        self.see_marks(key_of(page.partition), start.0, end.0)
    }

    /// A log's start and end were seen: the start moves only for a reason.
    ///
    /// # Errors
    /// When there is none.
    pub fn see_marks(&mut self, incarnation: u64, start: u64, end: u64) -> Check {
        let segments_bytes = self.bounds.segments_bytes;
        let life = self.lives.get_mut(&incarnation).ok_or("nobody made this topic")?;
        if start > end {
            return Err(format!("{} starts at {start} and ends at {end}", life.name));
        }
        life.visible_end = life.visible_end.max(end);
        if start <= life.log_start_max {
            return Ok(());
        }
        life.log_start_max = start;
        let retention = life.retention_least;
        if start <= end.saturating_sub(retention.max_messages) {
            return Ok(());
        }
        // Retention by bytes goes batch by batch: the one that went may have held many records.
        let from = start.saturating_sub(200);
        let bytes = life.bytes_max(from, end, &self.publishes);
        let bytes_ever = life.bytes_max(0, end, &self.publishes) + 4096 * end;
        let is_over_segments = life.is_wal() && bytes_ever > segments_bytes;
        if bytes <= retention.max_bytes && !is_over_segments {
            return Err(format!("{} let go of everything below {start} of {end} without a reason", life.name));
        }
        Ok(())
    }

    /// A topic's stats were seen; `visible_end` is what was known to be visible when they were asked for.
    ///
    /// # Errors
    /// When they contradict what is known.
    pub fn see_stats(&mut self, stats: &TopicStats, visible_end: u64) -> Check {
        let run = self.run;
        let incarnation = key_of(stats.partition);
        let (start, end) = (stats.log_start.offset().0, stats.high_water.offset().0);
        self.see_marks(incarnation, start, end)?;
        let life = self.life(incarnation)?;
        if stats.name != life.name || !life.may_have(&stats.config) {
            return Err(format!("the settings of {} were changed: {:?}", life.name, stats.config));
        }
        if end < visible_end {
            return Err(format!("{} ends at {end}, and {visible_end} was visible before", life.name));
        }
        // A start is compared as a whole, when everything was read.
        if life.is_recovering { Ok(()) } else { life.check_groups(run, &stats.groups) }
    }

    /// A batch was pushed to a core.
    ///
    /// # Errors
    /// When it leaves a gap, repeats something, or the core did not want it.
    pub fn see_push(&mut self, core: u16, batch: &RecordBatch) -> Check {
        let life = self.life(key_of(batch.partition()))?;
        match life.interest.get_mut(&core) {
            Some(Some(next)) if *next == batch.base().0 => *next = batch.end().0,
            Some(next) => {
                return Err(format!("core {core} was pushed {} while {next:?} was awaited", batch.base()));
            }
            None => return Err(format!("core {core} was pushed a batch of {} without interest", life.name)),
        }
        self.see(batch)
    }

    /// Messages of a group were given to somebody. `request` is the number of the pull that got them, 0 for a member.
    ///
    /// # Errors
    /// When one of them must not be given out.
    pub fn see_given(&mut self, name: &GroupName, assignment: &Assignment, request: u64) -> Check {
        let batch = &assignment.batch;
        self.see(batch)?;
        let run = self.run;
        let life = self.life(key_of(batch.partition()))?;
        for record in &assignment.records {
            if record.offset < batch.base() || record.offset >= batch.end() || record.attempt == 0 {
                return Err(format!("{record:?} was given from the batch at {}", batch.base()));
            }
            let group = life.groups.entry(name.clone()).or_default();
            group
                .given(run, assignment.epoch, *record, request)
                .map_err(|fault| format!("group {name} of {}: {fault}", life.name))?;
        }
        Ok(())
    }
}
