//! One core's state and its turn: completions, lanes, shards, output, in that order; then it sleeps until something happens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use ringmain_engine::{Effect, Event as ShardEvent, Now, Origin, Shard, StorageState};
use ringmain_model::limit::{
    ACCEPT_RETRY_MS, LANE_RETRY_MS, LISTEN_BACKLOG, TURN_BUNDLES_MAX, TURN_EVENTS_MAX, TURN_ROUNDS_MAX,
};
use ringmain_model::{CoreId, PartitionRef, ShardId};
use ringmain_uring::{Error as RingError, Event, ListenerId, LockGuard, Ring};
use ringmain_wal::{Completion, Effect as FileEffect, OperationId};
use slotmap::SlotMap;

use crate::clock::Clock;
use crate::connection::{ConnectionKey, Connections};
use crate::front::{Action, Front};
use crate::lane::{Bed, LaneItem, Lanes};
use crate::letters::{Letter, LetterKey};
use crate::membership::{Membership, MembershipKey};
use crate::orders::{OrderKey, SentOrder};
use crate::placement::PlacementTable;
use crate::report::{CoreCounters, NameRange};
use crate::storage::{Disk, Done};
use crate::timers::Timers;
use crate::window::{Cursor, CursorKey, Window, WindowKey, WindowLimits};

/// What all cores of a broker share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) beds: Arc<[Bed]>,
    pub(crate) shutdown: AtomicBool,
    /// Cores that still have connections; the last one lets all end.
    pub(crate) cores_busy: AtomicUsize,
    /// Which shards write no more.
    pub(crate) poisoned: Poisoned,
    /// Keeps other processes out of the data directory until the last core has ended.
    pub(crate) _lock: Option<LockGuard>,
}

/// By shard whether it writes no more because a write failed: told by its core, read by all.
#[derive(Clone, Debug)]
pub(crate) struct Poisoned(Arc<[AtomicBool]>);

impl Poisoned {
    pub(crate) fn none_of(shards: u16) -> Self {
        Self((0..shards).map(|_| AtomicBool::new(false)).collect())
    }

    pub(crate) fn tell(&self, shard: ShardId) {
        if let Some(flag) = self.0.get(usize::from(shard.0))
            && !flag.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                shard = shard.0,
                "a write of the log failed and what is on the disk is not known: this shard stores nothing more; look at the disk, then start again"
            );
        }
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> {
        let numbered = (0..).zip(self.0.iter());
        numbered.filter(|(_, flag)| flag.load(Ordering::Relaxed)).map(|(shard, _)| ShardId(shard))
    }
}

/// Numbers that a core is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreSettings {
    pub(crate) own: CoreId,
    pub(crate) cores: u16,
    pub(crate) shards: u16,
    pub(crate) connections_max: usize,
    pub(crate) write_timeout_ms: u64,
    pub(crate) drain_timeout_ms: u64,
    pub(crate) window_limits: WindowLimits,
}

/// How a core stands to new connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accepting {
    On,
    /// Descriptors or connections ran out; tried again at that time or when a connection ends.
    Paused {
        until_ms: u64,
    },
    /// The broker goes down.
    Over,
}

/// Everything of one core but its ring, so that bytes borrowed from the ring can be given to sessions.
pub(crate) struct State<F: Front> {
    pub(crate) settings: CoreSettings,
    pub(crate) now: Now,
    pub(crate) front: F,
    pub(crate) connections: Connections<F::Session>,
    pub(crate) timers: Timers,
    pub(crate) lanes: Lanes,
    /// What this core says to itself.
    pub(crate) local: VecDeque<LaneItem>,
    /// Reports that were asked for, oldest first: at most one for each connection of this core and for each request that a lane
    /// bears.
    pub(crate) reports_owed: VecDeque<(Origin, NameRange)>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) effects: Vec<Effect>,
    /// A shard of this core was given something since its turn last ended.
    pub(crate) owes_turn_end: bool,
    /// File effects that shards left, each with the place of its shard on this core.
    pub(crate) file_effects: Vec<(usize, OperationId, FileEffect)>,
    /// Whether a data directory is open.
    pub(crate) stores: bool,
    pub(crate) poisoned: Poisoned,
    pub(crate) placement: PlacementTable,
    pub(crate) windows: SlotMap<WindowKey, Window<F::Encoded>>,
    pub(crate) windows_by_partition: HashMap<PartitionRef, WindowKey>,
    pub(crate) windows_bytes: usize,
    pub(crate) cursors: SlotMap<CursorKey, Cursor>,
    pub(crate) memberships: SlotMap<MembershipKey, Membership>,
    /// Dead letters whose answers have not come.
    pub(crate) letters: SlotMap<LetterKey, Letter>,
    /// When it was last told that some find no place, monotonic milliseconds.
    pub(crate) letters_told_ms: u64,
    /// What shards of this core asked of others, until they answer.
    pub(crate) orders: SlotMap<OrderKey, SentOrder>,
    /// Memberships with something to tell their owner.
    pub(crate) memberships_listed: Vec<MembershipKey>,
    /// Windows with batches that their cursors have not been offered.
    pub(crate) news: Vec<WindowKey>,
    /// Windows whose subscribers the owner must be told of.
    pub(crate) interest_changes: Vec<WindowKey>,
    /// Cursors whose read found a full lane.
    pub(crate) reads_wanted: Vec<CursorKey>,
    /// Connections with something to send or change.
    pub(crate) dirty: Vec<ConnectionKey>,
    pub(crate) actions: Vec<Action>,
    pub(crate) scratch: Vec<CursorKey>,
    pub(crate) counters: CoreCounters,
    pub(crate) accepting: Accepting,
    /// Each connection is asked for by itself, because the limit is near.
    pub(crate) accepts_singly: bool,
}

/// One core.
pub(crate) struct Core<F: Front> {
    pub(crate) ring: Ring,
    pub(crate) listener: ListenerId,
    pub(crate) state: State<F>,
    /// The files of its shards, if there is a data directory.
    pub(crate) disk: Option<Disk>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
    drain: Drain,
}

/// How far going down has come.
#[derive(Clone, Copy, Default, Debug)]
struct Drain {
    until_ms: Option<u64>,
    /// This core had no connection left at the end of its last turn, whose bundles have been handed over since.
    was_idle: bool,
    /// It has said so.
    reported_idle: bool,
    /// All cores had said so before this turn, so that it has taken all that they ever said.
    saw_all_idle: bool,
}

impl<F: Front> Core<F> {
    pub(crate) fn new(
        ring: Ring,
        listener: ListenerId,
        state: State<F>,
        disk: Option<Disk>,
        shared: Arc<Shared>,
        clock: Clock,
    ) -> Self {
        Self { ring, listener, state, disk, shared, clock, drain: Drain::default() }
    }

    /// Turns until the broker has been told to go down and all that was in hand is finished, or time is up.
    pub(crate) fn run(&mut self) -> Result<(), RingError> {
        let mut wait = Some(Duration::ZERO);
        loop {
            self.ring.turn(wait)?;
            self.state.lanes.awake();
            self.state.now = self.clock.now();
            self.state.counters.turns += 1;
            self.state.counters.completion_overflows = self.ring.overflows();
            let more = self.take_events();
            self.serve_disk();
            let more = self.state.take_lanes() || more;
            self.state.fire_timers();
            self.state.fire_shards();
            self.state.make_report();
            self.settle();
            if self.shared.shutdown.load(Ordering::Relaxed) && self.drain() {
                return Ok(());
            }
            let flush_again = self.state.flush(&mut self.ring);
            // Connections that ended just now have something to tell their owners.
            self.state.tell_interest();
            self.state.tell_progress();
            self.resume_accept();
            let lane_full = self.state.lanes.flush();
            wait = self.next_wait(more || flush_again, lane_full);
        }
    }

    fn take_events(&mut self) -> bool {
        for _ in 0..TURN_EVENTS_MAX {
            match (self.ring.next_event(), &mut self.disk) {
                (None, _) => return false,
                (Some(Event::File(event)), Some(disk)) => disk.complete(&mut self.ring, event),
                (Some(event), _) => self.state.on_event(event),
            }
        }
        true
    }

    /// Lets shards, sessions and files answer each other until nothing is left to say, or the turn is long enough.
    fn settle(&mut self) {
        for _ in 0..TURN_ROUNDS_MAX {
            self.state.settle();
            if !self.serve_disk() {
                break;
            }
        }
    }

    /// Begins the file effects that shards left, and gives them what is done; says whether anything was. What is begun here is
    /// handed to the kernel with this turn's end, before the core sleeps.
    fn serve_disk(&mut self) -> bool {
        let Some(disk) = &mut self.disk else {
            debug_assert!(self.state.file_effects.is_empty(), "a shard without a log has no files");
            return false;
        };
        let mut gave = false;
        for _ in 0..TURN_ROUNDS_MAX {
            for (index, operation, effect) in self.state.file_effects.drain(..) {
                disk.start(&mut self.ring, index, operation, effect);
            }
            if !disk.has_done() {
                break;
            }
            while let Some(Done { index, operation, completion }) = disk.take_done() {
                gave = true;
                self.state.give_file_done(index, operation, completion);
            }
        }
        gave
    }

    /// How long the next turn may wait for the kernel; `None` is for ever.
    fn next_wait(&mut self, more: bool, lane_full: bool) -> Option<Duration> {
        let more = more || self.drains_on();
        let state = &mut self.state;
        let shards_dirty = state.owes_turn_end || state.shards.iter().any(Shard::is_dirty);
        let disk_busy = !state.file_effects.is_empty() || self.disk.as_ref().is_some_and(Disk::has_done);
        if more
            || disk_busy
            || shards_dirty
            || !state.local.is_empty()
            || !state.news.is_empty()
            || !state.reports_owed.is_empty()
        {
            return Some(Duration::ZERO);
        }
        if state.lanes.expects_replies() && state.lanes.look() {
            return Some(Duration::ZERO);
        }
        // A shard that was told of its time in this turn may still wait for something else, a write in flight perhaps: it is told
        // again in a moment and not in every turn.
        let soon_ms = state.now.monotonic_ms + 1;
        let shards = state.shards.iter().filter_map(Shard::next_due_ms).min().map(|due_ms| due_ms.max(soon_ms));
        let mut until = state.timers.next_ms().into_iter().chain(shards).min();
        // Without room only a connection that ends can help, and that wakes the loop by itself.
        let has_room = state.connections.len() < state.settings.connections_max;
        if let Accepting::Paused { until_ms } = state.accepting
            && has_room
        {
            until = Some(until.map_or(until_ms, |earlier| earlier.min(until_ms)));
        }
        if let Some(drain_until) = self.drain.until_ms {
            until = Some(until.map_or(drain_until, |earlier| earlier.min(drain_until)));
        }
        let now_ms = self.clock.now().monotonic_ms;
        let timers = until.map(|until| Duration::from_millis(until.saturating_sub(now_ms)));
        let retry = Duration::from_millis(LANE_RETRY_MS);
        let wait = if lane_full { Some(timers.map_or(retry, |wait| wait.min(retry))) } else { timers };
        if wait.is_none_or(|wait| !wait.is_zero()) && !state.lanes.fall_asleep() {
            return Some(Duration::ZERO);
        }
        wait
    }

    fn resume_accept(&mut self) {
        let state = &mut self.state;
        let room = state.settings.connections_max.saturating_sub(state.connections.len());
        let near = room <= LISTEN_BACKLOG as usize;
        match state.accepting {
            Accepting::On if room == 0 => {
                self.ring.pause_accept(self.listener);
                state.pause_accept();
            }
            // All that waits could come at once: from here on each is asked for.
            Accepting::On if near && !state.accepts_singly => {
                self.ring.pause_accept(self.listener);
                state.accepting = Accepting::Paused { until_ms: state.now.monotonic_ms };
                state.accepts_singly = true;
            }
            Accepting::Paused { until_ms } if room > 0 && state.now.monotonic_ms >= until_ms => {
                state.accepts_singly = near;
                self.ring.accept_singly(self.listener, near);
                self.ring.resume_accept(self.listener);
                state.accepting = Accepting::On;
            }
            _ => {}
        }
    }

    /// One step of going down; `true` when this core may end.
    fn drain(&mut self) -> bool {
        let now_ms = self.state.now.monotonic_ms;
        let until_ms = match self.drain.until_ms {
            Some(until_ms) => until_ms,
            None => {
                let until_ms = now_ms + self.state.settings.drain_timeout_ms;
                self.drain.until_ms = Some(until_ms);
                self.ring.close_listener(self.listener);
                self.state.accepting = Accepting::Over;
                self.state.shut_sessions_down();
                until_ms
            }
        };
        let is_idle = self.state.connections.len() == 0;
        // One turn later than it is so: what connections left for other cores is handed over at the end of a turn.
        if is_idle && self.drain.was_idle && !self.drain.reported_idle {
            self.drain.reported_idle = true;
            if self.shared.cores_busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.shared.beds.iter().for_each(Bed::wake);
            }
        }
        self.drain.was_idle = is_idle;
        let all_idle = self.shared.cores_busy.load(Ordering::Acquire) == 0;
        let has_heard_all = std::mem::replace(&mut self.drain.saw_all_idle, all_idle);
        if all_idle && has_heard_all && self.is_settled() {
            return true;
        }
        if now_ms < until_ms {
            return false;
        }
        let (connections, is_settled) = (self.state.connections.len(), self.is_settled());
        if !all_idle || !is_settled {
            tracing::warn!(connections, is_settled, "the drain time is over: cutting what is still open");
        }
        true
    }

    /// Whether all that shards admitted is durable, or never will be. What else they do with files may be cut off at any point.
    fn is_settled(&self) -> bool {
        let state = &self.state;
        state.local.is_empty() && state.file_effects.is_empty() && state.shards.iter().all(Shard::is_settled)
    }

    /// Whether going down wants another turn at once.
    fn drains_on(&self) -> bool {
        let Drain { until_ms, was_idle, reported_idle, saw_all_idle } = self.drain;
        let all_idle = until_ms.is_some() && self.shared.cores_busy.load(Ordering::Acquire) == 0;
        (was_idle && !reported_idle) || (all_idle && !saw_all_idle) || (all_idle && self.is_settled())
    }
}

impl<F: Front> State<F> {
    pub(crate) fn pause_accept(&mut self) {
        self.counters.accept_pauses += 1;
        self.accepting = Accepting::Paused { until_ms: self.now.monotonic_ms + ACCEPT_RETRY_MS };
    }

    /// A connection ended: if accepting waits for that, it need not wait longer.
    pub(crate) fn room_for_accept(&mut self) {
        if let Accepting::Paused { .. } = self.accepting {
            self.accepting = Accepting::Paused { until_ms: self.now.monotonic_ms };
        }
    }

    /// Takes what other cores said; says whether there may be more.
    pub(crate) fn take_lanes(&mut self) -> bool {
        for _ in 0..TURN_BUNDLES_MAX {
            let Some((core, bundle)) = self.lanes.receive() else { return false };
            for item in bundle {
                self.take_item(core, item);
            }
        }
        true
    }

    /// Lets shards and sessions answer each other until nothing is left to say, or the turn is long enough.
    pub(crate) fn settle(&mut self) {
        for _ in 0..TURN_ROUNDS_MAX {
            self.end_shard_turns();
            while let Some(item) = self.local.pop_front() {
                self.take_item(self.settings.own, item);
            }
            self.serve_news();
            self.tell_interest();
            self.tell_progress();
            self.retry_reads();
            let shards_rest = !self.owes_turn_end && !self.shards.iter().any(Shard::is_dirty);
            if self.local.is_empty() && self.news.is_empty() && shards_rest {
                break;
            }
        }
    }

    /// Lets shards look at what is due.
    pub(crate) fn fire_shards(&mut self) {
        let now_ms = self.now.monotonic_ms;
        for index in 0..self.shards.len() {
            if self.shards[index].next_due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                self.shards[index].handle(self.now, ShardEvent::TimePassed, &mut self.effects);
                self.owes_turn_end = true;
                self.perform(index);
            }
        }
    }

    /// Gives the shard at `index` what came of one of its file effects.
    fn give_file_done(&mut self, index: usize, operation: OperationId, completion: Completion) {
        let Some(shard) = self.shards.get_mut(index) else { return };
        shard.handle(self.now, ShardEvent::FileDone { operation, completion }, &mut self.effects);
        if shard.storage_state() == StorageState::Poisoned {
            self.poisoned.tell(shard.id());
        }
        self.owes_turn_end = true;
        self.perform(index);
    }

    fn end_shard_turns(&mut self) {
        self.owes_turn_end = false;
        for index in 0..self.shards.len() {
            self.shards[index].handle(self.now, ShardEvent::TurnEnded, &mut self.effects);
            self.perform(index);
        }
    }
}
