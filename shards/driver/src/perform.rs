//! Carries out what shards decided and what cores say to each other, on the core that receives it.

use hashbrown::HashMap;
use ringmain_engine::{Command, Effect, Event, Origin, Reply};
use ringmain_model::{CoreId, Incarnation, ShardId};

use crate::connection::ConnectionKey;
use crate::core::State;
use crate::front::{Answer, Front};
use crate::lane::LaneItem;
use crate::report::{CoreReport, ShardStorage, TopicOnCore};
use crate::route::{AskerKind, WAITING_BIT};
use crate::storage::tell_news;

/// What this core's windows and memberships of a topic come to.
#[derive(Clone, Copy, Default)]
struct TopicSums {
    delivered: [u64; 2],
    dropped: u64,
    subscribers: [u64; 2],
}

impl<F: Front> State<F> {
    /// Performs the effects that the shard at `index` of this core left.
    pub(crate) fn perform(&mut self, index: usize) {
        let shard = self.shards[index].id();
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Reply { to, reply } => self.say(to.core, LaneItem::Reply { to, reply }),
                Effect::Assign { to, assignment } => self.say(to.core, LaneItem::Assign { to, assignment }),
                Effect::Tell { to, news } => self.say(to.core, LaneItem::Tell { to, news }),
                Effect::Push { core, batch } if core == self.settings.own => {
                    self.local.push_back(LaneItem::Push { batch });
                }
                Effect::Push { core, batch } => {
                    self.counters.lane_holes += u64::from(self.lanes.push(core, batch));
                }
                Effect::File { operation, effect } => self.file_effects.push((index, operation, effect)),
                Effect::DeadLetter { letter, to, message } => self.send_letter(index, letter, to, message),
                Effect::Order { order, shard, what } => self.send_order(index, order, shard, what),
                Effect::StorageNews(news) => tell_news(shard, &news),
                Effect::Place { change, placement } => {
                    for core in (0..self.settings.cores).map(CoreId) {
                        self.say(core, LaneItem::Place { shard, change, placement: placement.clone() });
                    }
                }
            }
        }
        self.effects = effects;
    }

    fn say(&mut self, core: CoreId, item: LaneItem) {
        if core == self.settings.own {
            self.local.push_back(item);
        } else {
            self.lanes.say(core, item);
        }
    }

    /// Takes one thing that `from` said.
    pub(crate) fn take_item(&mut self, from: CoreId, item: LaneItem) {
        match item {
            LaneItem::Ask { shard, origin, command } => self.give_shard(shard, Event::Asked { origin, command }),
            LaneItem::Placed { shard, change } => self.give_shard(shard, Event::Placed { change }),
            LaneItem::Reply { to, reply } => self.take_reply(to, reply),
            LaneItem::AskReport { origin } => {
                let report = Box::new(self.report());
                self.say(origin.core, LaneItem::Report { to: origin, report });
            }
            LaneItem::Report { to, report } => self.answer(to, Answer::Report(report)),
            LaneItem::Assign { to, assignment } => {
                if let AskerKind::Membership(membership) = AskerKind::of(to) {
                    self.take_assignment(membership, &assignment);
                }
            }
            LaneItem::Tell { to, news } => {
                if let AskerKind::Membership(membership) = AskerKind::of(to) {
                    self.take_news(membership, news);
                }
            }
            LaneItem::Push { batch } => self.take_push(batch),
            LaneItem::Hole { partition, high_water } => self.take_hole(partition, high_water),
            LaneItem::Place { shard, change, placement } => {
                self.place(placement);
                self.say(from, LaneItem::Placed { shard, change });
            }
        }
    }

    fn give_shard(&mut self, shard: ShardId, event: Event) {
        // This core runs the shards own, own + cores, own + 2 cores, …: the n-th of them stands at n.
        self.give_shard_at(usize::from(shard.0 / self.settings.cores), event);
    }

    /// Gives an event to the shard at `index` of this core.
    pub(crate) fn give_shard_at(&mut self, index: usize, event: Event) {
        if let Some(shard) = self.shards.get_mut(index) {
            shard.handle(self.now, event, &mut self.effects);
            self.owes_turn_end = true;
            self.perform(index);
        }
    }

    fn take_reply(&mut self, to: Origin, reply: Reply) {
        match AskerKind::of(to) {
            AskerKind::Connection => self.answer(to, Answer::Reply(reply)),
            AskerKind::Cursor(cursor) => self.take_page(cursor, reply),
            AskerKind::Window(window) => self.take_interested(window, &reply),
            AskerKind::Membership(membership) => self.take_membership_reply(membership, reply),
            AskerKind::Letter(letter) => self.take_letter_reply(letter, &reply),
            AskerKind::Order(order) => self.take_order_reply(order, reply),
        }
    }

    fn answer(&mut self, to: Origin, answer: Answer) {
        let to = Origin { request: to.request & !WAITING_BIT, ..to };
        let key = self.connections.by_asker(to.asker);
        let is_open =
            key.and_then(|key| self.connections.get_mut(key)).is_some_and(|connection| connection.link.is_open());
        // Whatever a fetch of a group came to, it waits no more.
        if let Answer::Reply(Reply::Pulled { .. } | Reply::Refused(_)) = &answer
            && let Some(connection) = key.and_then(|key| self.connections.get_mut(key))
        {
            connection.link.pulls.retain(|pull| pull.origin.request & !WAITING_BIT != to.request);
        }
        if let Answer::Reply(pulled @ Reply::Pulled { .. }) = answer {
            if !is_open {
                return self.return_pulled(to, pulled);
            }
            return self.answer_session(key, to, Answer::Reply(pulled));
        }
        self.answer_session(key, to, answer);
    }

    fn answer_session(&mut self, key: Option<ConnectionKey>, to: Origin, answer: Answer) {
        if let Some(key) = key {
            self.call(key, |front, session, io| front.on_answer(session, to.request, answer, io));
        }
    }

    /// What this core has to tell of itself.
    fn report(&mut self) -> CoreReport {
        let asker = Origin { core: self.settings.own, asker: 0, request: 0 };
        let mut topics = Vec::new();
        for shard in &mut self.shards {
            let mut effects = Vec::new();
            shard.handle(self.now, Event::Asked { origin: asker, command: Command::List }, &mut effects);
            for effect in effects {
                if let Effect::Reply { reply: Reply::Listed(listed), .. } = effect {
                    topics.extend(listed);
                }
            }
        }
        let mut sums: HashMap<Incarnation, TopicSums> = HashMap::new();
        // A member is one in all partitions.
        for membership in self.memberships.values().filter(|membership| membership.is_in_first()) {
            sums.entry(membership.incarnation()).or_default().subscribers[membership.protocol.index()] += 1;
        }
        for window in self.windows.values() {
            let sum = sums.entry(window.partition.incarnation).or_default();
            for at in 0..2 {
                sum.delivered[at] += window.delivered[at];
                sum.subscribers[at] += u64::from(window.subscribers[at]);
            }
            sum.dropped += window.dropped;
        }
        let on_core = self.placement.iter().map(|(name, placed)| {
            let TopicSums { delivered, dropped, subscribers } =
                sums.get(&placed.incarnation).copied().unwrap_or_default();
            TopicOnCore {
                name: name.clone(),
                delivered: [0, 1].map(|at| placed.delivered[at] + delivered[at]),
                dropped: placed.dropped + dropped,
                subscribers,
            }
        });
        let on_core = on_core.collect();
        self.counters.connections_open = self.connections.len() as u64;
        let stored = self.shards.iter().filter(|_| self.stores);
        let storage = stored
            .map(|shard| ShardStorage { shard: shard.id(), state: shard.storage_state(), stats: shard.storage_stats() })
            .collect();
        CoreReport { core: self.settings.own, counters: self.counters, topics, on_core, storage }
    }
}
