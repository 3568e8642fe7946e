//! One core from its thread's first step to its loop: its ring, its files, its state.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use hashbrown::HashMap;
use ringmain_engine::{Effect, OpenedShard, PlacementChange, Shard, ShardSettings};
use ringmain_model::{CoreId, ShardId};
use ringmain_uring::{Error as RingError, ListenerId, Ring, RingConfig, SyncChoice, processor};
use slotmap::SlotMap;

use crate::clock::Clock;
use crate::connection::Connections;
use crate::core::{Accepting, Core, CoreSettings, Poisoned, Shared, State};
use crate::front::Front;
use crate::lane::Lanes;
use crate::placement::PlacementTable;
use crate::report::CoreCounters;
use crate::start::DriverConfig;
use crate::storage::{Disk, DiskSettings};
use crate::timers::Timers;
use crate::window::WindowLimits;

/// Files that one core keeps open when nobody uses them: an eighth of the process's descriptors for all cores, because the rest is for
/// connections.
fn open_files_max(cores: u16) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 8 / u64::from(cores.max(1))).unwrap_or(usize::MAX).clamp(16, 512)
}

/// Holds every core back until all have their rings: the memory that may be locked is needed for them first, and file buffers
/// do without.
#[derive(Debug)]
pub(crate) struct Gate {
    cores: u16,
    /// Cores with a ring, and whether some core will never have one.
    arrived: Mutex<(u16, bool)>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn new(cores: u16) -> Self {
        Self { cores, arrived: Mutex::new((0, false)), changed: Condvar::new() }
    }

    /// A core has its ring; waits for the others. False when one of them will never have one. Bounded: making a ring takes no
    /// longer than the kernel does, and each core arrives or gives up.
    pub(crate) fn pass(&self) -> bool {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.0 += 1;
        self.changed.notify_all();
        while arrived.0 < self.cores && !arrived.1 {
            arrived = self.changed.wait(arrived).unwrap_or_else(PoisonError::into_inner);
        }
        !arrived.1
    }

    /// A core will never have its ring.
    pub(crate) fn give_up(&self) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }
}

/// What a core takes of the data directory.
#[derive(Debug)]
pub(crate) struct SeatStorage {
    /// Its shards, by number.
    pub(crate) shards: Vec<OpenedShard>,
    /// Their folders.
    pub(crate) folders: Vec<PathBuf>,
    /// The topics of all shards.
    pub(crate) placements: Arc<[PlacementChange]>,
    pub(crate) sync: SyncChoice,
}

/// What a core's thread takes along.
pub(crate) struct Seat {
    pub(crate) own: CoreId,
    pub(crate) listener: TcpListener,
    pub(crate) lanes: Lanes,
    pub(crate) config: DriverConfig,
    pub(crate) storage: Option<SeatStorage>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) clock: Clock,
    pub(crate) processor: Option<usize>,
    pub(crate) ready: Sender<()>,
}

impl Seat {
    pub(crate) fn run<F: Front>(self, front: &dyn Fn(CoreId) -> F) -> Result<(), RingError> {
        if let Some(processor) = self.processor
            && let Err(error) = processor::pin(processor)
        {
            // Placement is a hint: a container may forbid it.
            tracing::warn!(core = self.own.0, processor, %error, "cannot pin the core to its processor; going on without");
        }
        let Self { own, listener, lanes, config, storage, shared, gate, clock, ready, .. } = self;
        let outcome = prepare_ring(&config, listener, storage.as_ref(), &gate);
        let (ring, listener, disk) = match outcome {
            Ok(Some(parts)) => parts,
            outcome => {
                // The other cores must not wait for this one when they are told to end.
                shared.cores_busy.fetch_sub(1, Ordering::AcqRel);
                return outcome.map(drop);
            }
        };
        shared.beds[own.index()].set_waker(ring.waker());
        let inventory = match storage {
            Some(storage) => Inventory::of(storage, &shared.poisoned),
            None => Inventory::empty(own, &config, &shared.poisoned),
        };
        let state = new_state(own, &config, lanes, front(own), clock, inventory);
        let mut core = Core::new(ring, listener, state, disk, shared, clock);
        // The starter has gone only when another core failed, and then the shutdown flag is set.
        let _ = ready.send(());
        drop(ready);
        core.run()
    }
}

/// Makes a core's ring and its disk, and begins to accept. Nothing when another core has no ring.
fn prepare_ring(
    config: &DriverConfig,
    listener: TcpListener,
    storage: Option<&SeatStorage>,
    gate: &Gate,
) -> Result<Option<(Ring, ListenerId, Option<Disk>)>, RingError> {
    let sockets_max = u32::try_from(config.connections_per_core_max + 1024).unwrap_or(u32::MAX);
    let mut ring = Ring::new(&RingConfig { sockets_max, ..RingConfig::default() }).inspect_err(|_| gate.give_up())?;
    if !gate.pass() {
        return Ok(None);
    }
    let disk = match (storage, &config.storage) {
        (Some(storage), Some(wanted)) => {
            ring.set_sync_choice(storage.sync);
            let open_files_max = open_files_max(config.cores);
            let settings = DiskSettings { direct: wanted.direct, open_files_max, ..DiskSettings::default() };
            Some(Disk::new(&mut ring, storage.folders.clone(), settings)?)
        }
        _ => None,
    };
    let listener = ring.listen(listener)?;
    Ok(Some((ring, listener, disk)))
}

/// What a core begins with.
pub(crate) struct Inventory {
    shards: Vec<Shard>,
    /// What each of them does first.
    effects: Vec<Vec<Effect>>,
    placement: PlacementTable,
    stores: bool,
    poisoned: Poisoned,
}

impl Inventory {
    /// Empty shards, for memory topics alone.
    pub(crate) fn empty(own: CoreId, config: &DriverConfig, poisoned: &Poisoned) -> Self {
        let settings = ShardSettings {
            cores: config.cores,
            shards: config.shards,
            memory_bytes_max: config.shard_memory_bytes_max,
        };
        let own_shards = (own.0..config.shards).step_by(usize::from(config.cores));
        Self {
            shards: own_shards.map(|shard| Shard::new(ShardId(shard), settings)).collect(),
            effects: Vec::new(),
            placement: PlacementTable::default(),
            stores: false,
            poisoned: poisoned.clone(),
        }
    }

    /// What was found in the data directory.
    fn of(storage: SeatStorage, poisoned: &Poisoned) -> Self {
        let mut placement = PlacementTable::default();
        for change in storage.placements.iter() {
            placement.apply(change.clone());
        }
        let opened = storage.shards.into_iter();
        let (shards, effects) = opened.map(|opened| (opened.shard, opened.effects)).unzip();
        Self { shards, effects, placement, stores: true, poisoned: poisoned.clone() }
    }
}

/// A core's state before its first turn.
pub(crate) fn new_state<F: Front>(
    own: CoreId,
    config: &DriverConfig,
    lanes: Lanes,
    front: F,
    clock: Clock,
    inventory: Inventory,
) -> State<F> {
    let Inventory { shards, effects, placement, stores, poisoned } = inventory;
    let mut state = State {
        settings: CoreSettings {
            own,
            cores: config.cores,
            shards: config.shards,
            connections_max: config.connections_per_core_max,
            write_timeout_ms: config.write_timeout_ms,
            drain_timeout_ms: config.drain_timeout_ms,
            window_limits: WindowLimits::default(),
        },
        now: clock.now(),
        front,
        connections: Connections::new(),
        timers: Timers::default(),
        lanes,
        local: VecDeque::new(),
        reports_owed: VecDeque::new(),
        shards,
        effects: Vec::new(),
        owes_turn_end: true,
        file_effects: Vec::new(),
        stores,
        poisoned,
        placement,
        windows: SlotMap::with_key(),
        windows_by_partition: HashMap::new(),
        windows_bytes: 0,
        cursors: SlotMap::with_key(),
        memberships: SlotMap::with_key(),
        letters: SlotMap::with_key(),
        letters_told_ms: 0,
        orders: SlotMap::with_key(),
        memberships_listed: Vec::new(),
        news: Vec::new(),
        interest_changes: Vec::new(),
        reads_wanted: Vec::new(),
        dirty: Vec::new(),
        actions: Vec::new(),
        scratch: Vec::new(),
        counters: CoreCounters::default(),
        accepting: Accepting::On,
        accepts_singly: false,
    };
    for (index, effects) in effects.into_iter().enumerate() {
        state.effects = effects;
        state.perform(index);
    }
    state
}
