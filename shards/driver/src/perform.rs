//! Carries out what shards decided and what cores say to each other, on the core that receives it.

use hashbrown::HashMap;
use ringmain_engine::{Command, Effect, Event, Origin, Reply, TopicStats};
use ringmain_model::{CoreId, PartitionRef, ShardId};

use crate::connection::ConnectionKey;
use crate::core::State;
use crate::front::Front;
use crate::lane::LaneItem;
use crate::report::{CoreReport, NameRange, ShardStorage, TopicOnCore};
use crate::request::Answer;
use crate::route::{AskerKind, WAITING_BIT};
use crate::storage::tell_news;

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
            LaneItem::AskReport { origin, names } => self.reports_owed.push_back((origin, names)),
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
        self.give_shard_at(self.index_of(shard), event);
    }

    /// This core runs the shards own, own + cores, own + 2 cores, …: the n-th of them stands at n.
    fn index_of(&self, shard: ShardId) -> usize {
        usize::from(shard.0 / self.settings.cores)
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

    /// Makes the oldest report that was asked for: one a turn, so that long lists let others go first.
    pub(crate) fn make_report(&mut self) {
        if let Some((to, names)) = self.reports_owed.pop_front() {
            let report = Box::new(self.report(&names));
            self.say(to.core, LaneItem::Report { to, report });
        }
    }

    /// What this core has to tell of itself and of some topics.
    fn report(&mut self, names: &NameRange) -> CoreReport {
        let mut on_core = Vec::new();
        let mut places = HashMap::new();
        let mut own: Vec<Vec<PartitionRef>> = vec![Vec::new(); self.shards.len()];
        for (name, placed) in self.placement.range(names) {
            places.insert(placed.incarnation, on_core.len());
            let (delivered, dropped) = (placed.delivered, placed.dropped);
            on_core.push(TopicOnCore { name: name.clone(), delivered, dropped, subscribers: [0; 2] });
            for partition in 0..placed.partitions {
                let shard = placed.shard.of_partition(partition, self.settings.shards);
                if shard.core(self.settings.cores) == self.settings.own
                    && let Some(own) = own.get_mut(self.index_of(shard))
                {
                    own.push(PartitionRef { incarnation: placed.incarnation, partition });
                }
            }
        }
        let mut subscribers = [0; 2];
        // A member is one in all partitions.
        for membership in self.memberships.values().filter(|membership| membership.is_in_first()) {
            subscribers[membership.protocol.index()] += 1;
            if let Some(at) = places.get(&membership.incarnation()) {
                on_core[*at].subscribers[membership.protocol.index()] += 1;
            }
        }
        for window in self.windows.values() {
            for (sum, of_window) in subscribers.iter_mut().zip(window.subscribers) {
                *sum += u64::from(of_window);
            }
            let Some(at) = places.get(&window.partition.incarnation) else { continue };
            let topic = &mut on_core[*at];
            for protocol in 0..2 {
                topic.delivered[protocol] += window.delivered[protocol];
                topic.subscribers[protocol] += u64::from(window.subscribers[protocol]);
            }
            topic.dropped += window.dropped;
        }
        let topics = self.list_own(own);
        self.counters.connections_open = self.connections.len() as u64;
        let stored = self.shards.iter().filter(|_| self.stores);
        let storage = stored
            .map(|shard| ShardStorage { shard: shard.id(), state: shard.storage_state(), stats: shard.storage_stats() })
            .collect();
        CoreReport {
            core: self.settings.own,
            counters: self.counters,
            topics_known: self.placement.count(),
            subscribers,
            totals: self.shards.iter().map(|shard| (shard.id(), shard.totals())).collect(),
            topics,
            on_core,
            until: names.until.clone(),
            storage,
        }
    }

    /// How partitions stand, given for each shard of this core.
    fn list_own(&mut self, own: Vec<Vec<PartitionRef>>) -> Vec<TopicStats> {
        let asker = Origin { core: self.settings.own, asker: 0, request: 0 };
        let mut topics = Vec::new();
        for (shard, partitions) in self.shards.iter_mut().zip(own) {
            let mut effects = Vec::new();
            let command = Command::List { partitions };
            shard.handle(self.now, Event::Asked { origin: asker, command }, &mut effects);
            for effect in effects {
                if let Effect::Reply { reply: Reply::Listed(listed), .. } = effect {
                    topics.extend(listed);
                }
            }
        }
        topics
    }
}
