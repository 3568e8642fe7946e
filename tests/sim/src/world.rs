//! The simulated shards: their disks, the clock, what clients ask, and one process after another.

mod commands;
mod damage;
mod files;
mod group_commands;
mod letters;
mod node;
mod opening;
mod orders;
mod plan;
mod replies;
mod settle;
mod sizes;

use std::collections::BTreeMap;

use ringmain_engine::{Command, DeadLetter, Event, Now, Origin, Page, Shard, StorageState, TopicStats};
use ringmain_model::{GroupName, Offset, ShardId};

use crate::chance::Chance;
use crate::model::{Ack, Bounds, Check, Model, partition_of};
use crate::sabotage::{Sabotage, chain_stale, damage_slot};
use crate::trace::Trace;
use letters::Letter;
use node::Node;
use orders::Errand;
pub use plan::{Plan, Sums};
use sizes::Sizes;

/// Cores that apply placement changes and ask.
pub(crate) const CORES: u16 = 2;

/// What somebody asked and waits for.
#[derive(Clone, Debug)]
enum Asked {
    Create { life: u64 },
    Delete { life: Option<u64>, was_sure: bool },
    Publish { life: u64, id: u64, is_durable: bool, was_sure: bool },
    Repeat { life: u64, at: u64 },
    PublishAll { life: u64, first: u64, count: u64, is_durable: bool, was_sure: bool },
    Letter { life: u64, id: u64, letter: DeadLetter },
    Change { life: u64 },
    Read { life: u64, from: Offset, visible_end: u64 },
    Stat { life: u64, visible_end: u64 },
    List,
    Interest { life: u64, core: u16, wanted: bool },
    Pull { life: u64, group: GroupName },
    Ack { life: u64, group: GroupName, ack: Ack },
    Nack,
    Seek { life: u64, group: GroupName },
    DeleteGroup { life: u64, group: GroupName },
    StatGroup { life: u64, group: GroupName, was_sure: bool },
    Groups { life: u64 },
}

/// A live member of a group.
#[derive(Clone, Debug)]
struct Member {
    origin: Origin,
    life: u64,
    group: GroupName,
    acks_by_sending: bool,
    got: Vec<(u64, u64)>,
}

/// A message that a pull got.
#[derive(Clone, Debug)]
struct Got {
    life: u64,
    group: GroupName,
    epoch: u64,
    offset: u64,
}

/// The shards' whole world.
pub struct World {
    plan: Plan,
    sizes: Sizes,
    chance: Chance,
    model: Model,
    trace: Trace,
    sums: Sums,
    clock: Now,
    nodes: Vec<Node>,
    next_request: u64,
    asked: BTreeMap<u64, Asked>,
    members: Vec<Member>,
    pulled: Vec<Got>,
    /// Dead letters that nobody has carried on yet.
    letters: Vec<Letter>,
    /// What shards ask of each other, on its way, and by the number of the request that carries it.
    errands: Vec<Errand>,
    ordered: BTreeMap<u64, (usize, u64)>,
    /// The last page and the last stats, for whoever asked on the harness's own behalf.
    last_page: Option<Page>,
    last_stats: Option<TopicStats>,
    last_is_refused: bool,
    /// An operation fails once in so many times, a sync once in so many.
    failing: Option<u64>,
    failing_sync: Option<u64>,
    /// Something has failed in this process, or found no room.
    has_failed: bool,
    has_been_full: bool,
    /// Nothing fails and nothing crashes.
    is_calm: bool,
    has_settled: bool,
    /// Turns in a row at a time that had come before.
    turns_at_once: u64,
}

impl World {
    /// The world of a seed, with a trace of `lines_max` lines.
    #[must_use]
    pub fn new(seed: u64, plan: Plan, lines_max: usize) -> Self {
        let mut chance = Chance::of(seed);
        let sizes = Sizes::draw(&mut chance);
        let capacity = if plan.has_failures && chance.one_in(3) {
            sizes.segment_max * (3 + chance.below(12)) + (128 << 10)
        } else {
            1 << 40
        };
        let mut trace = Trace::new(lines_max);
        trace.note(format!("{sizes:?}, capacity {capacity}"));
        Self {
            plan,
            nodes: (0..sizes.shards).map(|shard| Node::new(ShardId(shard), capacity)).collect(),
            model: Model::new(Bounds {
                segments_bytes: sizes.topic_segment.min(sizes.topic_segment_min)
                    * sizes.topic_segments_max.saturating_sub(1),
            }),
            trace,
            sums: Sums { runs: 1, ..Sums::default() },
            clock: Now { unix_us: 1_700_000_000_000_000, monotonic_ms: 0 },
            next_request: 1,
            asked: BTreeMap::new(),
            members: Vec::new(),
            pulled: Vec::new(),
            letters: Vec::new(),
            errands: Vec::new(),
            ordered: BTreeMap::new(),
            last_page: None,
            last_stats: None,
            last_is_refused: false,
            failing: None,
            failing_sync: None,
            has_failed: false,
            has_been_full: false,
            is_calm: false,
            has_settled: false,
            turns_at_once: 0,
            sizes,
            chance,
        }
    }

    /// What happened.
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.sums.clone()
    }

    /// Its lines.
    #[must_use]
    pub fn into_trace(self) -> Trace {
        self.trace
    }

    /// Lives all processes.
    ///
    /// # Errors
    /// What was wrong.
    pub fn run(&mut self) -> Check {
        let processes = if self.plan.has_crashes { 2 + self.chance.below(7) } else { 1 };
        for _ in 0..processes {
            self.draw_failures();
            if !self.open()? {
                continue;
            }
            let steps = if self.chance.one_in(2) { self.chance.below(500) } else { self.chance.below(100) };
            for _ in 0..steps {
                self.step()?;
            }
            if self.plan.has_crashes {
                self.crash()?;
            } else {
                self.settle()?;
            }
        }
        if !self.plan.has_crashes {
            return Ok(());
        }
        if self.plan.damages_files {
            return self.suffer_damage();
        }
        // The last process has a good disk with room: everything goes on by itself and ends durable.
        self.draw_failures();
        let mut is_open = self.open()?;
        while !is_open {
            is_open = self.open()?;
        }
        for _ in 0..self.chance.below(100) {
            self.step()?;
        }
        self.settle()?;
        self.end_process();
        self.trace.note("the process ends in peace".to_owned());
        self.is_calm = true;
        self.open()?;
        self.check_files()
    }

    fn draw_failures(&mut self) {
        let may_fail = self.plan.has_failures;
        self.failing = (may_fail && self.chance.one_in(4)).then(|| 10 + self.chance.below(150));
        self.failing_sync = (may_fail && self.chance.one_in(5)).then(|| 20 + self.chance.below(200));
    }

    fn shard(&mut self, node: usize) -> Check<&mut Shard> {
        self.nodes[node].shard.as_mut().ok_or_else(|| "no process runs".to_owned())
    }

    fn give(&mut self, node: usize, event: Event) -> Check {
        let now = self.clock;
        let mut effects = Vec::new();
        self.shard(node)?.handle(now, event, &mut effects);
        self.take(node, effects)?;
        self.watch_state(node)
    }

    fn any_node(&mut self) -> usize {
        self.chance.index(self.nodes.len())
    }

    fn end_turns(&mut self) -> Check {
        (0..self.nodes.len()).try_for_each(|node| self.give(node, Event::TurnEnded))
    }

    /// A shard says that it is poisoned or full only where there is a reason.
    fn watch_state(&mut self, node: usize) -> Check {
        let state = self.shard(node)?.storage_state();
        let was_poisoned = self.nodes[node].was_poisoned;
        match state {
            StorageState::Poisoned if !self.has_failed => Err("poisoned, and nothing has failed".to_owned()),
            StorageState::Full if !self.has_failed && !self.has_been_full => {
                Err("full, and nothing found no room".to_owned())
            }
            StorageState::Open | StorageState::Busy | StorageState::Full if was_poisoned => {
                Err(format!("poisoned, and {state:?} again"))
            }
            StorageState::Poisoned => {
                if !std::mem::replace(&mut self.nodes[node].was_poisoned, true) {
                    self.trace.note("poisoned".to_owned());
                    self.sums.poisons += 1;
                }
                Ok(())
            }
            StorageState::Full => {
                self.sums.fulls += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// One thing happens.
    fn step(&mut self) -> Check {
        self.sums.steps += 1;
        if !self.letters.is_empty() && self.chance.one_in(5) {
            return self.carry_letter();
        }
        if !self.errands.is_empty() && self.chance.one_in(4) {
            return self.carry_order();
        }
        let node = self.any_node();
        match self.chance.below(20) {
            0..8 => self.ask_something(),
            8..12 => self.give(node, Event::TurnEnded),
            12..17 => {
                for _ in 0..=self.chance.below(3) {
                    self.complete_one(node)?;
                }
                Ok(())
            }
            17 => self.apply_placement(node),
            18 => self.pass_time(),
            _ => {
                if self.plan.has_failures && self.chance.one_in(6) {
                    self.change_capacity(node);
                }
                self.complete_one(node)
            }
        }
    }

    /// A core says that it has applied a change.
    fn apply_placement(&mut self, node: usize) -> Check {
        if self.nodes[node].placings.is_empty() {
            return Ok(());
        }
        let change = self.nodes[node].placings.remove(0);
        self.trace.note(format!("placed {change} of {node}"));
        self.give(node, Event::Placed { change })
    }

    fn pass_time(&mut self) -> Check {
        let ms = self.chance.pick(&[1, 20, 60, 300, 1500]);
        self.pass_ms(ms)
    }

    fn pass_ms(&mut self, ms: u64) -> Check {
        self.clock.monotonic_ms += ms;
        self.clock.unix_us += ms as i64 * 1000;
        // Now and then the wall clock is set back.
        if self.chance.one_in(20) {
            self.clock.unix_us -= 1_500_000;
        }
        let now_ms = self.clock.monotonic_ms;
        for node in 0..self.nodes.len() {
            if self.shard(node)?.next_due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                self.trace.note(format!("time passes to {now_ms} ms for {node}"));
                self.give(node, Event::TimePassed)?;
            }
        }
        Ok(())
    }

    fn change_capacity(&mut self, node: usize) {
        let disk = &mut self.nodes[node].disk;
        let used = disk.used();
        disk.capacity = match self.chance.below(3) {
            0 => used.saturating_sub(8192),
            1 => used + self.sizes.segment_first,
            _ => 1 << 40,
        };
        self.trace.note(format!("{used} bytes are used on {node}, capacity {}", disk.capacity));
    }

    /// The process is gone; what it knew is gone with it.
    fn end_process(&mut self) {
        for node in &mut self.nodes {
            if let Some(shard) = node.shard.take() {
                let stats = shard.storage_stats();
                self.sums.commits += stats.commits;
                self.sums.checkpoints += stats.checkpoints;
                self.sums.segment_bytes += stats.segment_bytes;
                self.sums.segment_read_bytes += stats.read_bytes;
            }
            node.disk.end_process();
            node.placings.clear();
            node.in_flight.clear();
            node.was_poisoned = false;
        }
        self.asked.clear();
        self.members.clear();
        self.letters.clear();
        self.errands.clear();
        self.ordered.clear();
        self.model.crashed();
        self.clock.monotonic_ms = 0;
        (self.has_failed, self.has_been_full, self.has_settled) = (false, false, false);
    }

    /// How far retention has come, as the process would have told at its end: groups may have gone as far.
    fn look_at_retention(&mut self) -> Check {
        let lives: Vec<_> =
            self.model.lives.iter().filter(|(_, life)| life.may_be_there()).map(|(life, _)| *life).collect();
        for life in lives {
            let command = Command::Stat { partition: partition_of(life) };
            self.ask_life(life, command, Asked::Stat { life, visible_end: 0 })?;
        }
        Ok(())
    }

    fn crash(&mut self) -> Check {
        if self.nodes.iter().all(|node| node.shard.is_some()) {
            self.look_at_retention()?;
        }
        self.sums.crashes += 1;
        // A killed process leaves the system's memory, a power loss does not.
        let (of_nothing, is_power) = (self.chance.one_in(3), !self.chance.one_in(3));
        self.sums.power_losses += u64::from(is_power);
        for node in 0..self.nodes.len() {
            self.crash_disk(node, of_nothing, is_power);
        }
        self.trace.note(format!("-- {}", if is_power { "the power goes" } else { "the process is killed" }));
        let node = self.any_node();
        self.damage(node);
        self.end_process();
        Ok(())
    }

    /// What was in flight is done, in part or not at all.
    fn crash_disk(&mut self, node: usize, of_nothing: bool, is_power: bool) {
        let Node { disk, in_flight, .. } = &mut self.nodes[node];
        for left in std::mem::take(in_flight) {
            if left.completion.is_some() || of_nothing {
                continue;
            }
            if self.chance.one_in(3) {
                disk.perform(&left.effect);
            } else {
                disk.perform_in_part(&left.effect, &mut self.chance);
            }
        }
        disk.end_process();
        if is_power {
            disk.lose_power(&mut self.chance);
        }
    }

    /// What a plan does to a disk while no process runs.
    fn damage(&mut self, node: usize) {
        let Node { id, disk, .. } = &mut self.nodes[node];
        let may_damage = if self.plan.sabotage == Some(Sabotage::ReleasedBelowNewer) { 2 } else { 5 };
        if self.plan.damages_slots && self.chance.one_in(may_damage) {
            let is_newer = !self.chance.one_in(4);
            if damage_slot(*id, disk, is_newer) {
                self.sums.damaged_slots += 1;
                self.trace.note(format!(
                    "the {} slot of {} is damaged",
                    if is_newer { "newer" } else { "older" },
                    id.0
                ));
            }
        }
        if self.plan.sabotage == Some(Sabotage::StaleAccepted) && chain_stale(disk, &mut self.chance) {
            self.trace.note("a stale batch chains".to_owned());
        }
    }
}
