//! One core's state and its turn: completions, lanes, shards, output, in that order; then it sleeps until something happens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use ringmain_engine::{Effect, Event as ShardEvent, Now, Shard};
use ringmain_model::limit::{LISTEN_BACKLOG, TURN_BUNDLES_MAX, TURN_EVENTS_MAX};
use ringmain_model::{CoreId, PartitionRef};
use ringmain_uring::{Error as RingError, ListenerId, Ring};
use slotmap::SlotMap;

use crate::clock::Clock;
use crate::connection::{ConnectionKey, Connections};
use crate::front::{Action, Front};
use crate::lane::{Bed, LaneItem, Lanes};
use crate::membership::{Membership, MembershipKey};
use crate::placement::PlacementTable;
use crate::report::CoreCounters;
use crate::timers::Timers;
use crate::window::{Cursor, CursorKey, Window, WindowKey, WindowLimits};

/// Rounds that one turn gives to what a core says to itself before it looks at the kernel again.
const LOCAL_ROUNDS_MAX: usize = 8;
/// Looks at the incoming lanes before a core sleeps while it expects replies: some microseconds, less than a wake-up costs.
const LOOKS_BEFORE_SLEEP: u32 = 2_000;
/// How soon a bundle that found a lane's ring full is tried again.
const LANE_RETRY: Duration = Duration::from_millis(1);
/// How soon accepting is tried again after descriptors ran out, unless a connection ends before.
const ACCEPT_RETRY_MS: u64 = 1_000;

/// What all cores of a broker share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) beds: Arc<[Bed]>,
    pub(crate) shutdown: AtomicBool,
    /// Cores that still have connections; the last one lets all end.
    pub(crate) cores_busy: AtomicUsize,
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
    pub(crate) shards: Vec<Shard>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) placement: PlacementTable,
    pub(crate) windows: SlotMap<WindowKey, Window<F::Encoded>>,
    pub(crate) windows_by_partition: HashMap<PartitionRef, WindowKey>,
    pub(crate) windows_bytes: usize,
    pub(crate) cursors: SlotMap<CursorKey, Cursor>,
    pub(crate) memberships: SlotMap<MembershipKey, Membership>,
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
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
    drain_until_ms: Option<u64>,
    reported_idle: bool,
}

impl<F: Front> Core<F> {
    pub(crate) fn new(ring: Ring, listener: ListenerId, state: State<F>, shared: Arc<Shared>, clock: Clock) -> Self {
        Self { ring, listener, state, shared, clock, drain_until_ms: None, reported_idle: false }
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
            let more = self.state.take_lanes() || more;
            self.state.fire_timers();
            self.state.fire_shards();
            self.state.settle();
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
            let Some(event) = self.ring.next_event() else { return false };
            self.state.on_event(event);
        }
        true
    }

    /// How long the next turn may wait for the kernel; `None` is for ever.
    fn next_wait(&mut self, more: bool, lane_full: bool) -> Option<Duration> {
        let state = &mut self.state;
        let shards_dirty = state.shards.iter().any(Shard::is_dirty);
        if more || shards_dirty || !state.local.is_empty() || !state.news.is_empty() {
            return Some(Duration::ZERO);
        }
        if state.lanes.expects_replies() && state.lanes.look(LOOKS_BEFORE_SLEEP) {
            return Some(Duration::ZERO);
        }
        let shards = state.shards.iter().filter_map(Shard::next_due_ms).min();
        let mut until = state.timers.next_ms().into_iter().chain(shards).min();
        // Without room only a connection that ends can help, and that wakes the loop by itself.
        let has_room = state.connections.len() < state.settings.connections_max;
        if let Accepting::Paused { until_ms } = state.accepting
            && has_room
        {
            until = Some(until.map_or(until_ms, |earlier| earlier.min(until_ms)));
        }
        if let Some(drain_until) = self.drain_until_ms {
            until = Some(until.map_or(drain_until, |earlier| earlier.min(drain_until)));
        }
        let now_ms = self.clock.now().monotonic_ms;
        let timers = until.map(|until| Duration::from_millis(until.saturating_sub(now_ms)));
        let wait = if lane_full { Some(timers.map_or(LANE_RETRY, |wait| wait.min(LANE_RETRY))) } else { timers };
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
        let until_ms = match self.drain_until_ms {
            Some(until_ms) => until_ms,
            None => {
                let until_ms = now_ms + self.state.settings.drain_timeout_ms;
                self.drain_until_ms = Some(until_ms);
                self.ring.close_listener(self.listener);
                self.state.accepting = Accepting::Over;
                self.state.shut_sessions_down();
                until_ms
            }
        };
        if self.state.connections.len() == 0 && !self.reported_idle {
            self.reported_idle = true;
            if self.shared.cores_busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.shared.beds.iter().for_each(Bed::wake);
            }
        }
        let all_idle = self.shared.cores_busy.load(Ordering::Acquire) == 0;
        if !all_idle && now_ms >= until_ms {
            tracing::warn!(
                connections = self.state.connections.len(),
                "the drain time is over: cutting what is still open"
            );
        }
        all_idle || now_ms >= until_ms
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
        for _ in 0..LOCAL_ROUNDS_MAX {
            self.end_shard_turns();
            while let Some(item) = self.local.pop_front() {
                self.take_item(self.settings.own, item);
            }
            self.serve_news();
            self.tell_interest();
            self.tell_progress();
            self.retry_reads();
            if self.local.is_empty() && self.news.is_empty() && !self.shards.iter().any(Shard::is_dirty) {
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
                self.perform(index);
            }
        }
    }

    fn end_shard_turns(&mut self) {
        for index in 0..self.shards.len() {
            self.shards[index].handle(self.now, ShardEvent::TurnEnded, &mut self.effects);
            self.perform(index);
        }
    }
}
