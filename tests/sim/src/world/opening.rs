//! A start: the opener's operations on the disk, perhaps a crash in the middle, and a reading of everything that is there.

use ringmain_engine::{Command, OpenedShard, OpeningOutput, OpeningReport, ShardOpener};
use ringmain_model::{Incarnation, Offset, PartitionRef, Storage};
use ringmain_wal::{Effect, FileName, Finding, OpenRefused, OperationId, SlotName};

use super::commands::placed;
use super::files::{InFlight, describe, describe_completion};
use super::{Asked, SHARD, World};
use crate::model::{Check, Standing};
use crate::sabotage::slots;

/// Rounds in which an answer must come, on a disk that does everything.
const ROUNDS_MAX: u64 = 5_000;

impl World {
    /// Starts a process; `false` when a crash ended the start.
    pub(super) fn open(&mut self) -> Check<bool> {
        let epoch = self.chance.number();
        let storage = self.sizes.storage(epoch);
        let files = self.disk.list();
        let contents = [SlotName::A, SlotName::B].map(|slot| self.disk.whole(FileName::Slot(slot)));
        let was_damaged = slots(SHARD, &self.disk).is_some_and(|slots| slots.damaged.is_some());
        self.trace.note(format!("-- a process starts, {} files", files.len()));
        let mut opener = ShardOpener::new(SHARD, self.sizes.shard(), storage, &files, &contents)
            .map_err(|refused| format!("the slots were refused: {refused}"))?;
        let may_crash = self.plan.has_crashes && !self.is_calm && self.chance.one_in(3);
        let (mut outputs, mut waiting, mut opened) = (Vec::new(), Vec::new(), None);
        opener.start(&mut outputs);
        loop {
            for output in std::mem::take(&mut outputs) {
                match output {
                    OpeningOutput::Do { operation, effect } => waiting.push((operation, effect)),
                    OpeningOutput::Opened(shard) => opened = Some(shard),
                    OpeningOutput::Refused(OpenRefused::Failed { .. }) if self.has_failed => {
                        self.trace.note("the start failed".to_owned());
                        self.failing = None;
                        self.failing_sync = None;
                        self.end_process();
                        return Ok(false);
                    }
                    OpeningOutput::Refused(refused) => return Err(format!("refused to open: {refused}")),
                }
            }
            if waiting.is_empty() || opened.is_some() {
                break;
            }
            if may_crash && self.chance.one_in(15) {
                self.crash_while_opening(waiting)?;
                return Ok(false);
            }
            let (operation, effect) = waiting.swap_remove(self.chance.index(waiting.len()));
            let completion = self.perform(&effect);
            self.trace.note(format!("opening: {} {}", describe(&effect), describe_completion(&completion)));
            opener.completed(operation, &completion, &mut outputs);
        }
        let opened = opened.ok_or("the opener came to no end")?;
        let OpenedShard { shard, effects, report } = *opened;
        self.check_report(&report, was_damaged)?;
        self.shard = Some(shard);
        self.take(effects)?;
        self.verify(&report)?;
        Ok(true)
    }

    fn crash_while_opening(&mut self, waiting: Vec<(OperationId, Effect)>) -> Check {
        self.sums.crashes_while_opening += 1;
        self.in_flight =
            waiting.into_iter().map(|(operation, effect)| InFlight { operation, effect, completion: None }).collect();
        self.crash()
    }

    fn check_report(&mut self, report: &OpeningReport, was_damaged: bool) -> Check {
        self.trace.note(format!("opened: {report:?}"));
        for finding in &report.findings {
            match finding {
                Finding::Cut { .. } => self.sums.cuts += 1,
                finding => return Err(format!("an honest disk was found to have {finding:?}")),
            }
        }
        if let Some(missing) = report.missing.first() {
            return Err(format!("a topic segment is missing: {missing:?}"));
        }
        if let Some(lost) = report.lost.first() {
            return Err(format!("records are nowhere: {lost:?}"));
        }
        if report.damaged_slot.is_some() != was_damaged {
            return Err(format!("a slot is damaged: {was_damaged}, reported: {:?}", report.damaged_slot));
        }
        Ok(())
    }

    /// Everything that must be there is there: topics, every record, groups.
    fn verify(&mut self, report: &OpeningReport) -> Check {
        let shard = self.shard.as_ref().ok_or("no process runs")?;
        let mut found: Vec<_> = shard.placements().map(placed).collect();
        found.sort_unstable_by_key(|(_, life)| *life);
        self.model.recovered(&found)?;
        if report.topics != found.len() as u64 {
            return Err(format!("{} topics were reported and {} found", report.topics, found.len()));
        }
        let was_calm = std::mem::replace(&mut self.is_calm, true);
        for (_, life) in found {
            self.read_all(life)?;
        }
        self.is_calm = was_calm;
        Ok(())
    }

    /// Reads a topic from its start to its end, and compares.
    fn read_all(&mut self, life: u64) -> Check {
        let partition = PartitionRef { incarnation: Incarnation(life), partition: 0 };
        let mut next = Offset(0);
        let bytes_max = self.chance.pick(&[1, 5_000, 1 << 20]);
        loop {
            let command = Command::Read { partition, from: next, bytes_max, records_max: 1000, following: false };
            let request = self.ask(0, command, Asked::Read { life, from: next, visible_end: 0 })?;
            self.wait_for(request)?;
            let page = self.last_page.take().ok_or("a read after a start was refused")?;
            let start = page.log_start.offset();
            if page.from > next.max(start) {
                return Err(format!("a page from {next} on begins at {}, the log at {start}", page.from));
            }
            next = page.next();
            if next >= page.high_water.offset() {
                break;
            }
            if page.batches.is_empty() {
                return Err(format!("a page is empty at {next}, the log ends at {}", page.high_water.offset()));
            }
        }
        let stat = Command::Stat { partition };
        let request = self.ask(0, stat, Asked::Stat { life, visible_end: 0 })?;
        self.wait_for(request)?;
        let stats = self.last_stats.take().ok_or("a stat after a start was refused")?;
        if stats.high_water.offset() != next {
            return Err(format!("pages end at {next}, the log at {}", stats.high_water.offset()));
        }
        self.model.read_whole(life, &stats)
    }

    /// Goes on until a request is answered.
    pub(super) fn wait_for(&mut self, request: u64) -> Check {
        for _ in 0..ROUNDS_MAX {
            if !self.asked.contains_key(&request) {
                return Ok(());
            }
            if !self.go_on()? {
                let asked = self.asked.get(&request);
                return Err(format!("nothing is left to happen, and this is not answered: {asked:?}"));
            }
        }
        Err(format!("request {request} is not answered after {ROUNDS_MAX} things happened"))
    }

    /// Topics that are there for sure, stored ones alone or all.
    pub(super) fn sure_lives(&self, storage: Option<Storage>) -> Vec<u64> {
        let lives = self.model.lives.iter();
        let lives = lives.filter(|(_, life)| life.creation == Standing::Sure && life.deletion == Standing::Never);
        lives.filter(|(_, life)| storage.is_none_or(|one| life.config.storage == one)).map(|(life, _)| *life).collect()
    }
}
