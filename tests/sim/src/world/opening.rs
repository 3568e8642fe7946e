//! A start: the opener's operations on the disk, perhaps a crash in the middle, and a reading of everything that is there.

use ringmain_engine::{Command, OpenedShard, OpeningOutput, OpeningReport, ShardOpener, reconcile};
use ringmain_model::{Offset, Storage};
use ringmain_wal::{Effect, FileName, Finding, OpenRefused, OperationId, SlotName};

use super::files::{InFlight, describe, describe_completion};
use super::node::Node;
use super::{Asked, World};
use crate::model::{Check, Standing, partition_of};
use crate::sabotage::{Sabotage, slots};

/// Rounds in which an answer must come, on a disk that does everything.
const ROUNDS_MAX: u64 = 5_000;

impl World {
    /// Starts a process; `false` when a crash ended the start.
    pub(super) fn open(&mut self) -> Check<bool> {
        self.trace.note("-- a process starts".to_owned());
        let (mut opened, mut reports) = (Vec::new(), Vec::new());
        for node in 0..self.nodes.len() {
            let was_damaged =
                slots(self.nodes[node].id, &self.nodes[node].disk).is_some_and(|slots| slots.damaged.is_some());
            let Some(one) = self.open_node(node)? else { return Ok(false) };
            self.check_report(&one.report, was_damaged)?;
            opened.push(one);
        }
        if self.plan.sabotage != Some(Sabotage::OrphansKept) {
            reconcile(&mut opened);
        }
        for (node, OpenedShard { shard, effects, report }) in opened.into_iter().enumerate() {
            self.nodes[node].shard = Some(shard);
            self.sums.orphans += report.orphans.len() as u64;
            if report.orphans.iter().any(|(_, is_removed)| !is_removed) {
                return Err(format!("an honest disk left orphans: {:?}", report.orphans));
            }
            self.take(node, effects)?;
            reports.push(report);
        }
        self.verify(reports.iter().map(|report| report.topics).sum())?;
        Ok(true)
    }

    /// Opens one shard; nothing when a crash or a failure ended the start.
    fn open_node(&mut self, node: usize) -> Check<Option<OpenedShard>> {
        let epoch = self.chance.number();
        let Node { id, disk, .. } = &self.nodes[node];
        let storage = self.sizes.storage(*id, epoch);
        let files = disk.list();
        let contents = [SlotName::A, SlotName::B].map(|slot| disk.whole(FileName::Slot(slot)));
        self.trace.note(format!("shard {node} is opened, {} files", files.len()));
        let mut opener = ShardOpener::new(*id, self.sizes.shard(), storage, &files, &contents)
            .map_err(|refused| format!("the slots were refused: {refused}"))?;
        let may_crash = self.plan.has_crashes && !self.is_calm && self.chance.one_in(3);
        let (mut outputs, mut waiting) = (Vec::new(), Vec::new());
        opener.start(&mut outputs);
        loop {
            for output in std::mem::take(&mut outputs) {
                match output {
                    OpeningOutput::Do { operation, effect } => waiting.push((operation, effect)),
                    OpeningOutput::Opened(opened) => return Ok(Some(*opened)),
                    OpeningOutput::Refused(OpenRefused::Failed { .. }) if self.has_failed => {
                        self.trace.note("the start failed".to_owned());
                        self.failing = None;
                        self.failing_sync = None;
                        self.end_process();
                        return Ok(None);
                    }
                    OpeningOutput::Refused(refused) => return Err(format!("refused to open: {refused}")),
                }
            }
            if waiting.is_empty() {
                return Err("the opener came to no end".to_owned());
            }
            if may_crash && self.chance.one_in(15) {
                self.crash_while_opening(node, waiting)?;
                return Ok(None);
            }
            let (operation, effect) = waiting.swap_remove(self.chance.index(waiting.len()));
            let completion = self.perform(node, &effect);
            self.trace.note(format!("opening: {} {}", describe(&effect), describe_completion(&completion)));
            opener.completed(operation, &completion, &mut outputs);
        }
    }

    fn crash_while_opening(&mut self, node: usize, waiting: Vec<(OperationId, Effect)>) -> Check {
        self.sums.crashes_while_opening += 1;
        self.nodes[node].in_flight =
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

    /// Everything that must be there is there: topics, all their partitions, every record, groups.
    fn verify(&mut self, reported: u64) -> Check {
        let found = self.placements()?;
        self.model.recovered(&found)?;
        if reported != found.len() as u64 {
            return Err(format!("{reported} topics were reported and {} found", found.len()));
        }
        let was_calm = std::mem::replace(&mut self.is_calm, true);
        for (_, incarnation, partitions) in found {
            let mut configs = Vec::new();
            for number in 0..u64::from(partitions) {
                self.read_all(incarnation | number)?;
                configs.push(self.model.life(incarnation | number)?.config.clone());
            }
            configs.dedup();
            if configs.len() > 1 {
                return Err(format!("the partitions of {incarnation:x} have several settings: {configs:?}"));
            }
        }
        self.is_calm = was_calm;
        Ok(())
    }

    /// Reads a topic from its start to its end, and compares.
    fn read_all(&mut self, life: u64) -> Check {
        let partition = partition_of(life);
        let mut next = Offset(0);
        let bytes_max = self.chance.pick(&[1, 5_000, 1 << 20]);
        loop {
            let command = Command::Read { partition, from: next, bytes_max, records_max: 1000, following: false };
            let request = self.ask_life(life, command, Asked::Read { life, from: next, visible_end: 0 })?;
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
        let request = self.ask_life(life, stat, Asked::Stat { life, visible_end: 0 })?;
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
