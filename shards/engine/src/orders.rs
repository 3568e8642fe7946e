//! What shards ask of each other for topics of several partitions, and what a start finds of that. On the core that owns the shard.
//!
//! The shard of a topic's first partition decides about the topic, and its log alone says whether the topic is there and how it is
//! set: the settings that other logs have count only until all shards are open. To make one, the other shards make their parts first, then that shard
//! commits; to end one, it commits first. What a crash leaves between the two, partitions of which that log knows nothing,
//! [`reconcile`] removes at the next start.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use ringmain_model::limit::ORDER_RETRY_MS;
use ringmain_model::{Incarnation, PartitionRef, Refusal, RefusalKind, ShardId, TopicConfig, TopicName};
use ringmain_wal::{Entry, TopicChanged, TopicCreated};

use crate::command::{Effect, Now, Origin, Reply};
use crate::opening::OpenedShard;
use crate::shard::Shard;
use crate::shard_log::{Awaiting, storage_failed};
use crate::topics::Ended;

/// What a shard is asked to do with its part of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Make it. Nobody reaches it before the topic is announced.
    Make(TopicCreated),
    /// Let it go; it is no fault if it is not there.
    Drop {
        /// The topic's life.
        incarnation: Incarnation,
        /// Its name.
        name: TopicName,
    },
    /// Give it other settings.
    Change {
        /// The topic's life.
        incarnation: Incarnation,
        /// The settings.
        config: TopicConfig,
    },
}

/// What several shards are doing for one topic.
#[derive(Debug)]
struct Undertaking {
    aim: Aim,
    /// Shards that have not answered yet.
    waiting: usize,
    /// Shards that are to be asked again, and when.
    again: Vec<ShardId>,
    again_ms: Option<u64>,
    /// Why it cannot be.
    refusal: Option<Refusal>,
}

/// What comes of an undertaking.
#[derive(Debug)]
enum Aim {
    /// The topic is committed, or undone.
    Birth { origin: Origin, born: TopicCreated },
    /// Nothing more.
    End { incarnation: Incarnation, name: TopicName },
    /// The asker is answered, once.
    Change { origin: Option<Origin>, incarnation: Incarnation },
}

/// What this shard has asked others. At most one undertaking for each topic that is being made, changed or removed.
#[derive(Default, Debug)]
pub(crate) struct Orders {
    /// By number, so that what they do together is the same in each run of a seed.
    undertakings: BTreeMap<u64, Undertaking>,
    /// Orders that wait for an answer: of which undertaking, to which shard.
    sent: HashMap<u64, (u64, ShardId)>,
    next: u64,
}

impl Orders {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// When shards are to be asked again.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.undertakings.values().filter_map(|undertaking| undertaking.again_ms).min()
    }
}

impl Shard {
    pub(crate) fn order_birth(
        &mut self,
        origin: Origin,
        born: TopicCreated,
        shards: Vec<ShardId>,
        effects: &mut Vec<Effect>,
    ) {
        self.undertake(Aim::Birth { origin, born }, shards, effects);
    }

    /// Has the other shards let go of their parts of a topic, sooner or later.
    pub(crate) fn order_end(&mut self, ended: &Ended, effects: &mut Vec<Effect>) {
        let shards = self.other_shards(&ended.name, ended.partitions);
        if !shards.is_empty() {
            self.undertake(Aim::End { incarnation: ended.incarnation, name: ended.name.clone() }, shards, effects);
        }
    }

    pub(crate) fn order_change(
        &mut self,
        origin: Origin,
        incarnation: Incarnation,
        shards: Vec<ShardId>,
        effects: &mut Vec<Effect>,
    ) {
        self.undertake(Aim::Change { origin: Some(origin), incarnation }, shards, effects);
    }

    fn undertake(&mut self, aim: Aim, shards: Vec<ShardId>, effects: &mut Vec<Effect>) {
        let number = self.orders.number();
        let undertaking = Undertaking { aim, waiting: 0, again: Vec::new(), again_ms: None, refusal: None };
        self.orders.undertakings.insert(number, undertaking);
        self.send_orders(number, shards, effects);
    }

    fn send_orders(&mut self, number: u64, shards: Vec<ShardId>, effects: &mut Vec<Effect>) {
        let Some(undertaking) = self.orders.undertakings.get(&number) else { return };
        let what = match &undertaking.aim {
            Aim::Birth { born, .. } => Order::Make(born.clone()),
            Aim::End { incarnation, name } => Order::Drop { incarnation: *incarnation, name: name.clone() },
            Aim::Change { incarnation, .. } => {
                // As it is now: it may have changed again since, or have ended.
                let first = PartitionRef { incarnation: *incarnation, partition: 0 };
                let Some(config) = self.living(first).map(|topic| topic.config.clone()) else {
                    self.orders.undertakings.remove(&number);
                    return;
                };
                Order::Change { incarnation: *incarnation, config }
            }
        };
        if let Some(undertaking) = self.orders.undertakings.get_mut(&number) {
            undertaking.waiting += shards.len();
        }
        for shard in shards {
            let order = self.orders.number();
            self.orders.sent.insert(order, (number, shard));
            effects.push(Effect::Order { order, shard, what: what.clone() });
        }
    }

    /// A shard has answered.
    pub(crate) fn order_done(&mut self, now: Now, order: u64, outcome: Result<(), Refusal>, effects: &mut Vec<Effect>) {
        let Some((number, shard)) = self.orders.sent.remove(&order) else { return };
        let Some(undertaking) = self.orders.undertakings.get_mut(&number) else { return };
        undertaking.waiting -= 1;
        if let Err(refusal) = outcome {
            // A shard that stores nothing more does its part at the next start.
            let may_come = !matches!(refusal.kind, RefusalKind::StorageFailed | RefusalKind::OutcomeUnknown);
            if may_come && !matches!(undertaking.aim, Aim::Birth { .. }) {
                undertaking.again.push(shard);
            }
            undertaking.refusal.get_or_insert(refusal);
        }
        if undertaking.waiting == 0 {
            self.orders_answered(now, number, effects);
        }
    }

    /// All shards have answered.
    fn orders_answered(&mut self, now: Now, number: u64, effects: &mut Vec<Effect>) {
        let Some(mut undertaking) = self.orders.undertakings.remove(&number) else { return };
        match &mut undertaking.aim {
            Aim::Birth { origin, born } => {
                let (origin, born) = (*origin, born.clone());
                match undertaking.refusal {
                    None => self.commit_birth(origin, &born, effects),
                    Some(refusal) => {
                        self.undo_birth(&born, effects);
                        // Whatever that shard has of it will go: here nothing was begun.
                        let is_unknown = refusal.kind == RefusalKind::OutcomeUnknown;
                        let refusal = if is_unknown { storage_failed() } else { refusal };
                        effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) });
                    }
                }
                return;
            }
            Aim::Change { origin, incarnation } => {
                let first = PartitionRef { incarnation: *incarnation, partition: 0 };
                if let Some(to) = origin.take() {
                    match &undertaking.refusal {
                        None => self.stat(to, first, effects),
                        Some(refusal) => {
                            let reply = Reply::Refused(changed_in_part(refusal));
                            effects.push(Effect::Reply { to, reply });
                        }
                    }
                }
                if self.living(first).is_none() {
                    return;
                }
            }
            Aim::End { .. } => {}
        }
        if !undertaking.again.is_empty() {
            undertaking.refusal = None;
            undertaking.again_ms = Some(now.monotonic_ms + ORDER_RETRY_MS);
            self.orders.undertakings.insert(number, undertaking);
        }
    }

    /// Asks those again that could not do their part.
    pub(crate) fn order_again(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let is_due =
            |undertaking: &Undertaking| undertaking.again_ms.is_some_and(|again_ms| again_ms <= now.monotonic_ms);
        let due = self.orders.undertakings.iter_mut().filter(|(_, undertaking)| is_due(undertaking));
        let due: Vec<_> = due
            .map(|(number, undertaking)| {
                undertaking.again_ms = None;
                (*number, std::mem::take(&mut undertaking.again))
            })
            .collect();
        for (number, shards) in due {
            self.send_orders(number, shards, effects);
        }
    }

    /// Does this shard's part of what another one decided.
    pub(crate) fn take_order(&mut self, origin: Origin, order: Order, effects: &mut Vec<Effect>) {
        let outcome = match order {
            Order::Make(born) => self.make_part(origin, &born),
            Order::Drop { incarnation, name } => self.drop_part(origin, incarnation, name, effects),
            Order::Change { incarnation, config } => Ok(self.change_part(origin, incarnation, &config, effects)),
        };
        match outcome {
            Ok(true) => effects.push(Effect::Reply { to: origin, reply: Reply::Noted }),
            Ok(false) => {}
            Err(refusal) => effects.push(Effect::Reply { to: origin, reply: Reply::Refused(refusal) }),
        }
    }

    /// Makes this shard's part of a topic. Says whether it is done; if not, the log answers.
    fn make_part(&mut self, origin: Origin, born: &TopicCreated) -> Result<bool, Refusal> {
        self.check_room(born)?;
        let is_logged = born.config.storage == ringmain_model::Storage::Wal;
        if is_logged {
            let done = Awaiting::Reply { to: origin, reply: Reply::Noted };
            self.log_entry(&Entry::TopicCreated(born.clone()), done)?;
        }
        self.insert_topic(born);
        Ok(!is_logged)
    }

    /// Gives this shard's part of a topic other settings. Says whether it is done; if not, the log answers.
    fn change_part(
        &mut self,
        origin: Origin,
        incarnation: Incarnation,
        config: &TopicConfig,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let parts = self.partitions_of(incarnation);
        let topic = parts.first().and_then(|part| self.partitions.get(part));
        let topic = topic.filter(|topic| topic.is_logged() && !topic.is_ending);
        let change = topic.map(|topic| {
            let (name, partitions) = (topic.name.clone(), topic.partitions);
            Entry::TopicChanged(TopicChanged { incarnation, name, partitions, config: config.clone() })
        });
        self.apply_config(incarnation, config, effects);
        // Its replay is to know from when on messages are kept for a time. Should there be no room, a start still takes the settings
        // from the log of the shard that decides.
        let done = Awaiting::Reply { to: origin, reply: Reply::Noted };
        change.is_none_or(|change| self.log_entry(&change, done).is_err())
    }

    /// Lets go of this shard's part of a topic. Says whether it is done; if not, the log answers.
    fn drop_part(
        &mut self,
        origin: Origin,
        incarnation: Incarnation,
        name: TopicName,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, Refusal> {
        let parts = self.partitions_of(incarnation);
        let is_logged = parts.iter().any(|part| self.partitions.get(part).is_some_and(|topic| topic.is_logged()));
        self.begin_end(incarnation, effects);
        if is_logged {
            let entry = Entry::TopicDeleted { incarnation, name };
            self.log_entry(&entry, Awaiting::Drop { origin, incarnation })?;
        } else {
            self.end_topic(incarnation, effects);
        }
        Ok(!is_logged)
    }
}

fn changed_in_part(refusal: &Refusal) -> Refusal {
    let message = format!(
        "the change is stored, and does not hold in all partitions yet; it will, by itself, when their shards take it: {}",
        refusal.message
    );
    Refusal::new(RefusalKind::OutcomeUnknown, message)
}

/// What all shards found together: parts of topics that were never made or have ended go, and settings hold in all partitions. To
/// be called once, when all shards are open, before anybody is served.
pub fn reconcile(shards: &mut [OpenedShard]) {
    let mut living: HashMap<Incarnation, TopicConfig> = HashMap::new();
    for opened in shards.iter() {
        let firsts = opened.shard.partitions.iter().filter(|(partition, _)| partition.partition == 0);
        let several = firsts.filter(|(_, topic)| topic.partitions > 1);
        living.extend(several.map(|(partition, topic)| (partition.incarnation, topic.config.clone())));
    }
    // Where something is damaged nobody knows what is gone, and nothing goes.
    let is_whole = shards.iter().all(|opened| !opened.report.is_in_doubt);
    for opened in shards.iter_mut() {
        opened.reconcile(&living, is_whole);
    }
}

impl OpenedShard {
    fn reconcile(&mut self, living: &HashMap<Incarnation, TopicConfig>, is_whole: bool) {
        let (shard, effects) = (&mut self.shard, &mut self.effects);
        let parts = shard.partitions_in_order();
        let parts = parts.into_iter().filter(|(_, topic)| topic.partitions > 1);
        let mut parts: Vec<_> = parts.map(|(partition, topic)| (partition.incarnation, topic.name.clone())).collect();
        parts.dedup_by_key(|(incarnation, _)| *incarnation);
        for (incarnation, name) in parts {
            match living.get(&incarnation) {
                Some(config) => shard.take_config(incarnation, config, effects),
                None => {
                    self.report.orphans.push((name.clone(), is_whole));
                    shard.begin_end(incarnation, effects);
                    if is_whole {
                        // It asks itself, so that it is asked again when there is no room in its log.
                        shard.undertake(Aim::End { incarnation, name }, vec![shard.id], effects);
                    }
                }
            }
        }
    }
}

impl Shard {
    /// The settings of a topic are these: what this shard's log says may be older.
    fn take_config(&mut self, incarnation: Incarnation, config: &TopicConfig, effects: &mut Vec<Effect>) {
        let parts = self.partitions_of(incarnation);
        let is_other = |part: &PartitionRef| self.partitions.get(part).is_some_and(|topic| topic.config != *config);
        if parts.iter().any(is_other) {
            return self.apply_config(incarnation, config, effects);
        }
        for part in parts {
            self.retain(part, effects);
        }
    }
}
