//! Operations in flight: performed at any time, completed in any order, failing as chance wants.

use ringmain_engine::Event;
use ringmain_wal::{Completion, Effect, Failure, FileName, OperationId};

use super::{SHARD, World};
use crate::model::Check;
use crate::sabotage::{Sabotage, zero_below_newer};

/// An operation that the shard asked for.
pub(super) struct InFlight {
    pub(super) operation: OperationId,
    pub(super) effect: Effect,
    /// What came of it, if it was performed and not told yet.
    pub(super) completion: Option<Completion>,
}

/// An effect in a few words.
pub(super) fn describe(effect: &Effect) -> String {
    match effect {
        Effect::Write { file, position, .. } => {
            format!("write {} bytes at {position} of {file:?}", effect.write_bytes())
        }
        other => format!("{other:?}"),
    }
}

pub(super) fn describe_completion(completion: &Completion) -> String {
    match completion {
        Completion::Read(bytes) => format!("read {}", bytes.len()),
        other => format!("{other:?}"),
    }
}

impl World {
    /// Something happens to one operation in flight: it is performed, or completed.
    pub(super) fn complete_one(&mut self) -> Check {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let at = self.chance.index(self.in_flight.len());
        if self.in_flight[at].completion.is_none() {
            let effect = self.in_flight[at].effect.clone();
            let completion = self.perform(&effect);
            self.in_flight[at].completion = Some(completion);
            // The system has done it, and the shard does not know yet.
            if !self.is_calm && self.chance.one_in(4) {
                self.trace.note(format!("performed {}", describe(&effect)));
                return Ok(());
            }
        }
        let InFlight { operation, effect, completion } = self.in_flight.swap_remove(at);
        let Some(completion) = completion else { return Ok(()) };
        self.trace.note(format!("done {}: {} {}", operation.0, describe(&effect), describe_completion(&completion)));
        self.give(Event::FileDone { operation, completion })
    }

    /// Performs an effect as well as the disk of the day does it.
    pub(super) fn perform(&mut self, effect: &Effect) -> Completion {
        if self.plan.sabotage.is_some_and(|sabotage| sabotage.skips(effect)) {
            return Completion::Done;
        }
        let failing = match effect {
            Effect::Sync { .. } | Effect::SyncDirectory => self.failing_sync,
            _ => self.failing,
        };
        if !self.is_calm && failing.is_some_and(|failing| self.chance.one_in(failing)) {
            let completion = self.fail(effect);
            let hides = self.plan.sabotage == Some(Sabotage::SyncFailureHidden);
            if hides && matches!(effect, Effect::Sync { file: FileName::Segment(_) }) {
                return Completion::Done;
            }
            return completion;
        }
        let completion = self.disk.perform(effect);
        match (effect, &completion) {
            (_, Completion::Failed(Failure::NoSpace)) => self.has_been_full = true,
            (Effect::Unlink { file: FileName::Topic(_) }, Completion::Done) => self.sums.unlinks += 1,
            (Effect::SyncDirectory, _) if self.plan.sabotage == Some(Sabotage::ReleasedBelowNewer) => {
                zero_below_newer(SHARD, &mut self.disk);
            }
            _ => {}
        }
        completion
    }

    fn fail(&mut self, effect: &Effect) -> Completion {
        self.has_failed = true;
        self.sums.failures += 1;
        match effect {
            // When that fails, no file may be left behind.
            Effect::Allocate { .. } => return Completion::Failed(Failure::NoSpace),
            Effect::Read { .. } => return Completion::Failed(Failure::System(5)),
            Effect::Sync { file } => self.disk.fail_sync(*file, &mut self.chance),
            _ => self.disk.perform_in_part(effect, &mut self.chance),
        }
        match effect {
            Effect::Write { .. } if self.chance.one_in(3) => Completion::Written(effect.write_bytes() / 2),
            Effect::Write { .. } if self.chance.one_in(2) => Completion::Failed(Failure::NoSpace),
            _ => Completion::Failed(Failure::System(5)),
        }
    }

    /// The files of a topic go at once, for good.
    pub(super) fn unlink_early(&mut self, life: u64) {
        for (file, _) in self.disk.list() {
            if matches!(file, FileName::Topic(topic) if topic.partition.incarnation.0 == life) {
                self.disk.lose(file);
            }
        }
    }
}
