//! The end of a run on a good disk: everything is answered and durable, every topic takes messages, every group gives all it has.

use ringmain_engine::Event;
use ringmain_model::{GroupName, Storage};
use ringmain_wal::FileName;

use super::node::Node;
use super::{Asked, World};
use crate::model::{Ack, Check, key_of, partition_of};

/// Things that may happen until everything is quiet.
const ROUNDS_MAX: u64 = 20_000;
/// Turns in which a time that has come may be asked for again: a loop would spin.
const TURNS_AT_ONCE_MAX: u64 = 50;
/// How often something is tried again, a second apart, until it must succeed.
const TRIES_MAX: u64 = 200;
/// Pulls in which a group must have given everything, the largest time to acknowledge apart.
const PULLS_MAX: u64 = 400;

impl World {
    /// One thing that happens by itself; `false` when nothing is left to happen.
    pub(super) fn go_on(&mut self) -> Check<bool> {
        let busy: Vec<_> = (0..self.nodes.len()).filter(|node| !self.nodes[*node].is_idle()).collect();
        if !self.letters.is_empty() && (busy.is_empty() || self.chance.one_in(2)) {
            self.carry_letter()?;
        } else if !self.errands.is_empty() && (busy.is_empty() || self.chance.one_in(2)) {
            self.carry_order()?;
        } else if busy.is_empty() {
            return self.let_time_pass();
        } else {
            let node = busy[self.chance.index(busy.len())];
            let has_work = !self.nodes[node].in_flight.is_empty();
            if !has_work || (!self.nodes[node].placings.is_empty() && self.chance.one_in(2)) {
                self.apply_placement(node)?;
            } else {
                self.complete_one(node)?;
            }
        }
        self.end_turns()?;
        Ok(true)
    }

    /// Nothing is under way: turns end, or the time comes that somebody waits for; `false` when nobody does.
    fn let_time_pass(&mut self) -> Check<bool> {
        let mut due = Vec::new();
        for node in 0..self.nodes.len() {
            if self.shard(node)?.is_dirty() {
                self.give(node, Event::TurnEnded)?;
                return Ok(true);
            }
            due.extend(self.shard(node)?.next_due_ms());
        }
        let Some(due_ms) = due.into_iter().min() else { return Ok(false) };
        self.turns_at_once = if due_ms > self.clock.monotonic_ms { 0 } else { self.turns_at_once + 1 };
        if self.turns_at_once > TURNS_AT_ONCE_MAX {
            return Err(format!("the time {due_ms} ms is asked for again and again, and nothing comes of it"));
        }
        self.clock.monotonic_ms = self.clock.monotonic_ms.max(due_ms);
        self.trace.note(format!("time passes to {} ms", self.clock.monotonic_ms));
        for node in 0..self.nodes.len() {
            if self.shard(node)?.next_due_ms().is_some_and(|due_ms| due_ms <= self.clock.monotonic_ms) {
                self.give(node, Event::TimePassed)?;
            }
        }
        self.end_turns()?;
        Ok(true)
    }

    /// Ends the turn and goes on until nothing that was asked waits.
    fn finish(&mut self) -> Check {
        self.end_turns()?;
        for _ in 0..ROUNDS_MAX {
            let is_quiet = self.letters.is_empty() && self.errands.is_empty() && self.asked.is_empty();
            if is_quiet && self.nodes.iter().all(Node::is_idle) && self.is_settled()? {
                return Ok(());
            }
            if !self.go_on()? {
                break;
            }
        }
        let settled = self.is_settled()?;
        let asked: Vec<_> = self.asked.iter().take(3).collect();
        Err(format!("nothing goes on: {} requests wait, {asked:?}, settled: {settled}", self.asked.len()))
    }

    fn is_settled(&mut self) -> Check<bool> {
        for node in 0..self.nodes.len() {
            if !self.shard(node)?.is_settled() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Heals the disk and looks at what must come of that.
    pub(super) fn settle(&mut self) -> Check {
        self.trace.note("-- the disk is good from now on".to_owned());
        self.is_calm = true;
        self.nodes.iter_mut().for_each(|node| node.disk.capacity = 1 << 40);
        self.finish()?;
        if self.nodes.iter().any(|node| node.was_poisoned) {
            self.check_poisoned()?;
            if !self.plan.has_crashes {
                return Ok(());
            }
            self.end_process();
            self.trace.note("-- a poisoned process is started again".to_owned());
            if !self.open()? {
                return Err("a calm start came to no end".to_owned());
            }
            self.finish()?;
        }
        for life in self.sure_lives(None) {
            self.publish_until_taken(life)?;
        }
        while !self.members.is_empty() {
            self.leave_at(0)?;
        }
        for life in self.sure_lives(None) {
            for group in self.group_names(life)? {
                self.drain(life, &group)?;
            }
        }
        self.finish()
    }

    /// A poisoned shard reads, and refuses to write.
    fn check_poisoned(&mut self) -> Check {
        for life in self.sure_lives(Some(Storage::Wal)) {
            let node = self.model.life(life)?.node;
            if !self.nodes[node].was_poisoned {
                continue;
            }
            let request = self.ask_publish(life)?;
            self.wait_for(request)?;
            if !self.last_is_refused {
                return Err("a poisoned shard took a message".to_owned());
            }
            let partition = partition_of(life);
            let from = ringmain_model::Offset(self.model.life(life)?.log_start_max);
            let read = ringmain_engine::Command::Read {
                partition,
                from,
                bytes_max: 10_000,
                records_max: 100,
                following: false,
            };
            let visible_end = self.model.life(life)?.visible_end;
            let request = self.ask_life(life, read, Asked::Read { life, from, visible_end })?;
            self.wait_for(request)?;
            if self.last_is_refused {
                return Err("a poisoned shard refused to read".to_owned());
            }
        }
        Ok(())
    }

    /// On a good disk with room, each topic takes messages again, sooner or later.
    fn publish_until_taken(&mut self, life: u64) -> Check {
        if !self.model.life(life)?.is_wal() {
            return Ok(());
        }
        for _ in 0..TRIES_MAX {
            let request = self.ask_publish(life)?;
            self.wait_for(request)?;
            if !self.last_is_refused {
                return Ok(());
            }
            self.finish()?;
            self.pass_ms(1000)?;
            self.finish()?;
        }
        Err(format!("topic {life:x} takes no message on a good disk"))
    }

    /// A worker gets and acknowledges everything that a group has not acknowledged.
    fn drain(&mut self, life: u64, group: &GroupName) -> Check {
        if self.model.life(life)?.group(group).current.is_none() {
            return Ok(());
        }
        let mut empty = 0;
        for _ in 0..PULLS_MAX {
            let before = self.pulled.len();
            self.pulled.clear();
            let request = self.ask_pull(life, group, 50, 0)?;
            self.wait_for(request)?;
            if self.pulled.is_empty() {
                empty += 1;
                // What somebody held or gave back comes when its time is over.
                self.pass_ms(31_000)?;
                self.end_turns()?;
                // What was given out too often leaves meanwhile.
                self.finish()?;
                if empty == 3 {
                    return self.check_drained(life, group);
                }
                continue;
            }
            self.trace.note(format!("drained {} after {before}", self.pulled.len()));
            let epoch = self.pulled[0].epoch;
            let offsets = self.pulled.iter().map(|got| got.offset).collect();
            let request = self.ask_ack_of(life, group, Ack::of(epoch, offsets))?;
            self.wait_for(request)?;
            if self.last_is_refused {
                self.finish()?;
                self.pass_ms(1000)?;
            }
        }
        Err(format!("group {group} of {life:x} gives messages without an end"))
    }

    fn check_drained(&mut self, life: u64, group: &GroupName) -> Check {
        let visible_end = self.model.life(life)?.visible_end;
        let command = ringmain_engine::Command::Stat { partition: partition_of(life) };
        let request = self.ask_life(life, command, Asked::Stat { life, visible_end })?;
        self.wait_for(request)?;
        let stats = self.last_stats.take().ok_or("a stat was refused")?;
        let Some(of_group) = stats.groups.iter().find(|one| one.name == *group) else {
            return Err(format!("group {group} is gone"));
        };
        if of_group.lag != 0 || of_group.committed != stats.high_water.offset() {
            return Err(format!("all of group {group} was acknowledged, and it stands so: {of_group:?}"));
        }
        Ok(())
    }

    /// Nothing of a topic that is gone is left on the disk, and the log has not grown without bound.
    pub(super) fn check_files(&mut self) -> Check {
        let mut rounds = 0;
        loop {
            let alive = self.sure_lives(Some(Storage::Wal));
            let is_left = |file: &FileName| match file {
                FileName::Topic(topic) => !alive.contains(&key_of(topic.partition)),
                FileName::Preparing(_) | FileName::Segment(_) | FileName::Quarantined(_) | FileName::Slot(_) => false,
            };
            let files = self.nodes.iter().flat_map(|node| node.disk.list());
            let Some((left, _)) = files.into_iter().find(|(file, _)| is_left(file)) else {
                let segments = |node: &Node| {
                    node.disk.list().iter().filter(|(file, _)| matches!(file, FileName::Segment(_))).count()
                };
                let segments = self.nodes.iter().map(segments).max().unwrap_or(0);
                // A start makes segments of its own beside those that it found.
                let segments_max = 2 * self.sizes.segments_max + 4;
                if segments > segments_max {
                    return Err(format!("the log has {segments} segments, {segments_max} at most"));
                }
                self.has_settled = true;
                return Ok(());
            };
            rounds += 1;
            if rounds > 2_000 || !self.go_on()? {
                return Err(format!("{left:?} of a topic that is gone is left"));
            }
        }
    }
}
