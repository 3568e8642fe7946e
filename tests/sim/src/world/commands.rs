//! What clients ask: topics, publishes, reads, interest. Chance chooses.

use ringmain_engine::{AnswerWhen, Command, Event, Interest, Origin, PlacementChange};
use ringmain_model::{CoreId, Offset, Refusal, Retention, ShardId, Storage, TopicConfig, TopicName, TopicPatch};

use super::{Asked, CORES, World};
use crate::model::{Check, Life, Standing, message, partition_of};
use crate::sabotage::Sabotage;

/// Topics that are made to live side by side.
const TOPICS_MAX: usize = 4;
const NAMES: [&str; 6] = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"];

/// The name and the life of a topic that is announced.
pub(super) fn placed(change: PlacementChange) -> (TopicName, u64, u32) {
    match change {
        PlacementChange::Add { name, incarnation, partitions, .. } => (name, incarnation.0, partitions),
        PlacementChange::Remove { name, incarnation } => (name, incarnation.0, 1),
    }
}

/// The error that only a name of ours could bring.
fn bad_name(error: impl std::fmt::Display) -> String {
    format!("a name of the simulation is bad: {error}")
}

pub(super) fn refusal_text(refusal: &Refusal) -> String {
    format!("refused {}", refusal.kind.code())
}

impl World {
    /// Asks, on behalf of nobody in particular, and says the request's number.
    pub(super) fn ask(&mut self, core: u16, node: usize, command: Command, asked: Asked) -> Check<u64> {
        let request = self.next_request;
        self.next_request += 1;
        self.trace.note(format!("ask {request} of {node}: {asked:?}"));
        self.asked.insert(request, asked);
        let origin = Origin { core: CoreId(core), asker: 0, request };
        self.give(node, Event::Asked { origin, command })?;
        Ok(request)
    }

    /// Asks the shard of a partition, from any core.
    pub(super) fn ask_life(&mut self, life: u64, command: Command, asked: Asked) -> Check<u64> {
        let (core, node) = (self.any_core(), self.model.life(life)?.node);
        self.ask(core, node, command, asked)
    }

    pub(super) fn any_core(&mut self) -> u16 {
        self.chance.below(u64::from(CORES)) as u16
    }

    /// A topic that may be there; seldom one that is no more.
    pub(super) fn any_life(&mut self) -> Option<u64> {
        let is_stale = self.chance.one_in(40);
        let lives = self.model.lives.iter();
        // Nobody knows the partitions of a topic before all are there, nor when it has ended.
        let is_known = |life: &Life| life.partitions == 1 || life.is_sure();
        let may_be = |life: &Life| life.may_be_there() && life.deletion == Standing::Never;
        let lives = lives.filter(|(_, life)| is_known(life) && (is_stale || may_be(life)));
        let lives: Vec<_> = lives.map(|(life, _)| *life).collect();
        (!lives.is_empty()).then(|| lives[self.chance.index(lives.len())])
    }

    pub(super) fn ask_something(&mut self) -> Check {
        let there = self.model.lives.values().filter(|life| life.number == 0 && life.may_be_there()).count();
        if there == 0 || (there < TOPICS_MAX && self.chance.one_in(12)) {
            return self.ask_create();
        }
        match self.chance.below(100) {
            0..2 => self.ask_delete(),
            2..4 => self.ask_repeat(),
            4..7 => self.ask_publish_all(),
            7..9 => self.ask_change(),
            9..45 => {
                let count = if self.chance.one_in(6) { 1 + self.chance.below(12) } else { 1 };
                let Some(life) = self.any_life() else { return Ok(()) };
                (0..count).try_for_each(|_| self.ask_publish(life).map(|_| ()))
            }
            45..53 => self.ask_read(),
            53..55 => self.ask_stat(),
            55..58 => self.ask_interest(),
            58 => {
                let (core, node) = (self.any_core(), self.any_node());
                let partitions = self.model.lives.keys().map(|life| partition_of(*life)).collect();
                self.ask(core, node, Command::List { partitions }, Asked::List).map(|_| ())
            }
            _ => self.ask_group(),
        }
    }

    fn ask_create(&mut self) -> Check {
        let name = TopicName::new(self.chance.pick(&NAMES)).map_err(bad_name)?;
        let is_wal = self.plan.has_wal && !self.chance.one_in(5);
        let storage = if is_wal { Storage::Wal } else { Storage::Memory };
        let retention = Retention {
            max_messages: self.chance.pick(&[5, 40, 1000, 1 << 40, 1 << 40]),
            max_bytes: self.chance.pick(&[3_000, 60_000, 1 << 50, 1 << 50, 1 << 50]),
            max_age_ms: None,
        };
        let ack_wait_ms = self.chance.pick(&[100, 1_000, 30_000]);
        let max_deliver = self.any_max_deliver();
        let dead_letter = self.any_dead_letter(&name)?.filter(|_| max_deliver.is_some());
        let config = TopicConfig { storage, retention, ack_wait_ms, max_deliver, dead_letter };
        let incarnation = partition_of(self.chance.number()).incarnation;
        let partitions = self.chance.pick(&[1, 1, 2, 3, 5]);
        let first = ShardId::initial(name.as_str(), self.sizes.shards);
        self.model.create_asked(incarnation, &name, &config, partitions, first, self.sizes.shards);
        let command = Command::Create { name, partitions, config, incarnation };
        self.ask_life(incarnation.0, command, Asked::Create { life: incarnation.0 }).map(|_| ())
    }

    fn any_max_deliver(&mut self) -> Option<u32> {
        self.chance.pick(&[None, None, Some(1), Some(2), Some(4)])
    }

    /// Another topic, which may not be there, or none.
    fn any_dead_letter(&mut self, own: &TopicName) -> Check<Option<TopicName>> {
        let name = TopicName::new(self.chance.pick(&NAMES)).map_err(bad_name)?;
        Ok(Some(name).filter(|name| name != own && !self.chance.one_in(5)))
    }

    /// Changes settings, unless it is open whether a former change holds.
    fn ask_change(&mut self) -> Check {
        let Some(life) = self.any_life() else { return Ok(()) };
        let of_life = self.model.life(life)?;
        if of_life.changing.is_some() {
            return Ok(());
        }
        let (name, config) = (of_life.name.clone(), of_life.config.clone());
        let first = partition_of(life).incarnation;
        let mut patch = TopicPatch::default();
        match self.chance.below(8) {
            0 => patch.max_messages = Some(self.chance.pick(&[5, 40, 1000])),
            1 | 2 => patch.dead_letter = Some(self.any_dead_letter(&name)?),
            3 => patch.ack_wait_ms = Some(self.chance.pick(&[100, 1_000, 30_000])),
            _ => patch.max_deliver = Some(self.any_max_deliver()),
        }
        let config = patch.clone().apply(&config);
        if config.check().is_err() {
            return Ok(());
        }
        self.model.all_of(life, |life| life.change_asked(config.clone()));
        let command = Command::Change { incarnation: first, patch };
        self.ask_life(first.0, command, Asked::Change { life: first.0 }).map(|_| ())
    }

    /// A client that missed its answer publishes again, with the same id.
    fn ask_repeat(&mut self) -> Check {
        let Some(life) = self.any_life() else { return Ok(()) };
        let Some((id, at)) = self.model.any_to_repeat(life, &mut self.chance) else { return Ok(()) };
        let message = self.model.publishes[id as usize].message.clone();
        let answer = self.chance.pick(&[AnswerWhen::Durable, AnswerWhen::Appended]);
        let command = Command::Publish { partition: partition_of(life), message, answer };
        self.ask_life(life, command, Asked::Repeat { life, at }).map(|_| ())
    }

    fn ask_publish_all(&mut self) -> Check {
        let Some(life) = self.any_life() else { return Ok(()) };
        let (first, count) = (self.model.publishes.len() as u64, 1 + self.chance.below(12));
        let bytes_max = self.chance.pick(&[100, 600, self.sizes.payload_max / 4]).max(1);
        let mut messages = Vec::new();
        for id in first..first + count {
            let bytes = self.chance.below(bytes_max) as usize;
            let message = message(id, bytes, &mut self.chance);
            self.model.publish_asked(life, message.clone());
            messages.push(message);
        }
        self.model.are_together(life, count);
        let was_sure = self.model.life(life)?.is_sure();
        let is_durable = !self.chance.one_in(5);
        let answer = if is_durable { AnswerWhen::Durable } else { AnswerWhen::Appended };
        let command = Command::PublishAll { partition: partition_of(life), messages, answer };
        self.ask_life(life, command, Asked::PublishAll { life, first, count, is_durable, was_sure }).map(|_| ())
    }

    fn ask_delete(&mut self) -> Check {
        let Some(life) = self.any_life() else { return Ok(()) };
        let name = self.model.life(life)?.name.clone();
        // The name may be another life's by now.
        let holder = self
            .model
            .lives
            .iter()
            .find(|(_, life)| life.name == name && life.may_be_there() && life.deletion == Standing::Never);
        let holder = holder.map(|(life, _)| *life);
        let request = self.next_request;
        let mut was_sure = false;
        if let Some(life) = holder {
            was_sure = self.model.life(life)?.is_sure();
            self.model.all_of(life, |life| (life.deletion, life.deletion_request) = (Standing::Asked, request));
        }
        let node = usize::from(ShardId::initial(name.as_str(), self.sizes.shards).0);
        let core = self.any_core();
        self.ask(core, node, Command::Delete { name }, Asked::Delete { life: holder, was_sure })?;
        if self.plan.sabotage == Some(Sabotage::UnlinkedEarly)
            && let Some(life) = holder
        {
            self.unlink_early(life);
        }
        Ok(())
    }

    pub(super) fn ask_publish(&mut self, life: u64) -> Check<u64> {
        let id = self.model.publishes.len() as u64;
        let bytes_max = if self.chance.one_in(6) { self.sizes.payload_max } else { 600 };
        let bytes = self.chance.below(bytes_max) as usize;
        let message = message(id, bytes, &mut self.chance);
        self.model.publish_asked(life, message.clone());
        let was_sure = self.model.life(life)?.is_sure();
        let is_durable = !self.chance.one_in(5);
        let answer = if is_durable { AnswerWhen::Durable } else { AnswerWhen::Appended };
        let command = Command::Publish { partition: partition_of(life), message, answer };
        self.ask_life(life, command, Asked::Publish { life, id, is_durable, was_sure })
    }

    fn ask_read(&mut self) -> Check {
        let Some(life) = self.any_life() else { return Ok(()) };
        let of_life = self.model.life(life)?;
        let (start, visible_end) = (of_life.log_start_max, of_life.visible_end);
        let from = match self.chance.below(4) {
            0 => 0,
            1 => start,
            _ => self.chance.below(visible_end + 3),
        };
        let command = Command::Read {
            partition: partition_of(life),
            from: Offset(from),
            bytes_max: self.chance.pick(&[1, 3_000, 100_000]),
            records_max: self.chance.pick(&[1, 10, 1000]),
            following: self.chance.one_in(3),
        };
        self.ask_life(life, command, Asked::Read { life, from: Offset(from), visible_end }).map(|_| ())
    }

    fn ask_stat(&mut self) -> Check {
        let Some(life) = self.any_life() else { return Ok(()) };
        let visible_end = self.model.life(life)?.visible_end;
        let command = Command::Stat { partition: partition_of(life) };
        self.ask_life(life, command, Asked::Stat { life, visible_end }).map(|_| ())
    }

    fn ask_interest(&mut self) -> Check {
        let Some(life) = self.any_life() else { return Ok(()) };
        let core = self.any_core();
        let wanted = !self.chance.one_in(3);
        if wanted {
            self.model.life(life)?.interest.entry(core).or_insert(None);
        }
        let interest = Interest { wanted, subscribers: u32::from(wanted) };
        let command = Command::Interest { partition: partition_of(life), interest };
        let node = self.model.life(life)?.node;
        self.ask(core, node, command, Asked::Interest { life, core, wanted }).map(|_| ())
    }
}
