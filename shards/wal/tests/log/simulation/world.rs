//! One simulated log: what was written and promised, the disk, and one life after another.

use ringmain_wal::{
    Checkpoint, Completion, Effect, Entry, Failure, FileName, Finding, LogOpener, LogOutput, LogPosition, LogSettings,
    LogWriter, NotAdmitted, OpenOutput, Opened, OperationId, Sequence, SlotOutput, SlotWriter, Slots, choose_slot,
};

use super::model::Model;
use crate::chance::Chance;
use crate::disk::Disk;
use crate::stage::{SHARD, settings};

/// A fault put in on purpose, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    LogSyncSkipped,
    DirectorySyncSkipped,
    ReleasedBelowNewer,
    PrepareSyncSkipped,
    OpenSyncSkipped,
    SlotsNotConfirmed,
}

/// What happened in a run.
#[derive(Clone, Default, Debug)]
pub struct Sums {
    pub crashes: u64,
    pub durable: u64,
    pub checkpoints: u64,
    pub poisons: u64,
    pub cuts: u64,
    pub fulls: u64,
    pub recycled: u64,
    pub planned_crashes: u64,
}

impl Sums {
    pub fn add(&mut self, other: &Sums) {
        self.crashes += other.crashes;
        self.durable += other.durable;
        self.checkpoints += other.checkpoints;
        self.poisons += other.poisons;
        self.cuts += other.cuts;
        self.fulls += other.fulls;
        self.recycled += other.recycled;
        self.planned_crashes += other.planned_crashes;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Log,
    Slots,
    Opener,
}

struct InFlight {
    owner: Owner,
    operation: OperationId,
    effect: Effect,
}

/// How a life ended.
enum End {
    Crash,
    Quiet,
}

pub struct World {
    chance: Chance,
    sabotage: Option<Sabotage>,
    disk: Disk,
    model: Model,
    in_flight: Vec<InFlight>,
    /// Chance of a failing operation in this life: one in that many, or never.
    failing: Option<u64>,
    /// Effects that are performed before the first crash; `None` when crashes come by chance.
    effects_left: Option<u64>,
    must_crash: bool,
    /// A checkpoint has begun in this life.
    has_checkpointed: bool,
    sums: Sums,
    life: u64,
}

struct Broker {
    writer: LogWriter,
    slots: SlotWriter,
    /// Position of the checkpoint that is being written.
    checkpoint: Option<LogPosition>,
    is_poisoned: bool,
}

impl World {
    pub fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let mut chance = Chance::of(seed);
        let blocks = if chance.one_in(3) { 64 + chance.below(80) } else { 1 << 20 };
        Self {
            sabotage,
            disk: Disk::new(blocks * 4096),
            model: Model::new(),
            in_flight: Vec::new(),
            failing: None,
            effects_left: None,
            must_crash: false,
            has_checkpointed: false,
            sums: Sums::default(),
            life: 0,
            chance,
        }
    }

    /// The same world, with its first crash right before the effect with that number.
    pub fn crashing_at(mut self, effects: u64) -> Self {
        self.effects_left = Some(effects);
        self
    }

    pub fn run(mut self) -> Result<Sums, String> {
        let lives = 3 + self.chance.below(8);
        while self.life < lives {
            self.life += 1;
            self.failing = self.chance.one_in(3).then(|| 20 + self.chance.below(200));
            let steps = if self.chance.one_in(2) { self.chance.below(400) } else { self.chance.below(80) };
            if let End::Crash = self.live(steps, false)? {
                self.crash();
            }
        }
        // The last life has a good disk with room: everything goes on by itself and ends durable.
        self.life += 1;
        (self.failing, self.effects_left, self.must_crash) = (None, None, false);
        self.disk.capacity = 1 << 40;
        self.live(300, true)?;
        Ok(self.sums)
    }

    /// Counts an effect that is about to be performed; says whether the crash comes first.
    fn crashes_now(&mut self) -> bool {
        let Some(left) = self.effects_left.as_mut() else { return false };
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None => self.must_crash = true,
        }
        self.must_crash
    }

    fn crash(&mut self) {
        self.sums.crashes += 1;
        if std::mem::take(&mut self.must_crash) {
            self.sums.planned_crashes += 1;
            self.effects_left = None;
        }
        for left in std::mem::take(&mut self.in_flight) {
            self.disk.perform_in_part(&left.effect, &mut self.chance);
        }
        // A killed process leaves the system's memory, a power loss does not.
        if !self.chance.one_in(3) {
            self.disk.lose_power(&mut self.chance);
        }
        if self.chance.one_in(4) {
            self.rot_newer_slot();
        }
    }

    /// One damaged slot must cost nothing, as long as the other one is valid.
    fn rot_newer_slot(&mut self) {
        if let Ok(slots) = self.read_slots()
            && let (Some((name, _)), Some(_)) = (slots.newer, slots.older)
        {
            self.disk.damage(FileName::Slot(name), |content| content[20] ^= 1);
        }
    }

    fn read_slots(&self) -> Result<Slots, String> {
        let file = |name| self.disk.whole(FileName::Slot(name));
        let (a, b) = (file(ringmain_wal::SlotName::A), file(ringmain_wal::SlotName::B));
        choose_slot(SHARD, a.as_ref(), b.as_ref()).map_err(|refused| refused.to_string())
    }

    fn live(&mut self, steps: u64, is_last: bool) -> Result<End, String> {
        self.has_checkpointed = false;
        let slots = self.read_slots()?;
        let checkpoint = slots.newer.as_ref().map(|(_, content)| content.checkpoint.clone());
        let Some(opened) = self.open(checkpoint.as_ref(), is_last)? else { return Ok(End::Crash) };
        let (mut out, mut said) = (Vec::new(), Vec::new());
        let settings = LogSettings { epoch: self.chance.number(), batch_bytes_max: 20_000, ..settings(0) };
        let mut broker = Broker {
            writer: LogWriter::new(settings, opened, &mut out),
            slots: SlotWriter::new(SHARD, &slots, &mut said),
            checkpoint: None,
            is_poisoned: false,
        };
        self.take_slots(&mut broker, said, &mut out);
        self.take(&mut broker, out)?;
        for _ in 0..steps {
            if !is_last && (self.must_crash || self.chance.one_in(250)) {
                return Ok(End::Crash);
            }
            self.act(&mut broker)?;
        }
        if !is_last {
            return Ok(End::Crash);
        }
        self.settle(&mut broker)?;
        Ok(End::Quiet)
    }

    /// Replays the log and compares; `None` for a crash on the way.
    fn open(&mut self, checkpoint: Option<&Checkpoint>, is_last: bool) -> Result<Option<Opened>, String> {
        let start = checkpoint.map_or(LogPosition::START, |checkpoint| checkpoint.position);
        if let Some(checkpoint) = checkpoint {
            self.model.check_checkpoint(checkpoint)?;
        }
        let mut opener = LogOpener::new(SHARD, checkpoint, &self.disk.list());
        let (mut outputs, mut replayed, mut opened) = (Vec::new(), Vec::new(), None);
        opener.start(&mut outputs);
        while !outputs.is_empty() {
            for output in std::mem::take(&mut outputs) {
                match output {
                    OpenOutput::Do { operation, effect } => {
                        if !is_last && (self.crashes_now() || self.chance.one_in(60)) {
                            self.in_flight.push(InFlight { owner: Owner::Opener, operation, effect });
                            return Ok(None);
                        }
                        let completion = self.perform(Owner::Opener, &effect, false);
                        opener.completed(operation, &completion, &mut outputs);
                    }
                    OpenOutput::Entry { sequence, entry } => replayed.push((sequence, entry)),
                    OpenOutput::Finding(Finding::Cut { .. }) => self.sums.cuts += 1,
                    OpenOutput::Finding(finding) => return Err(format!("an honest disk was found {finding:?}")),
                    OpenOutput::Opened(end) => opened = Some(end),
                    OpenOutput::Refused(refused) => return Err(refused.to_string()),
                }
            }
        }
        let opened = opened.ok_or("the opener came to no end")?;
        self.model.recovered(start.next, &replayed, opened.position)?;
        Ok(Some(opened))
    }

    fn perform(&mut self, owner: Owner, effect: &Effect, may_fail: bool) -> Completion {
        let skipped = match (self.sabotage, effect) {
            (Some(Sabotage::LogSyncSkipped), Effect::Sync { file: FileName::Segment(_) }) => owner == Owner::Log,
            (Some(Sabotage::OpenSyncSkipped), Effect::Sync { .. }) => owner == Owner::Opener,
            (Some(Sabotage::PrepareSyncSkipped), Effect::Sync { file: FileName::Preparing(_) }) => true,
            (Some(Sabotage::SlotsNotConfirmed), Effect::Sync { file: FileName::Slot(_) }) => {
                owner == Owner::Slots && !self.has_checkpointed
            }
            (Some(Sabotage::DirectorySyncSkipped), Effect::SyncDirectory) => true,
            _ => false,
        };
        if skipped {
            return Completion::Done;
        }
        if may_fail && self.failing.is_some_and(|failing| self.chance.one_in(failing)) {
            if !matches!(effect, Effect::Allocate { .. }) {
                self.disk.perform_in_part(effect, &mut self.chance);
            }
            return match effect {
                Effect::Write { .. } if self.chance.one_in(2) => Completion::Written(effect.write_bytes() / 2),
                Effect::Allocate { .. } | Effect::Write { .. } => Completion::Failed(Failure::NoSpace),
                _ => Completion::Failed(Failure::System(5)),
            };
        }
        if matches!(effect, Effect::Rename { from: FileName::Segment(_), .. }) {
            self.sums.recycled += 1;
        }
        self.disk.perform(effect)
    }

    /// One thing happens: something is admitted, a turn ends, an operation completes, a checkpoint begins.
    fn act(&mut self, broker: &mut Broker) -> Result<(), String> {
        let mut out = Vec::new();
        match self.chance.below(20) {
            0..3 => {
                self.admit(broker, &mut out)?;
            }
            3..5 => self.admit_reserved(broker, &mut out)?,
            5..9 => broker.writer.turn_ended(&mut out),
            9..18 => {
                self.complete_one(broker, &mut out)?;
            }
            18 => self.begin_checkpoint(broker, &mut out)?,
            _ => broker.writer.try_again(&mut out),
        }
        self.take(broker, out)
    }

    fn admit(&mut self, broker: &mut Broker, out: &mut Vec<LogOutput>) -> Result<bool, String> {
        let entry: Entry = self.model.next_entry(&mut self.chance);
        match broker.writer.append(&entry, out) {
            Ok(sequence) => {
                self.model.admitted(sequence, entry);
                return Ok(true);
            }
            Err(NotAdmitted::Poisoned) if !broker.is_poisoned => return Err("poisoned without a word".to_owned()),
            Err(refusal @ (NotAdmitted::TooLarge | NotAdmitted::BatchFull)) => return Err(refusal.to_string()),
            Err(NotAdmitted::Full | NotAdmitted::NoRoomForSize) => self.sums.fulls += 1,
            Err(NotAdmitted::Busy | NotAdmitted::Poisoned) => {}
        }
        Ok(false)
    }

    /// A turn of publishes: room for all is reserved, then all are appended, and none may be refused.
    fn admit_reserved(&mut self, broker: &mut Broker, out: &mut Vec<LogOutput>) -> Result<(), String> {
        let sizes: Vec<_> = (0..1 + self.chance.below(5)).map(|_| 8000 + self.chance.below(3000) as usize).collect();
        let granted: Vec<_> =
            sizes.into_iter().take_while(|bytes| broker.writer.reserve(*bytes, out).is_ok()).collect();
        for reserved in granted {
            broker.writer.turn_ended(out);
            let entry = self.model.next_entry(&mut self.chance);
            match broker.writer.append_reserved(&entry, reserved) {
                Ok(sequence) => self.model.admitted(sequence, entry),
                Err(refusal) => return Err(format!("room was reserved, and then {refusal}")),
            }
        }
        Ok(())
    }

    /// Completes any operation in flight; says whether there was one.
    fn complete_one(&mut self, broker: &mut Broker, out: &mut Vec<LogOutput>) -> Result<bool, String> {
        if self.in_flight.is_empty() || self.crashes_now() {
            return Ok(false);
        }
        let at = self.chance.below(self.in_flight.len() as u64) as usize;
        let InFlight { owner, operation, effect } = self.in_flight.swap_remove(at);
        let completion = self.perform(owner, &effect, true);
        if owner == Owner::Log {
            broker.writer.completed(operation, &completion, out);
        } else {
            let mut said = Vec::new();
            broker.slots.completed(operation, &completion, &mut said);
            self.take_slots(broker, said, out);
        }
        Ok(true)
    }

    fn begin_checkpoint(&mut self, broker: &mut Broker, out: &mut Vec<LogOutput>) -> Result<(), String> {
        if broker.is_poisoned || !broker.slots.is_ready() {
            return Ok(());
        }
        let position = broker.writer.durable_position();
        let checkpoint = self.model.checkpoint(position);
        let mut said = Vec::new();
        if broker.slots.write(&checkpoint, &mut said) {
            broker.checkpoint = Some(position);
            self.has_checkpointed = true;
        }
        self.take_slots(broker, said, out);
        Ok(())
    }

    fn take_slots(&mut self, broker: &mut Broker, said: Vec<SlotOutput>, out: &mut Vec<LogOutput>) {
        for output in said {
            match output {
                SlotOutput::Do { operation, effect } => {
                    self.in_flight.push(InFlight { owner: Owner::Slots, operation, effect });
                }
                SlotOutput::Confirmed { release } => {
                    if let Some(release) = release {
                        broker.writer.release(&release, out);
                    }
                }
                SlotOutput::Written { release, .. } => {
                    self.sums.checkpoints += 1;
                    let is_wrong = self.sabotage == Some(Sabotage::ReleasedBelowNewer);
                    let newer = broker.checkpoint.take();
                    if let Some(release) = if is_wrong { newer } else { release } {
                        broker.writer.release(&release, out);
                    }
                }
                SlotOutput::Failed(_) | SlotOutput::Poisoned(_) => broker.checkpoint = None,
            }
        }
    }

    fn take(&mut self, broker: &mut Broker, out: Vec<LogOutput>) -> Result<(), String> {
        for output in out {
            match output {
                LogOutput::Do { operation, effect } => {
                    let is_of_log = |one: &InFlight| one.owner == Owner::Log;
                    // One write or sync of the log, and one step of making a segment.
                    if self.in_flight.iter().filter(|one| is_of_log(one)).count() >= 2 {
                        return Err("more than two operations of the log are in flight".to_owned());
                    }
                    self.in_flight.push(InFlight { owner: Owner::Log, operation, effect });
                }
                LogOutput::Durable(sequence) => {
                    self.sums.durable += 1;
                    self.model.durable(sequence)?;
                }
                LogOutput::Poisoned(_) => {
                    self.sums.poisons += 1;
                    broker.is_poisoned = true;
                }
                LogOutput::Full(_) | LogOutput::Room => {}
            }
        }
        Ok(())
    }

    /// On a good disk the log admits again and everything admitted becomes durable.
    fn settle(&mut self, broker: &mut Broker) -> Result<(), String> {
        let mut last = None;
        for round in 0..2000 {
            let mut out = Vec::new();
            if round % 50 == 0 {
                self.begin_checkpoint(broker, &mut out)?;
                broker.writer.try_again(&mut out);
            }
            if last.is_none() && self.admit(broker, &mut out)? {
                last = self.model.last();
            }
            broker.writer.turn_ended(&mut out);
            self.complete_one(broker, &mut out)?;
            self.take(broker, out)?;
            if last.is_some_and(|last| self.model.is_durable(last)) {
                break;
            }
        }
        match last {
            None => Err("the log never admitted anything again".to_owned()),
            Some(last) if self.model.is_durable(last) => Ok(()),
            Some(Sequence(last)) => Err(format!("batch {last} never became durable")),
        }
    }
}
