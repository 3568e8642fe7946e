//! Where a session's wishes go: the owner's core, through a call or a lane; full lanes answer at once. On the asking core.

use ringmain_engine::{Command, GroupAction, Origin, Reply};
use ringmain_model::{CoreId, GroupName, Incarnation, PartitionRef, Refusal, ShardId, TopicName};
use slotmap::{Key, KeyData};

use crate::connection::{ConnectionKey, PullAsked};
use crate::core::State;
use crate::front::{Action, Front, Io};
use crate::lane::{LaneFull, LaneItem};
use crate::letters::LetterKey;
use crate::membership::MembershipKey;
use crate::orders::OrderKey;
use crate::placement::Placed;
use crate::request::Request;
use crate::window::{CursorKey, WindowKey};

/// The highest six bits of a request number say who on a core asked; sessions' numbers stay below.
const CURSOR_BIT: u64 = 1 << 63;
const WINDOW_BIT: u64 = 1 << 62;
pub(crate) const MEMBERSHIP_BIT: u64 = 1 << 61;
/// Marks a request that may wait long for its answer: such requests have places of their own in a lane.
pub(crate) const WAITING_BIT: u64 = 1 << 60;
pub(crate) const LETTER_BIT: u64 = 1 << 59;
pub(crate) const ORDER_BIT: u64 = 1 << 58;

/// The numbers that a session gives its requests are below.
pub const REQUEST_NUMBERS: u64 = ORDER_BIT;

/// Who on a core asked.
pub(crate) enum AskerKind {
    Connection,
    Cursor(CursorKey),
    Window(WindowKey),
    Membership(MembershipKey),
    Letter(LetterKey),
    Order(OrderKey),
}

impl AskerKind {
    pub(crate) fn of(origin: Origin) -> Self {
        if origin.request & CURSOR_BIT != 0 {
            AskerKind::Cursor(CursorKey::from(KeyData::from_ffi(origin.asker)))
        } else if origin.request & WINDOW_BIT != 0 {
            AskerKind::Window(WindowKey::from(KeyData::from_ffi(origin.asker)))
        } else if origin.request & MEMBERSHIP_BIT != 0 {
            AskerKind::Membership(MembershipKey::from(KeyData::from_ffi(origin.asker)))
        } else if origin.request & LETTER_BIT != 0 {
            AskerKind::Letter(LetterKey::from(KeyData::from_ffi(origin.asker)))
        } else if origin.request & ORDER_BIT != 0 {
            AskerKind::Order(OrderKey::from(KeyData::from_ffi(origin.asker)))
        } else {
            AskerKind::Connection
        }
    }
}

impl<F: Front> State<F> {
    pub(crate) fn cursor_origin(&self, cursor: CursorKey) -> Origin {
        Origin { core: self.settings.own, asker: cursor.data().as_ffi(), request: CURSOR_BIT }
    }

    pub(crate) fn window_origin(&self, window: WindowKey) -> Origin {
        Origin { core: self.settings.own, asker: window.data().as_ffi(), request: WINDOW_BIT }
    }

    /// Calls the front for a connection that is open, and carries out what its session wished.
    pub(crate) fn call(&mut self, key: ConnectionKey, call: impl FnOnce(&mut F, &mut F::Session, &mut Io<'_>)) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(session) = connection.session.as_mut().filter(|_| connection.link.is_open()) else { return };
        let (now, cores) = (self.now, self.settings.cores);
        let mut io = Io {
            now,
            cores,
            link: &mut connection.link,
            placement: &self.placement,
            poisoned: &self.poisoned,
            actions: &mut self.actions,
        };
        call(&mut self.front, session, &mut io);
        self.after_call(key);
    }

    /// Carries out what a call left behind.
    pub(crate) fn after_call(&mut self, key: ConnectionKey) {
        self.mark_dirty(key);
        if self.actions.is_empty() {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Ask { request, what } => self.ask(key, request, what),
                Action::Subscribe(subscription) => self.subscribe(key, subscription),
                Action::Unsubscribe(number) => self.unsubscribe_number(key, number),
                Action::UnsubscribeAll => self.unsubscribe_all(key),
                Action::GiveCredit => self.give_credit(key),
                Action::TakeBackPulls => self.take_back_pulls(key),
                Action::Join(join) => self.join(key, join),
                Action::LeaveGroup => self.leave_group(key),
                Action::Say(partition, word) => self.note_progress(key, partition, |progress| word.note(progress)),
            }
        }
        self.actions = actions;
    }

    pub(crate) fn mark_dirty(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.link.in_dirty_list, true)
        {
            self.dirty.push(key);
        }
    }

    fn ask(&mut self, key: ConnectionKey, request: u64, what: Request) {
        self.tell_before_asking(key);
        let origin = Origin { core: self.settings.own, asker: key.asker(), request };
        let sent = match what {
            Request::Create { name, partitions, config } => {
                let shard = ShardId::initial(name.as_str(), self.settings.shards);
                let incarnation = draw_incarnation();
                self.send(shard, origin, Command::Create { name, partitions, config, incarnation })
            }
            Request::Delete { name } => self.ask_owner(origin, &name.clone(), 0, |_| Command::Delete { name }),
            Request::Change { name, patch } => self
                .ask_owner(origin, &name, 0, |partition| Command::Change { incarnation: partition.incarnation, patch }),
            Request::PublishAll { name, partition, messages, answer } => {
                self.ask_owner(origin, &name, partition, |partition| Command::PublishAll {
                    partition,
                    messages,
                    answer,
                })
            }
            Request::Stat { name, partition } => {
                self.ask_owner(origin, &name, partition, |partition| Command::Stat { partition })
            }
            Request::Publish { name, partition, message, answer } => {
                self.ask_owner(origin, &name, partition, |partition| Command::Publish { partition, message, answer })
            }
            Request::Fetch { name, partition, from, bytes_max, records_max } => {
                self.ask_owner(origin, &name, partition, |partition| Command::Read {
                    partition,
                    from,
                    bytes_max,
                    records_max,
                    following: false,
                })
            }
            Request::Groups { topic, partition } => {
                self.ask_owner(origin, &topic, partition, |partition| Command::Groups { partition })
            }
            Request::Group { topic, partition, group, action: action @ GroupAction::Pull { .. } } => {
                self.ask_pull(origin, key, &topic, partition, group, action)
            }
            Request::Group { topic, partition, group, mut action } => {
                if let GroupAction::Ack { by, .. } = &mut action {
                    *by = self.membership_of(key, partition).map(|membership| self.membership_origin(membership));
                }
                self.ask_owner(origin, &topic, partition, |partition| Command::Group { partition, group, action })
            }
            Request::Report { after, topics_max } => self.ask_reports(origin, after, topics_max),
        };
        if let Err(LaneFull) = sent {
            self.counters.lane_busy += 1;
            self.refuse(origin, Refusal::busy("the topic's core has as many requests waiting as it may"));
        }
    }

    pub(crate) fn refuse(&mut self, to: Origin, refusal: Refusal) {
        self.local.push_back(LaneItem::Reply { to, reply: Reply::Refused(refusal) });
    }

    fn ask_owner(
        &mut self,
        origin: Origin,
        name: &TopicName,
        number: u32,
        command: impl FnOnce(PartitionRef) -> Command,
    ) -> Result<(), LaneFull> {
        match self.place_of(name, number) {
            Ok((shard, partition)) => self.send(shard, origin, command(partition)),
            Err(refusal) => {
                self.refuse(origin, refusal);
                Ok(())
            }
        }
    }

    /// A partition by its topic and number, and its shard.
    fn place_of(&self, name: &TopicName, number: u32) -> Result<(ShardId, PartitionRef), Refusal> {
        let placed = self.placement.find(name).ok_or_else(|| Refusal::topic_not_found(name.as_str()))?;
        Ok((placed.shard.of_partition(number, self.settings.shards), placed.partition(number)?))
    }

    /// Sends a fetch of a group, and remembers it while it waits: what it gets must not be lost with its connection.
    fn ask_pull(
        &mut self,
        origin: Origin,
        key: ConnectionKey,
        topic: &TopicName,
        number: u32,
        group: GroupName,
        action: GroupAction,
    ) -> Result<(), LaneFull> {
        let waits = matches!(action, GroupAction::Pull { wait_ms, .. } if wait_ms > 0);
        let origin = Origin { request: origin.request | if waits { WAITING_BIT } else { 0 }, ..origin };
        if let Ok((shard, partition)) = self.place_of(topic, number)
            && let Some(connection) = self.connections.get_mut(key)
        {
            connection.link.pulls.push(PullAsked { origin, shard, partition, group: group.clone() });
        }
        self.ask_owner(origin, topic, number, |partition| Command::Group { partition, group, action })
    }

    /// The connection has gone: its fetch of a group is taken back. If the lane is full the messages that it gets come back
    /// when they find nobody.
    pub(crate) fn abandon_pulls(&mut self, key: ConnectionKey) {
        self.take_back_pulls(key);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.link.pulls.clear();
        }
    }

    /// Has the owners answer a fetch of a group that waits: with nothing, if it still does.
    pub(crate) fn take_back_pulls(&mut self, key: ConnectionKey) {
        let pulls = self.connections.get_mut(key).map(|connection| connection.link.pulls.clone());
        for PullAsked { origin, shard, partition, group } in pulls.unwrap_or_default() {
            let _ = self.send(shard, origin, Command::Group { partition, group, action: GroupAction::Abandon });
        }
    }

    /// Gives back what a fetch got whose connection has gone. If the lane is full, `ack_wait` does it.
    pub(crate) fn return_pulled(&mut self, to: Origin, pulled: Reply) {
        let Reply::Pulled { partition, group, epoch, assignments } = pulled else { return };
        let offsets: Vec<_> =
            assignments.iter().flat_map(|given| given.records.iter().map(|record| record.offset)).collect();
        let is_it = |placed: &Placed| placed.incarnation == partition.incarnation;
        let placed = self.placement.iter().map(|(_, placed)| placed).find(|placed| is_it(placed));
        let shard = placed.map(|placed| placed.shard.of_partition(partition.partition, self.settings.shards));
        if let Some(shard) = shard.filter(|_| !offsets.is_empty()) {
            let action = GroupAction::Nack { epoch: Some(epoch), offsets, delay_ms: 0 };
            let _ = self.send(shard, to, Command::Group { partition, group, action });
        }
    }

    /// Sends a command to the core that runs `shard`.
    pub(crate) fn send(&mut self, shard: ShardId, origin: Origin, command: Command) -> Result<(), LaneFull> {
        let core = shard.core(self.settings.cores);
        let item = LaneItem::Ask { shard, origin, command };
        if core == self.settings.own {
            self.local.push_back(item);
            return Ok(());
        }
        self.lanes.request(core, item)
    }

    /// Which topics are reported is decided here, so that all cores report the same ones.
    fn ask_reports(&mut self, origin: Origin, after: Option<Box<str>>, topics_max: usize) -> Result<(), LaneFull> {
        let cores = (0..self.settings.cores).map(CoreId);
        if !cores.clone().all(|core| self.lanes.has_room(core)) {
            return Err(LaneFull);
        }
        let names = self.placement.page(after, topics_max);
        for core in cores {
            let item = LaneItem::AskReport { origin, names: names.clone() };
            if core == self.settings.own {
                self.local.push_back(item);
            } else {
                self.lanes.request(core, item)?;
            }
        }
        Ok(())
    }
}

/// Draws a topic's life. Without randomness from the system there is no safe way on: the process ends with the reason.
fn draw_incarnation() -> Incarnation {
    match getrandom::u64() {
        Ok(bits) => Incarnation(bits),
        Err(error) => {
            tracing::error!(%error, "the system gives no random numbers");
            std::process::abort()
        }
    }
}
