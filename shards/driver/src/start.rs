//! Starts a broker: its data directory, then one listener, one ring and one loop for each core, joined by lanes; and ends it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use ringmain_engine::{OpenedShard, PlacementChange, ShardSettings};
use ringmain_model::CoreId;
use ringmain_model::limit::LISTEN_BACKLOG;
use ringmain_uring::{Error as RingError, LockGuard, SyncChoice, listen, measure_sync, processor};

use crate::clock::Clock;
use crate::core::{Poisoned, Shared};
use crate::front::Front;
use crate::lane::{Bed, LaneLimits, connect};
use crate::seat::{Gate, Seat, SeatStorage};
use crate::storage::{DataDirectory, DirectoryError, StorageConfig, open_shards, tell};

/// What a broker is started with.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Loops, at least 1.
    pub cores: u16,
    /// Shards, at least 1; shard s runs on core s modulo cores. A data directory may have its own number.
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
    /// The data directory; without one there are memory topics alone.
    pub storage: Option<StorageConfig>,
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
    /// The data directory cannot be used.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// A shard's files cannot be read.
    #[error("cannot read the shard in {path}: {error}; check the disk and who may read there; nothing was changed")]
    ShardUnreadable {
        /// Its folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A shard's files cannot be used.
    #[error("cannot open the shard in {path}: {reason}")]
    ShardRefused {
        /// Its folder.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}; a log cannot be written safely without")]
    Random(getrandom::Error),
    /// A core ended without a word: our own fault.
    #[error("core {0} ended unexpectedly; please report this with the log")]
    CoreEnded(u16),
}

/// A running broker. Dropping it does not end it: use [`Broker::shut_down`] and [`Broker::wait`].
#[derive(Debug)]
pub struct Broker {
    address: SocketAddr,
    shards: u16,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<(), RingError>>>,
}

impl Broker {
    /// Starts a broker whose cores speak the protocol that `front` makes for each of them: opens the data directory, if there is
    /// to be one, and returns once all cores listen.
    ///
    /// # Errors
    /// When the data directory cannot be used, the address is taken, a ring is refused or a thread cannot start; then nothing is
    /// left running.
    pub fn start<F, M>(config: &DriverConfig, front: M) -> Result<Self, StartError>
    where
        F: Front,
        M: Fn(CoreId) -> F + Send + Sync + 'static,
    {
        let (config, opened) = open_directory(config)?;
        let listeners = bind_all(&config)?;
        let address = listeners
            .first()
            .map_or(Ok(config.address), TcpListener::local_addr)
            .map_err(|error| StartError::Listen { address: config.address, error })?;
        let beds: Arc<[Bed]> = (0..config.cores).map(|_| Bed::default()).collect();
        let (lock, storage) = share_out(opened, config.cores);
        let shared = Arc::new(Shared {
            beds: Arc::clone(&beds),
            shutdown: AtomicBool::new(false),
            cores_busy: AtomicUsize::new(usize::from(config.cores)),
            poisoned: Poisoned::none_of(config.shards),
            _lock: lock,
        });
        let lanes = connect(config.cores, LaneLimits::of(config.lane_requests_max), &beds);
        let (clock, front) = (Clock::start(), Arc::new(front));
        let (ready, readiness) = channel();
        let processors = processor::allowed();
        let gate = Arc::new(Gate::new(config.cores));
        let mut broker = Self { address, shards: config.shards, shared: Arc::clone(&shared), threads: Vec::new() };
        let parts = listeners.into_iter().zip(lanes).zip(storage);
        for (own, ((listener, lanes), storage)) in (0..config.cores).map(CoreId).zip(parts) {
            let seat = Seat {
                own,
                listener,
                lanes,
                config: config.clone(),
                storage,
                shared: Arc::clone(&shared),
                gate: Arc::clone(&gate),
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
            match thread {
                Ok(thread) => broker.threads.push(thread),
                Err(error) => {
                    // Those that run already wait for all to have their rings: none will go on.
                    gate.give_up();
                    broker.shut_down();
                    let _ = broker.wait();
                    return Err(StartError::Thread(error));
                }
            }
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

    /// How many shards it has: as configured, or as its data directory says.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shards
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

/// A data directory with its shards.
struct Opened {
    directory: DataDirectory,
    shards: Vec<OpenedShard>,
    sync: SyncChoice,
}

/// Opens the data directory, if there is to be one; gives the configuration as the directory makes it.
fn open_directory(config: &DriverConfig) -> Result<(DriverConfig, Option<Opened>), StartError> {
    let mut config = config.clone();
    let Some(storage) = config.storage.clone() else { return Ok((config, None)) };
    let directory = DataDirectory::open(&storage.directory, config.shards, storage.shards_given)?;
    if directory.shards() != config.shards {
        // What all memory topics together may take stays what was said: it depends on the machine, not on the directory.
        let memory = config.shard_memory_bytes_max.saturating_mul(u64::from(config.shards));
        config.shards = directory.shards();
        config.shard_memory_bytes_max = (memory / u64::from(config.shards)).max(1);
    }
    let sync = storage.sync.unwrap_or_else(|| choose_sync(&storage));
    let settings =
        ShardSettings { cores: config.cores, shards: config.shards, memory_bytes_max: config.shard_memory_bytes_max };
    let opening = open_shards(&directory, settings, &storage)?;
    tell(&directory, &opening);
    Ok((config, Some(Opened { directory, shards: opening.shards, sync })))
}

fn choose_sync(storage: &StorageConfig) -> SyncChoice {
    match measure_sync(&storage.directory) {
        Ok(measured) => {
            tracing::debug!(?measured, "measured two ways of making writes durable");
            measured.choice
        }
        Err(error) => {
            // A full disk is no reason not to start, and why no ring can be had is told when one is needed.
            tracing::debug!(%error, "cannot measure which way of making writes durable is faster");
            SyncChoice::WriteThrough
        }
    }
}

/// Gives each core its shards, and all of them the topics of all.
fn share_out(opened: Option<Opened>, cores: u16) -> (Option<LockGuard>, Vec<Option<SeatStorage>>) {
    let mut seats: Vec<Option<SeatStorage>> = (0..cores).map(|_| None).collect();
    let Some(Opened { directory, shards, sync }) = opened else { return (None, seats) };
    let mut placements = Vec::new();
    for shard in shards.iter().map(|opened| &opened.shard) {
        placements.extend(shard.placements());
    }
    let placements: Arc<[PlacementChange]> = placements.into();
    for seat in &mut seats {
        let placements = Arc::clone(&placements);
        *seat = Some(SeatStorage { shards: Vec::new(), folders: Vec::new(), placements, sync });
    }
    for opened in shards {
        let core = opened.shard.id().core(cores);
        if let Some(Some(seat)) = seats.get_mut(core.index()) {
            seat.folders.push(directory.folder(opened.shard.id()));
            seat.shards.push(opened);
        }
    }
    (Some(directory.lock), seats)
}
