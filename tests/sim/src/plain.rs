//! Shards that are driven without chance: whatever they want done is done at once, in order. On the test's thread.

use std::collections::{BTreeMap, VecDeque};

use ringmain_engine::{
    Command, Effect, Event, Now, OpenedShard, OpeningOutput, OpeningReport, Origin, PlacementChange, Reply, Shard,
    ShardOpener, ShardSettings, StorageSettings, reconcile,
};
use ringmain_model::{CoreId, ShardId};
use ringmain_wal::{FileName, OpenRefused, SlotName, SlotsRefused};

use crate::disk::Disk;

/// Things that may happen at one time. A tail with a gap in it cannot move to a topic segment: where it is larger than what the log
/// may grow by, one checkpoint follows another.
const ROUNDS_MAX: usize = 3_000;
/// Who asks on behalf of a shard.
const ORDERING: u64 = 1 << 62;

/// Why shards did not open.
#[derive(Clone, Debug)]
pub enum NotOpened {
    /// One refused, in a sentence: nothing was changed.
    Refused(String),
    /// What must not be.
    Fault(String),
}

/// Shards of one process with their disks.
pub struct Plain {
    /// By number.
    pub disks: Vec<Disk>,
    shards: Vec<Shard>,
    now: Now,
    waiting: VecDeque<(usize, Effect)>,
    replies: BTreeMap<u64, Reply>,
    /// Orders by the request that carries them: who asked, and which.
    orders: BTreeMap<u64, (usize, u64)>,
    next_request: u64,
    cores: u16,
}

impl Plain {
    /// Opens the shards that are on `disks`; `storage` has the settings of each.
    ///
    /// # Errors
    /// When one refuses, or does what it must not.
    pub fn open(
        disks: Vec<Disk>,
        settings: ShardSettings,
        storage: impl Fn(ShardId) -> StorageSettings,
        now: Now,
    ) -> Result<(Self, Vec<OpeningReport>), (NotOpened, Vec<Disk>)> {
        let mut plain = Self {
            disks,
            shards: Vec::new(),
            now,
            waiting: VecDeque::new(),
            replies: BTreeMap::new(),
            orders: BTreeMap::new(),
            next_request: 0,
            cores: settings.cores,
        };
        let mut opened = Vec::new();
        for (node, id) in (0..plain.disks.len()).zip(0..) {
            match plain.open_one(node, settings, storage(ShardId(id))) {
                Ok(one) => opened.push(one),
                Err(reason) => return Err((reason, plain.disks)),
            }
        }
        reconcile(&mut opened);
        let mut reports = Vec::new();
        for (node, OpenedShard { shard, effects, report }) in opened.into_iter().enumerate() {
            plain.shards.push(shard);
            plain.waiting.extend(effects.into_iter().map(|effect| (node, effect)));
            reports.push(report);
        }
        plain.settle();
        Ok((plain, reports))
    }

    fn open_one(
        &mut self,
        node: usize,
        settings: ShardSettings,
        storage: StorageSettings,
    ) -> Result<OpenedShard, NotOpened> {
        let disk = &mut self.disks[node];
        let contents = [SlotName::A, SlotName::B].map(|slot| disk.whole(FileName::Slot(slot)));
        let opener = ShardOpener::new(storage.log.shard, settings, storage, &disk.list(), &contents);
        let mut opener = opener.map_err(|refused: SlotsRefused| NotOpened::Refused(refused.to_string()))?;
        let (mut outputs, mut waiting) = (Vec::new(), VecDeque::new());
        opener.start(&mut outputs);
        loop {
            for output in std::mem::take(&mut outputs) {
                match output {
                    OpeningOutput::Do { operation, effect } => waiting.push_back((operation, effect)),
                    OpeningOutput::Opened(opened) => return Ok(*opened),
                    OpeningOutput::Refused(OpenRefused::Failed { failure, .. }) => {
                        return Err(NotOpened::Fault(format!("the disk does everything, and {failure:?}")));
                    }
                    OpeningOutput::Refused(refused) => return Err(NotOpened::Refused(refused.to_string())),
                }
            }
            let Some((operation, effect)) = waiting.pop_front() else {
                return Err(NotOpened::Fault("the opener came to no end".to_owned()));
            };
            opener.completed(operation, &disk.perform(&effect), &mut outputs);
        }
    }

    fn give(&mut self, node: usize, event: Event) {
        let mut effects = Vec::new();
        self.shards[node].handle(self.now, event, &mut effects);
        self.waiting.extend(effects.into_iter().map(|effect| (node, effect)));
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::File { operation, effect } => {
                let completion = self.disks[node].perform(&effect);
                self.give(node, Event::FileDone { operation, completion });
            }
            Effect::Reply { to, reply } => match self.orders.remove(&to.request) {
                Some((from, order)) => {
                    let outcome = if let Reply::Refused(refusal) = reply { Err(refusal) } else { Ok(()) };
                    self.give(from, Event::OrderDone { order, outcome });
                }
                None => {
                    self.replies.insert(to.request, reply);
                }
            },
            Effect::Order { order, shard, what } => {
                let request = self.number();
                self.orders.insert(request, (node, order));
                let origin = Origin { core: CoreId(0), asker: ORDERING, request };
                self.give(usize::from(shard.0), Event::Asked { origin, command: Command::Order(what) });
            }
            Effect::Place { change, .. } => (0..self.cores).for_each(|_| self.give(node, Event::Placed { change })),
            _ => {}
        }
    }

    fn number(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// Goes on until nothing is left to happen at this time.
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if let Some((node, effect)) = self.waiting.pop_front() {
                self.carry_out(node, effect);
                continue;
            }
            // Each turn may take a step of what goes on by itself.
            (0..self.shards.len()).for_each(|node| self.give(node, Event::TurnEnded));
            if self.waiting.is_empty() && !self.shards.iter().any(Shard::is_dirty) {
                return;
            }
        }
    }

    /// Lets time pass.
    pub fn pass_ms(&mut self, ms: u64) {
        self.now.monotonic_ms += ms;
        self.now.unix_us += ms as i64 * 1000;
        (0..self.shards.len()).for_each(|node| self.give(node, Event::TimePassed));
        self.settle();
    }

    /// Asks a shard and waits for the answer.
    ///
    /// # Errors
    /// When none comes.
    pub fn ask(&mut self, node: usize, command: Command) -> Result<Reply, String> {
        let request = self.number();
        let origin = Origin { core: CoreId(0), asker: 0, request };
        let asked = format!("{command:?}");
        self.give(node, Event::Asked { origin, command });
        self.settle();
        for _ in 0..20 {
            if let Some(reply) = self.replies.remove(&request) {
                return Ok(reply);
            }
            // It waits for room, or for another shard.
            self.pass_ms(1000);
        }
        Err(format!("not answered: {asked}"))
    }

    /// What the shards tell the cores that there is.
    #[must_use]
    pub fn placements(&self) -> Vec<PlacementChange> {
        self.shards.iter().flat_map(Shard::placements).collect()
    }
}
