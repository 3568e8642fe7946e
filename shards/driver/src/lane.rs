//! Lanes: how cores speak to each other. One bounded ring per pair and direction, one bundle a turn, one wake a turn.
//!
//! Requests are bounded by how many are outstanding, so that replies always have room; those that may wait long (fetches of
//! groups) are bounded by themselves. Pushes are bounded by bytes and count;
//! one that does not fit leaves a hole, told by the high-water mark, and readers fetch what is missing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use ringmain_engine::{Assignment, Command, MemberNews, Origin, PlacementChange, Reply};
use ringmain_model::limit::{LANE_BUNDLES, LANE_PUSH_BYTES_MAX, LANE_PUSHES_MAX, LANE_WAITING_FACTOR};
use ringmain_model::{CoreId, HighWaterMark, PartitionRef, ShardId};
use ringmain_uring::Waker;
use ringmain_wal::RecordBatch;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::report::{CoreReport, NameRange};
use crate::route::WAITING_BIT;

/// One thing said from core to core.
#[derive(Debug)]
pub(crate) enum LaneItem {
    Ask { shard: ShardId, origin: Origin, command: Command },
    Reply { to: Origin, reply: Reply },
    AskReport { origin: Origin, names: NameRange },
    Report { to: Origin, report: Box<CoreReport> },
    Assign { to: Origin, assignment: Assignment },
    Tell { to: Origin, news: MemberNews },
    Push { batch: RecordBatch },
    Hole { partition: PartitionRef, high_water: HighWaterMark },
    Place { shard: ShardId, change: u64, placement: PlacementChange },
    Placed { shard: ShardId, change: u64 },
}

type Bundle = Vec<LaneItem>;

/// Whether it is a request that may wait long, or the reply to one.
fn is_waiting(item: &LaneItem) -> bool {
    match item {
        LaneItem::Ask { origin, .. } | LaneItem::Reply { to: origin, .. } => origin.request & WAITING_BIT != 0,
        _ => false,
    }
}

/// Bounds of one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    /// Requests outstanding.
    pub(crate) requests: usize,
    /// Batches on their way, and their bytes.
    pub(crate) pushes: usize,
    pub(crate) push_bytes: usize,
    /// Bundles in the ring.
    pub(crate) bundles: usize,
}

impl LaneLimits {
    /// The limits of a broker; only the requests are a setting.
    pub(crate) fn of(requests: usize) -> Self {
        Self { requests, pushes: LANE_PUSHES_MAX, push_bytes: LANE_PUSH_BYTES_MAX, bundles: LANE_BUNDLES }
    }
}

/// What a direction's two ends share besides the ring: pushes on their way, so that their sum is bounded.
#[derive(Default, Debug)]
struct OnTheWay {
    bytes: AtomicUsize,
    batches: AtomicUsize,
}

/// How to wake a core, and whether it needs that.
#[derive(Default, Debug)]
pub(crate) struct Bed {
    asleep: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Bed {
    pub(crate) fn set_waker(&self, waker: Waker) {
        // A core sets its waker once, before it takes its first turn.
        let _ = self.waker.set(waker);
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    fn wake_if_asleep(&self) {
        // Pairs with the fence in `fall_asleep`: either the sleeper sees the bundle, or this sees the sleeper.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }
}

/// One core's ends of the lanes to and from one other core.
#[derive(Debug)]
struct Peer {
    to: Producer<Bundle>,
    from: Consumer<Bundle>,
    to_on_the_way: Arc<OnTheWay>,
    from_on_the_way: Arc<OnTheWay>,
    outbox: Bundle,
    holes: HashMap<PartitionRef, HighWaterMark>,
    requests_outstanding: usize,
    /// Requests that may wait long; they must not take the places of the others.
    waiting_outstanding: usize,
}

/// Looks before a core sleeps, while they pay: some tens of microseconds, in which even a core that slept has answered.
const LOOKS_MAX: u32 = 2_000;
/// Looks while they do not pay, as when a disk is waited for: less than a microsecond.
const LOOKS_MIN: u32 = 32;
/// So often looks that do not pay are tried at full length again.
const LOOKS_TRIED_EVERY: u32 = 64;

/// How long a core looks for replies before it sleeps. Looking saves a wake-up when they come soon, and is lost when they do not; what
/// they did before is the best guess.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Patience {
    /// Times in a row that nothing came.
    vain: u32,
}

impl Patience {
    pub(crate) fn looks(self) -> u32 {
        if self.vain.is_multiple_of(LOOKS_TRIED_EVERY) {
            LOOKS_MAX
        } else {
            (LOOKS_MAX >> self.vain.min(16)).max(LOOKS_MIN)
        }
    }

    pub(crate) fn learn(&mut self, came: bool) {
        self.vain = if came { 0 } else { self.vain.wrapping_add(1) };
    }
}

/// One core's ends of all its lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    own: CoreId,
    patience: Patience,
    peers: Vec<Option<Peer>>,
    beds: Arc<[Bed]>,
    limits: LaneLimits,
}

/// The lanes of all cores, in the order of the cores.
pub(crate) fn connect(cores: u16, limits: LaneLimits, beds: &Arc<[Bed]>) -> Vec<Lanes> {
    let size = usize::from(cores);
    let mut producers: Vec<Vec<_>> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    let mut consumers: Vec<Vec<_>> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    for from in 0..size {
        for to in (0..size).filter(|to| *to != from) {
            let (producer, consumer) = RingBuffer::new(limits.bundles);
            let on_the_way = Arc::new(OnTheWay::default());
            producers[from][to] = Some((producer, Arc::clone(&on_the_way)));
            consumers[to][from] = Some((consumer, on_the_way));
        }
    }
    let ends = producers.into_iter().zip(consumers);
    let lanes = (0..cores).zip(ends).map(|(core, (outgoing, incoming))| Lanes {
        own: CoreId(core),
        patience: Patience::default(),
        peers: outgoing.into_iter().zip(incoming).map(join_ends).collect(),
        beds: Arc::clone(beds),
        limits,
    });
    lanes.collect()
}

type End<T> = Option<(T, Arc<OnTheWay>)>;

fn join_ends((outgoing, incoming): (End<Producer<Bundle>>, End<Consumer<Bundle>>)) -> Option<Peer> {
    let ((to, to_on_the_way), (from, from_on_the_way)) = (outgoing?, incoming?);
    Some(Peer {
        to,
        from,
        to_on_the_way,
        from_on_the_way,
        outbox: Vec::new(),
        holes: HashMap::new(),
        requests_outstanding: 0,
        waiting_outstanding: 0,
    })
}

/// A lane that has as many requests outstanding as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneFull;

impl Lanes {
    fn peer(&mut self, core: CoreId) -> Option<&mut Peer> {
        self.peers.get_mut(core.index())?.as_mut()
    }

    /// Whether one more request to `core` would be taken. The own core always takes it: it is bounded by the connections.
    pub(crate) fn has_room(&self, core: CoreId) -> bool {
        let peer = self.peers.get(core.index()).and_then(Option::as_ref);
        peer.is_none_or(|peer| peer.requests_outstanding < self.limits.requests)
    }

    /// Sends a request, whose reply gives its place back.
    pub(crate) fn request(&mut self, core: CoreId, item: LaneItem) -> Result<(), LaneFull> {
        let requests = self.limits.requests;
        let peer = self.peer(core).ok_or(LaneFull)?;
        // One fetch may wait for each partition of a topic.
        let (outstanding, outstanding_max) = if is_waiting(&item) {
            (&mut peer.waiting_outstanding, requests * LANE_WAITING_FACTOR)
        } else {
            (&mut peer.requests_outstanding, requests)
        };
        if *outstanding >= outstanding_max {
            return Err(LaneFull);
        }
        *outstanding += 1;
        peer.outbox.push(item);
        Ok(())
    }

    /// Sends a reply or a placement change: bounded by the requests that caused it.
    pub(crate) fn say(&mut self, core: CoreId, item: LaneItem) {
        if let Some(peer) = self.peer(core) {
            peer.outbox.push(item);
        }
    }

    /// Sends a visible batch; says whether it left a hole instead.
    pub(crate) fn push(&mut self, core: CoreId, batch: RecordBatch) -> bool {
        let limits = self.limits;
        let Some(peer) = self.peer(core) else { return false };
        let bytes = batch.bytes().len();
        let way = &peer.to_on_the_way;
        let full = way.bytes.load(Ordering::Relaxed) + bytes > limits.push_bytes
            || way.batches.load(Ordering::Relaxed) >= limits.pushes;
        // A batch larger than the bound still goes when it goes alone.
        if full && way.batches.load(Ordering::Relaxed) > 0 {
            peer.holes.insert(batch.partition(), HighWaterMark::at(batch.end()));
            return true;
        }
        way.bytes.fetch_add(bytes, Ordering::Relaxed);
        way.batches.fetch_add(1, Ordering::Relaxed);
        peer.outbox.push(LaneItem::Push { batch });
        false
    }

    /// Hands every outbox over and wakes who sleeps: the end of a turn. Says whether something could not be handed over.
    pub(crate) fn flush(&mut self) -> bool {
        let mut left = false;
        for (core, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            if peer.outbox.is_empty() && peer.holes.is_empty() {
                continue;
            }
            if peer.to.is_full() {
                left = true;
                continue;
            }
            let holes = peer.holes.drain().map(|(partition, high_water)| LaneItem::Hole { partition, high_water });
            peer.outbox.extend(holes);
            // There is room: this is the only producer.
            let _ = peer.to.push(std::mem::take(&mut peer.outbox));
            self.beds[core].wake_if_asleep();
        }
        left
    }

    /// The next bundle from any core.
    pub(crate) fn receive(&mut self) -> Option<(CoreId, Bundle)> {
        for (core, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            let Ok(bundle) = peer.from.pop() else { continue };
            let (mut bytes, mut batches, mut replies, mut waiting) = (0, 0, 0, 0);
            for item in &bundle {
                match item {
                    LaneItem::Push { batch } => {
                        bytes += batch.bytes().len();
                        batches += 1;
                    }
                    LaneItem::Reply { .. } if is_waiting(item) => waiting += 1,
                    LaneItem::Reply { .. } | LaneItem::Report { .. } => replies += 1,
                    _ => {}
                }
            }
            peer.from_on_the_way.bytes.fetch_sub(bytes, Ordering::Relaxed);
            peer.from_on_the_way.batches.fetch_sub(batches, Ordering::Relaxed);
            peer.requests_outstanding = peer.requests_outstanding.saturating_sub(replies);
            peer.waiting_outstanding = peer.waiting_outstanding.saturating_sub(waiting);
            return Some((CoreId(u16::try_from(core).unwrap_or(u16::MAX)), bundle));
        }
        None
    }

    fn has_incoming(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !peer.from.is_empty())
    }

    /// Whether replies are being waited for: then a little looking before sleeping pays.
    pub(crate) fn expects_replies(&self) -> bool {
        self.peers.iter().flatten().any(|peer| peer.requests_outstanding > 0)
    }

    /// Looks at the incoming rings for a while; says whether something came.
    pub(crate) fn look(&mut self) -> bool {
        let looks = self.patience.looks();
        let came = (0..looks).any(|_| {
            let came = self.has_incoming();
            if !came {
                std::hint::spin_loop();
            }
            came
        });
        self.patience.learn(came);
        came
    }

    /// Announces that this core is about to wait for the kernel. `false` means that a bundle came meanwhile: do not wait.
    pub(crate) fn fall_asleep(&self) -> bool {
        let bed = &self.beds[self.own.index()];
        bed.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.has_incoming() {
            bed.asleep.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// The wait is over.
    pub(crate) fn awake(&self) {
        self.beds[self.own.index()].asleep.store(false, Ordering::Relaxed);
    }
}
