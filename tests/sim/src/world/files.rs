//! Operations in flight: performed at any time, completed in any order, failing as chance wants.

use ringmain_engine::Event;
use ringmain_wal::{Completion, Effect, Failure, FileName, OperationId};

use super::World;
use super::node::Node;
use crate::model::{Check, is_of_topic, key_of};
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
    pub(super) fn complete_one(&mut self, node: usize) -> Check {
        if self.nodes[node].in_flight.is_empty() {
            return Ok(());
        }
        let at = self.chance.index(self.nodes[node].in_flight.len());
        if self.nodes[node].in_flight[at].completion.is_none() {
            let effect = self.nodes[node].in_flight[at].effect.clone();
            let completion = self.perform(node, &effect);
            self.nodes[node].in_flight[at].completion = Some(completion);
            // The system has done it, and the shard does not know yet.
            if !self.is_calm && self.chance.one_in(4) {
                self.trace.note(format!("performed {}", describe(&effect)));
                return Ok(());
            }
        }
        let InFlight { operation, effect, completion } = self.nodes[node].in_flight.swap_remove(at);
        let Some(completion) = completion else { return Ok(()) };
        self.trace.note(format!(
            "done {node}/{}: {} {}",
            operation.0,
            describe(&effect),
            describe_completion(&completion)
        ));
        self.give(node, Event::FileDone { operation, completion })
    }

    /// Performs an effect as well as the disk of the day does it.
    pub(super) fn perform(&mut self, node: usize, effect: &Effect) -> Completion {
        if self.plan.sabotage.is_some_and(|sabotage| sabotage.skips(effect)) {
            return Completion::Done;
        }
        let failing = match effect {
            Effect::Sync { .. } | Effect::SyncDirectory => self.failing_sync,
            // Few effects are such writes, and some of them cost no more than a new file.
            Effect::Write { file: FileName::Topic(_), .. } => self.failing.map(|one_in| 1 + one_in / 8),
            _ => self.failing,
        };
        if !self.is_calm && failing.is_some_and(|failing| self.chance.one_in(failing)) {
            let completion = self.fail(node, effect);
            let hides = self.plan.sabotage == Some(Sabotage::SyncFailureHidden);
            if hides && matches!(effect, Effect::Sync { file: FileName::Segment(_) }) {
                return Completion::Done;
            }
            return completion;
        }
        let completion = self.nodes[node].disk.perform(effect);
        match (effect, &completion) {
            (_, Completion::Failed(Failure::NoSpace)) => self.has_been_full = true,
            (Effect::Unlink { file: FileName::Topic(_) }, Completion::Done) => self.sums.unlinks += 1,
            (Effect::SyncDirectory, _) if self.plan.sabotage == Some(Sabotage::ReleasedBelowNewer) => {
                let Node { id, disk, .. } = &mut self.nodes[node];
                zero_below_newer(*id, disk);
            }
            _ => {}
        }
        completion
    }

    fn fail(&mut self, node: usize, effect: &Effect) -> Completion {
        self.has_failed = true;
        self.sums.failures += 1;
        match effect {
            // When that fails, no file may be left behind.
            Effect::Allocate { .. } => return Completion::Failed(Failure::NoSpace),
            Effect::Read { .. } => return Completion::Failed(Failure::System(5)),
            Effect::Sync { file } => self.nodes[node].disk.fail_sync(*file, &mut self.chance),
            _ => self.nodes[node].disk.perform_in_part(effect, &mut self.chance),
        }
        match effect {
            Effect::Write { .. } if self.chance.one_in(3) => Completion::Written(effect.write_bytes() / 2),
            Effect::Write { .. } if self.chance.one_in(2) => Completion::Failed(Failure::NoSpace),
            _ => Completion::Failed(Failure::System(5)),
        }
    }

    /// The files of a topic go at once, for good.
    pub(super) fn unlink_early(&mut self, life: u64) {
        for disk in self.nodes.iter_mut().map(|node| &mut node.disk) {
            for (file, _) in disk.list() {
                if matches!(file, FileName::Topic(topic) if is_of_topic(key_of(topic.partition), life)) {
                    disk.lose(file);
                }
            }
        }
    }
}
