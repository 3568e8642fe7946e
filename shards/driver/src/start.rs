//! Starts a broker: one listener, one ring and one loop for each core, joined by lanes; and ends it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use hashbrown::HashMap;
use ringmain_engine::{Shard, ShardSettings};
use ringmain_model::limit::LISTEN_BACKLOG;
use ringmain_model::{CoreId, ShardId};
use ringmain_uring::{Error as RingError, Ring, RingConfig, listen, processor};
use slotmap::SlotMap;

use crate::clock::Clock;
use crate::connection::Connections;
use crate::core::{Accepting, Core, CoreSettings, Shared, State};
use crate::front::Front;
use crate::lane::{Bed, LaneLimits, Lanes, connect};
use crate::placement::PlacementTable;
use crate::report::CoreCounters;
use crate::timers::Timers;
use crate::window::WindowLimits;

/// What a broker is started with.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Loops, at least 1.
    pub cores: u16,
    /// Shards, at least 1; shard s runs on core s modulo cores.
    pub shards: u16,
    /// Connections of one core; above, accepting pauses.
    pub connections_per_core_max: usize,
    /// Requests that may be outstanding from one core to another; above, they are refused as busy.
    pub lane_requests_max: usize,
    /// Bytes of records that one shard's memory topics may keep.
    pub shard_memory_bytes_max: u64,
    /// Milliseconds without write progress after which a peer is cut off.
    pub write_timeout_ms: u64,
    /// Milliseconds that going down may take.
    pub drain_timeout_ms: u64,
}

/// Why a broker did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose another address with --bind and --port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// A ring was refused, or failed later.
    #[error("{0}")]
    Ring(#[from] RingError),
    /// A thread could not be started.
    #[error("cannot start a thread for a core: {0}; the limit on processes (ulimit -u) may be reached")]
    Thread(io::Error),
    /// A core ended without a word: our own fault.
    #[error("core {0} ended unexpectedly; please report this with the log")]
    CoreEnded(u16),
}

/// A running broker. Dropping it does not end it: use [`Broker::shut_down`] and [`Broker::wait`].
#[derive(Debug)]
pub struct Broker {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<(), RingError>>>,
}

impl Broker {
    /// Starts a broker whose cores speak the protocol that `front` makes for each of them. Returns once all listen.
    ///
    /// # Errors
    /// When the address is taken, a ring is refused or a thread cannot start; then nothing is left running.
    pub fn start<F, M>(config: &DriverConfig, front: M) -> Result<Self, StartError>
    where
        F: Front,
        M: Fn(CoreId) -> F + Send + Sync + 'static,
    {
        let listeners = bind_all(config)?;
        let address = listeners
            .first()
            .map_or(Ok(config.address), TcpListener::local_addr)
            .map_err(|error| StartError::Listen { address: config.address, error })?;
        let beds: Arc<[Bed]> = (0..config.cores).map(|_| Bed::default()).collect();
        let shared = Arc::new(Shared {
            beds: Arc::clone(&beds),
            shutdown: AtomicBool::new(false),
            cores_busy: AtomicUsize::new(usize::from(config.cores)),
        });
        let lanes = connect(config.cores, LaneLimits::of(config.lane_requests_max), &beds);
        let (clock, front) = (Clock::start(), Arc::new(front));
        let (ready, readiness) = channel();
        let processors = processor::allowed();
        let mut broker = Self { address, shared: Arc::clone(&shared), threads: Vec::new() };
        for (own, (listener, lanes)) in (0..config.cores).map(CoreId).zip(listeners.into_iter().zip(lanes)) {
            let seat = Seat {
                own,
                listener,
                lanes,
                config: config.clone(),
                shared: Arc::clone(&shared),
                clock,
                processor: processors.get(own.index() % processors.len().max(1)).copied(),
                ready: ready.clone(),
            };
            let front = Arc::clone(&front);
            let thread = std::thread::Builder::new().name(format!("core-{}", own.0)).spawn(move || {
                // A core that panics takes the broker with it: the others cannot do its part.
                let guard = AbortOnPanic;
                let outcome = seat.run(&*front);
                std::mem::forget(guard);
                outcome
            });
            broker.threads.push(thread.map_err(StartError::Thread)?);
        }
        drop(ready);
        broker.await_ready(&readiness)
    }

    fn await_ready(self, readiness: &Receiver<()>) -> Result<Self, StartError> {
        let ready = readiness.iter().take(self.threads.len()).count();
        if ready == self.threads.len() {
            return Ok(self);
        }
        self.shut_down();
        match self.wait() {
            Err(error) => Err(error),
            Ok(()) => Err(StartError::CoreEnded(0)),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells all cores to finish what is in hand and end. Returns at once.
    pub fn shut_down(&self) {
        self.stopper().stop();
    }

    /// A handle with which another thread can tell the broker to go down.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared) }
    }

    /// Waits until all cores have ended.
    ///
    /// # Errors
    /// The first core's reason, when one did not end well.
    pub fn wait(self) -> Result<(), StartError> {
        let mut outcome = Ok(());
        for (core, thread) in (0..).zip(self.threads) {
            let ended = match thread.join() {
                Ok(ended) => ended.map_err(StartError::from),
                Err(_) => Err(StartError::CoreEnded(core)),
            };
            outcome = outcome.and(ended);
        }
        outcome
    }
}

/// Tells a broker to go down, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    shared: Arc<Shared>,
}

impl Stopper {
    /// Tells all cores to finish what is in hand and end. Returns at once.
    pub fn stop(&self) {
        self.shared.shutdown.store(true, Ordering::SeqCst);
        self.shared.beds.iter().for_each(Bed::wake);
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

fn bind_all(config: &DriverConfig) -> Result<Vec<TcpListener>, StartError> {
    let mut listeners = Vec::new();
    let mut address = config.address;
    for _ in 0..config.cores {
        let failed = |error| StartError::Listen { address, error };
        if listeners.is_empty() && address.port() != 0 {
            // Ports are shared among the cores, so a second broker would be let in silently: ask for the port alone first.
            drop(TcpListener::bind(address).map_err(failed)?);
        }
        let listener = listen::bind(address, LISTEN_BACKLOG).map_err(failed)?;
        address = listener.local_addr().map_err(failed)?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// What a core's thread takes along.
struct Seat {
    own: CoreId,
    listener: TcpListener,
    lanes: Lanes,
    config: DriverConfig,
    shared: Arc<Shared>,
    clock: Clock,
    processor: Option<usize>,
    ready: Sender<()>,
}

impl Seat {
    fn run<F: Front>(self, front: &dyn Fn(CoreId) -> F) -> Result<(), RingError> {
        if let Some(processor) = self.processor
            && let Err(error) = processor::pin(processor)
        {
            // Placement is a hint: a container may forbid it.
            tracing::warn!(core = self.own.0, processor, %error, "cannot pin the core to its processor; going on without");
        }
        let Self { own, listener, lanes, config, shared, clock, ready, .. } = self;
        let sockets_max = u32::try_from(config.connections_per_core_max + 1024).unwrap_or(u32::MAX);
        let ring_config = RingConfig { sockets_max, ..RingConfig::default() };
        let outcome = Ring::new(&ring_config).and_then(|mut ring| {
            let listener = ring.listen(listener)?;
            Ok((ring, listener))
        });
        let (ring, listener) = match outcome {
            Ok(parts) => parts,
            Err(error) => {
                // The other cores must not wait for this one when they are told to end.
                shared.cores_busy.fetch_sub(1, Ordering::AcqRel);
                return Err(error);
            }
        };
        shared.beds[own.index()].set_waker(ring.waker());
        let state = new_state(own, &config, lanes, front(own), clock);
        let mut core = Core::new(ring, listener, state, shared, clock);
        // The starter has gone only when another core failed, and then the shutdown flag is set.
        let _ = ready.send(());
        drop(ready);
        core.run()
    }
}

/// A core's state before its first turn.
pub(crate) fn new_state<F: Front>(
    own: CoreId,
    config: &DriverConfig,
    lanes: Lanes,
    front: F,
    clock: Clock,
) -> State<F> {
    let shard_settings = ShardSettings { cores: config.cores, memory_bytes_max: config.shard_memory_bytes_max };
    let own_shards = (own.0..config.shards).step_by(usize::from(config.cores));
    State {
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
        local: std::collections::VecDeque::new(),
        shards: own_shards.map(|shard| Shard::new(ShardId(shard), shard_settings)).collect(),
        effects: Vec::new(),
        placement: PlacementTable::default(),
        windows: SlotMap::with_key(),
        windows_by_partition: HashMap::new(),
        windows_bytes: 0,
        cursors: SlotMap::with_key(),
        memberships: SlotMap::with_key(),
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
    }
}
