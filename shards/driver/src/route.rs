//! Where a session's wishes go: the owner's core, through a call or a lane; full lanes answer at once. On the asking core.

use ringmain_engine::{Command, GroupAction as GroupWish, Origin, Reply};
use ringmain_model::{CoreId, GroupName, Incarnation, Refusal, ShardId, TopicName};
use slotmap::{Key, KeyData};

use crate::connection::{ConnectionKey, PullAsked};
use crate::core::State;
use crate::front::{Action, Front, Io, Request};
use crate::lane::{LaneFull, LaneItem};
use crate::letters::LetterKey;
use crate::membership::MembershipKey;
use crate::placement::Placed;
use crate::window::{CursorKey, WindowKey};

/// The highest five bits of a request number say who on a core asked; sessions' numbers stay below.
const CURSOR_BIT: u64 = 1 << 63;
const WINDOW_BIT: u64 = 1 << 62;
pub(crate) const MEMBERSHIP_BIT: u64 = 1 << 61;
/// Marks a request that may wait long for its answer: such requests have places of their own in a lane.
pub(crate) const WAITING_BIT: u64 = 1 << 60;
pub(crate) const LETTER_BIT: u64 = 1 << 59;

/// Who on a core asked.
pub(crate) enum AskerKind {
    Connection,
    Cursor(CursorKey),
    Window(WindowKey),
    Membership(MembershipKey),
    Letter(LetterKey),
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
                Action::Join(join) => self.join(key, join),
                Action::Say(word) => self.note_progress(key, |progress| word.note(progress)),
            }
        }
        self.actions = actions;
    }

    fn mark_dirty(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.link.in_dirty_list, true)
        {
            self.dirty.push(key);
        }
    }

    fn ask(&mut self, key: ConnectionKey, request: u64, what: Request) {
        self.tell_before_asking(key);
        let origin = Origin { core: self.settings.own, asker: key.asker(), request };
        let sent =
            match what {
                Request::Create { name, config } => {
                    let shard = ShardId::initial(name.as_str(), self.settings.shards);
                    let incarnation = draw_incarnation();
                    self.send(shard, origin, Command::Create { name, config, incarnation })
                }
                Request::Delete { name } => self.ask_owner(origin, &name.clone(), |_| Command::Delete { name }),
                Request::Change { name, patch } => {
                    self.ask_owner(origin, &name, |placed| Command::Change { incarnation: placed.incarnation, patch })
                }
                Request::PublishAll { name, messages, answer } => self.ask_owner(origin, &name, |placed| {
                    Command::PublishAll { partition: placed.partition(), messages, answer }
                }),
                Request::Stat { name } => {
                    self.ask_owner(origin, &name, |placed| Command::Stat { incarnation: placed.incarnation })
                }
                Request::Publish { name, message, answer } => self.ask_owner(origin, &name, |placed| {
                    Command::Publish { partition: placed.partition(), message, answer }
                }),
                Request::Fetch { name, from, bytes_max, records_max } => self.ask_owner(origin, &name, |placed| {
                    Command::Read { partition: placed.partition(), from, bytes_max, records_max, following: false }
                }),
                Request::Groups { topic } => {
                    self.ask_owner(origin, &topic, |placed| Command::Groups { partition: placed.partition() })
                }
                Request::Group { topic, group, wish: wish @ GroupWish::Pull { .. } } => {
                    self.ask_pull(origin, key, &topic, group, wish)
                }
                Request::Group { topic, group, wish } => self.ask_owner(origin, &topic, |placed| Command::Group {
                    partition: placed.partition(),
                    group,
                    action: wish,
                }),
                Request::Report => self.ask_reports(origin),
            };
        if let Err(LaneFull) = sent {
            self.counters.lane_busy += 1;
            self.refuse(origin, Refusal::busy("the topic's core has as many requests waiting as it may"));
        }
    }

    fn refuse(&mut self, to: Origin, refusal: Refusal) {
        self.local.push_back(LaneItem::Reply { to, reply: Reply::Refused(refusal) });
    }

    fn ask_owner(
        &mut self,
        origin: Origin,
        name: &TopicName,
        command: impl FnOnce(&Placed) -> Command,
    ) -> Result<(), LaneFull> {
        let Some(placed) = self.placement.find(name) else {
            self.refuse(origin, Refusal::topic_not_found(name.as_str()));
            return Ok(());
        };
        let (shard, command) = (placed.shard, command(placed));
        self.send(shard, origin, command)
    }

    /// Sends a fetch of a group, and remembers it while it waits: what it gets must not be lost with its connection.
    fn ask_pull(
        &mut self,
        origin: Origin,
        key: ConnectionKey,
        topic: &TopicName,
        group: GroupName,
        wish: GroupWish,
    ) -> Result<(), LaneFull> {
        let waits = matches!(wish, GroupWish::Pull { wait_ms, .. } if wait_ms > 0);
        let origin = Origin { request: origin.request | if waits { WAITING_BIT } else { 0 }, ..origin };
        if let Some(placed) = self.placement.find(topic)
            && let Some(connection) = self.connections.get_mut(key)
        {
            let (shard, partition) = (placed.shard, placed.partition());
            connection.link.pull = Some(Box::new(PullAsked { origin, shard, partition, group: group.clone() }));
        }
        self.ask_owner(origin, topic, |placed| Command::Group { partition: placed.partition(), group, action: wish })
    }

    /// The connection has gone: its fetch of a group is taken back. If the lane is full the messages that it gets come back
    /// when they find nobody.
    pub(crate) fn abandon_pull(&mut self, key: ConnectionKey) {
        self.take_back_pull(key);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.link.pull = None;
        }
    }

    /// Has the owner answer a fetch of a group that waits: with nothing, if it still does.
    pub(crate) fn take_back_pull(&mut self, key: ConnectionKey) {
        let pull = self.connections.get_mut(key).and_then(|connection| connection.link.pull.clone());
        let Some(pull) = pull else { return };
        let PullAsked { origin, shard, partition, group } = *pull;
        let _ = self.send(shard, origin, Command::Group { partition, group, action: GroupWish::Abandon });
    }

    /// Gives back what a fetch got whose connection has gone. If the lane is full, `ack_wait` does it.
    pub(crate) fn return_pulled(&mut self, to: Origin, pulled: Reply) {
        let Reply::Pulled { partition, group, epoch, assignments } = pulled else { return };
        let offsets: Vec<_> =
            assignments.iter().flat_map(|given| given.records.iter().map(|record| record.offset)).collect();
        let shard =
            self.placement.iter().find(|(_, placed)| placed.partition() == partition).map(|(_, placed)| placed.shard);
        if let Some(shard) = shard.filter(|_| !offsets.is_empty()) {
            let action = GroupWish::Nack { epoch: Some(epoch), offsets, delay_ms: 0 };
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

    fn ask_reports(&mut self, origin: Origin) -> Result<(), LaneFull> {
        let cores = (0..self.settings.cores).map(CoreId);
        if !cores.clone().all(|core| self.lanes.has_room(core)) {
            return Err(LaneFull);
        }
        for core in cores {
            if core == self.settings.own {
                self.local.push_back(LaneItem::AskReport { origin });
            } else {
                self.lanes.request(core, LaneItem::AskReport { origin })?;
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
