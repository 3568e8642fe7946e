//! A consumer group as its workers know it: epochs, what was given out in each, what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_engine::{Assigned, GroupStats};

use super::Check;

/// What was asked of a group that a crash may leave done or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// A seek.
    Seek,
    /// A deletion.
    Delete,
}

/// An acknowledgement that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The epoch in which the messages were got.
    pub epoch: u64,
    /// The messages.
    pub offsets: Vec<u64>,
    /// Those of them that were given out by the process that was asked, in its present epoch: they count when it answers.
    counting: Vec<u64>,
}

impl Ack {
    /// An acknowledgement that nobody has seen yet.
    #[must_use]
    pub fn of(epoch: u64, offsets: Vec<u64>) -> Self {
        Self { epoch, offsets, counting: Vec::new() }
    }
}

#[derive(Clone, Default, Debug)]
struct Epoch {
    /// The last process in which it was there.
    run: u64,
    /// Number of the request after which it was first seen.
    first_request: u64,
    /// Where it begins; at least the true beginning.
    start: Option<u64>,
    /// `start` is the true beginning.
    is_start_exact: bool,
    /// Something was given out or answered in it, so that its number must not be used again.
    is_promised: bool,
    /// The last process in which each message was given out.
    given: BTreeMap<u64, u64>,
    /// Answered acknowledgements: process and request.
    must: BTreeMap<u64, (u64, u64)>,
    /// How often each message was given out, as its receivers were told, at most.
    attempts: BTreeMap<u64, u32>,
    /// Acknowledgements that were ever asked for, and messages that went to the dead letters.
    may: BTreeSet<u64>,
}

/// A group.
#[derive(Clone, Default, Debug)]
pub struct GroupModel {
    /// The epoch that was seen last; `None` when it is not known to be there.
    pub current: Option<u64>,
    /// The epoch that a crash must not take back.
    sure: Option<u64>,
    /// Seeks and deletions asked and not answered: the request and what.
    unsure: BTreeMap<u64, Verb>,
    /// One of them was answered with "unknown".
    is_unknown: bool,
    /// The last request that could have begun it, and the last deletion that was answered.
    begin_request: u64,
    deleted_request: u64,
    epochs: BTreeMap<u64, Epoch>,
}

impl GroupModel {
    /// A request that begins the group if it is not there.
    pub fn begin_asked(&mut self, request: u64) {
        self.begin_request = request;
    }

    /// A seek or a deletion was asked for.
    pub fn asked(&mut self, request: u64, verb: Verb) {
        self.unsure.insert(request, verb);
    }

    /// It was refused: it did not happen, or nobody knows.
    pub fn refused(&mut self, request: u64, is_unknown: bool) {
        self.unsure.remove(&request);
        self.is_unknown |= is_unknown;
    }

    /// Whether it is there for sure, and nothing that was asked may change that.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.sure.is_some() && self.is_quiet()
    }

    /// Whether no seek or deletion is under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.unsure.is_empty() && !self.is_unknown
    }

    fn knows_no_reason_for_another_epoch(&self) -> bool {
        self.is_quiet() && self.current.is_some()
    }

    /// An epoch was seen.
    fn saw(&mut self, run: u64, number: u64) -> Check<&mut Epoch> {
        let (begin, current) = (self.begin_request, self.current);
        let is_settled = self.knows_no_reason_for_another_epoch();
        let last_request = self.unsure.last_key_value().map_or(0, |(request, _)| *request).max(begin);
        let is_new = !self.epochs.contains_key(&number);
        if is_new && is_settled {
            return Err(format!("epoch {number} came after {current:?}, and nobody asked for it"));
        }
        let epoch = self.epochs.entry(number).or_default();
        if !is_new && epoch.run != run {
            return Err(format!("epoch {number} is of process {} and came again in {run}", epoch.run));
        }
        if is_new {
            (epoch.run, epoch.first_request) = (run, last_request);
            self.current = Some(number);
        }
        Ok(epoch)
    }

    /// A message was given out.
    pub(super) fn given(&mut self, run: u64, number: u64, record: Assigned, request: u64) -> Check {
        let offset = record.offset.0;
        let epoch = self.saw(run, number)?;
        epoch.is_promised = true;
        if let Some((acked_run, acked_request)) = epoch.must.get(&offset)
            && (*acked_run < run || *acked_request < request)
        {
            return Err(format!("{offset} was acknowledged in epoch {number} and was given out again"));
        }
        epoch.given.insert(offset, run);
        let attempts = epoch.attempts.entry(offset).or_default();
        *attempts = record.attempt.max(*attempts);
        if !epoch.is_start_exact {
            epoch.start = Some(epoch.start.map_or(offset, |start| start.min(offset)));
        }
        if self.is_quiet() {
            self.sure = Some(number);
        }
        Ok(())
    }

    /// A message leaves for the dead letters.
    pub(super) fn dies(&self, number: u64, offset: u64, max_deliver: Option<u32>) -> Check {
        let epoch = self.epochs.get(&number).ok_or_else(|| format!("{offset} dies in the unknown epoch {number}"))?;
        if epoch.must.contains_key(&offset) {
            return Err(format!("{offset} was acknowledged in epoch {number} and dies"));
        }
        let attempts = epoch.attempts.get(&offset).copied().unwrap_or(0);
        if max_deliver.is_none_or(|max| attempts < max) {
            return Err(format!("{offset} dies after {attempts} attempts, the bound was never below {max_deliver:?}"));
        }
        Ok(())
    }

    /// The dead letters have it.
    pub(super) fn died(&mut self, number: u64, offset: u64) {
        if let Some(epoch) = self.epochs.get_mut(&number) {
            epoch.may.insert(offset);
        }
    }

    /// A member has joined.
    ///
    /// # Errors
    /// When the epoch cannot be.
    pub fn joined(&mut self, run: u64, number: u64) -> Check {
        self.saw(run, number).map(|_| ())
    }

    /// Acknowledgements were asked for.
    pub fn ack_asked(&mut self, run: u64, ack: &mut Ack) {
        let is_present = self.is_quiet() && self.current == Some(ack.epoch);
        let Some(epoch) = self.epochs.get_mut(&ack.epoch) else { return };
        epoch.may.extend(&ack.offsets);
        let given = |offset: &&u64| is_present && epoch.given.get(offset) == Some(&run);
        ack.counting = ack.offsets.iter().filter(given).copied().collect();
    }

    /// Acknowledgements were answered: `new` of them were new.
    pub fn acked(&mut self, run: u64, ack: &Ack, request: u64, new: u64) {
        let Some(epoch) = self.epochs.get_mut(&ack.epoch) else { return };
        let counting = if new == ack.offsets.len() as u64 { &ack.offsets } else { &ack.counting };
        for offset in counting {
            epoch.must.entry(*offset).or_insert((run, request));
        }
        if !counting.is_empty() && self.is_quiet() && self.current == Some(ack.epoch) {
            self.sure = Some(ack.epoch);
        }
    }

    /// A seek was answered.
    ///
    /// # Errors
    /// When the new epoch is an old one.
    pub fn sought(&mut self, run: u64, request: u64, stats: &GroupStats) -> Check {
        let epoch = self.saw(run, stats.epoch)?;
        epoch.is_promised = true;
        epoch.first_request = epoch.first_request.min(request);
        if epoch.may.is_empty() && epoch.given.is_empty() {
            (epoch.start, epoch.is_start_exact) = (Some(stats.committed.0), true);
        }
        self.unsure.remove(&request);
        // A later deletion may have been carried out already.
        if self.unsure.range(request..).next().is_none() {
            self.sure = Some(stats.epoch);
        }
        Ok(())
    }

    /// A deletion was answered.
    pub fn deleted(&mut self, request: u64) {
        self.unsure.remove(&request);
        self.deleted_request = self.deleted_request.max(request);
        let is_newer = |number: &u64| self.epochs.get(number).is_some_and(|epoch| epoch.first_request > request);
        self.current = self.current.filter(is_newer);
        self.sure = self.sure.filter(is_newer);
    }

    /// A start found the group, or did not.
    pub(super) fn recovered(&mut self, run: u64, found: Option<&GroupStats>) -> Check {
        let may_be_deleted = self.is_unknown || self.unsure.values().any(|verb| *verb == Verb::Delete);
        let may_have_moved = !self.is_quiet();
        match found {
            None if self.sure.is_some() && !may_be_deleted => {
                return Err(format!("it stood in epoch {:?} and is gone", self.sure));
            }
            None => {
                (self.current, self.sure) = (None, None);
                // Only a new request may begin it again.
                self.deleted_request = self.begin_request + 1;
            }
            Some(stats) => {
                if self.deleted_request > 0 && self.begin_request < self.deleted_request {
                    return Err("it was deleted, and came back".to_owned());
                }
                if let Some(sure) = self.sure.filter(|sure| *sure != stats.epoch) {
                    let began_later = self.begin_request > 0 && may_be_deleted;
                    if !may_have_moved && !began_later {
                        return Err(format!("it stood in epoch {sure} and is found in epoch {}", stats.epoch));
                    }
                    if stats.epoch < sure {
                        return Err(format!("it stood in epoch {sure} and went back to {}", stats.epoch));
                    }
                }
                if let Some(epoch) = self.epochs.get(&stats.epoch)
                    && (epoch.run + 1 < run || epoch.first_request < self.deleted_request)
                {
                    return Err(format!("epoch {} is an old one", stats.epoch));
                }
                let first_request = self.begin_request;
                let unseen = || Epoch { first_request, ..Epoch::default() };
                let epoch = self.epochs.entry(stats.epoch).or_insert_with(unseen);
                (epoch.run, epoch.is_promised) = (run, true);
                (self.current, self.sure) = (Some(stats.epoch), Some(stats.epoch));
            }
        }
        self.unsure.clear();
        self.is_unknown = false;
        let current = self.current;
        self.epochs.retain(|number, epoch| epoch.is_promised || current == Some(*number));
        Ok(())
    }

    /// The group stands so; everything below `visible` is visible, and it may have gone past what `is_lost` says.
    ///
    /// What was given out `dropped_after` times may have been dropped.
    pub(super) fn check(
        &mut self,
        run: u64,
        stats: &GroupStats,
        visible: u64,
        dropped_after: Option<u32>,
        is_lost: impl Fn(u64) -> bool,
    ) -> Check {
        let committed = stats.committed.0;
        let epoch = self.saw(run, stats.epoch)?;
        if committed > visible || stats.next.0 > visible {
            return Err(format!("progress is ahead of the log: {stats:?}, visible are {visible}"));
        }
        if epoch.start.is_none() {
            (epoch.start, epoch.is_start_exact) = (Some(committed), epoch.may.is_empty() && epoch.given.is_empty());
        }
        let start = epoch.start.map_or(committed, |start| start.min(committed));
        // It had gone on with the log start before anybody looked, and a crash took that back.
        epoch.is_start_exact &= epoch.start == Some(start);
        epoch.start = Some(start);
        let attempts = |offset: &u64| epoch.attempts.get(offset).copied().unwrap_or(0);
        let is_dropped = |offset: &u64| dropped_after.is_some_and(|times| attempts(offset) >= times);
        let ahead =
            (start..committed).find(|offset| !epoch.may.contains(offset) && !is_dropped(offset) && !is_lost(*offset));
        if let Some(ahead) = ahead {
            return Err(format!("the committed offset {committed} is above {ahead}, which nobody acknowledged"));
        }
        if epoch.is_start_exact {
            let acked = (start..).find(|offset| !epoch.must.contains_key(offset)).unwrap_or(start);
            if committed < acked {
                return Err(format!("everything below {acked} was acknowledged and {committed} is committed"));
            }
        }
        Ok(())
    }
}
