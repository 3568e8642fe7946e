//! The seam between a core's loop and the protocols that it speaks: what a front is told, and what it may ask.

use bytes::Bytes;
use ringmain_engine::{Assignment, Nack, Now};
use ringmain_model::{Offset, ShardId, TopicName};
use ringmain_wal::RecordBatch;

use crate::connection::{Carried, Link};
use crate::core::Poisoned;
use crate::membership::MemberWord;
use crate::placement::PlacementTable;
use crate::request::{Answer, Join, Notice, Request, Subscription, TopicPlace};

/// A protocol on one core. Each connection has a session: a state machine that takes bytes and answers, and leaves through
/// [`Io`] what is to be sent and asked.
pub trait Front: Sized + 'static {
    /// What is remembered of one connection; small while it is idle.
    type Session;
    /// Encodings of one batch, made once on a core and shared by its subscribers.
    type Encoded: Default;

    /// A connection was accepted.
    fn open(&mut self, io: &mut Io<'_>) -> Self::Session;
    /// Bytes came; they are gone after the call.
    fn on_bytes(&mut self, session: &mut Self::Session, bytes: &[u8], io: &mut Io<'_>);
    /// The peer sends no more. It may still read.
    fn on_end_of_input(&mut self, session: &mut Self::Session, io: &mut Io<'_>);
    /// An answer to the request of that number.
    fn on_answer(&mut self, session: &mut Self::Session, request: u64, answer: Answer, io: &mut Io<'_>);
    /// News of the subscription of that number, or of a membership.
    fn on_notice(&mut self, session: &mut Self::Session, subscription: u32, notice: Notice, io: &mut Io<'_>);
    /// The next records of a subscription, in order, without a hole. Says up to where they were taken: to the batch's end, or
    /// less when the session has enough for now; then the rest comes when its output has left. It takes one record at least.
    fn on_batch(
        &mut self,
        session: &mut Self::Session,
        delivery: Delivery<'_, Self::Encoded>,
        io: &mut Io<'_>,
    ) -> Offset;
    /// Messages that the session's group gave it.
    fn on_assigned(&mut self, session: &mut Self::Session, topic: &TopicName, assignment: &Assignment, io: &mut Io<'_>);
    /// Output has left after [`Io::wake_when_drained`].
    fn on_drained(&mut self, session: &mut Self::Session, io: &mut Io<'_>);
    /// The deadline that was set has passed.
    fn on_timer(&mut self, session: &mut Self::Session, io: &mut Io<'_>);
    /// The broker goes down: finish what is in hand, then close.
    fn on_shutdown(&mut self, session: &mut Self::Session, io: &mut Io<'_>);
    /// The connection has ended, for whatever reason.
    fn on_close(&mut self, session: Self::Session);
}

/// Records for one subscriber.
#[derive(Debug)]
pub struct Delivery<'d, E> {
    /// The number that the session gave the subscription.
    pub subscription: u32,
    /// The batch that holds them.
    pub batch: &'d RecordBatch,
    /// First offset wanted: above the batch's base when the cursor stood inside it.
    pub from: Offset,
    /// The topic's name.
    pub topic: &'d TopicName,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// Encodings of the whole batch, shared on this core; `None` for a batch that was read for this cursor alone.
    pub encoded: Option<&'d mut E>,
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Close {
    /// Once all output is with the kernel.
    Flush,
    /// The same, then reading and throwing away for a bounded while, so that a client that is still sending reads the answer.
    Linger,
    /// Now, with a reset.
    Abort,
}

/// What a session can do during a call.
pub struct Io<'a> {
    pub(crate) now: Now,
    pub(crate) cores: u16,
    pub(crate) link: &'a mut Link,
    pub(crate) placement: &'a PlacementTable,
    pub(crate) poisoned: &'a Poisoned,
    pub(crate) actions: &'a mut Vec<Action>,
}

/// What a session asked during a call; carried out when the call returns.
#[derive(Debug)]
pub(crate) enum Action {
    Ask { request: u64, what: Request },
    Subscribe(Subscription),
    Join(Join),
    LeaveGroup,
    Say(u32, MemberWord),
    Unsubscribe(u32),
    UnsubscribeAll,
    GiveCredit,
    TakeBackPulls,
}

impl Io<'_> {
    /// The time of this turn.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }

    /// How many cores answer a [`Request::Report`].
    #[must_use]
    pub fn cores(&self) -> u16 {
        self.cores
    }

    /// Whether this core knows a topic of that name. It may go before a request reaches its owner.
    #[must_use]
    pub fn has_topic(&self, name: &TopicName) -> bool {
        self.placement.find(name).is_some()
    }

    /// Where a topic is that this core knows. It may go before a request reaches its owner.
    #[must_use]
    pub fn place_of(&self, name: &TopicName) -> Option<TopicPlace> {
        let placed = self.placement.find(name)?;
        Some(TopicPlace { incarnation: placed.incarnation, partitions: placed.partitions })
    }

    /// Shards of the broker that store nothing more because a write failed.
    pub fn poisoned_shards(&self) -> impl Iterator<Item = ShardId> {
        self.poisoned.shards()
    }

    /// Queues bytes that hold `messages` messages of a subscription, or of the connection's group in the partition of that number;
    /// they may be shared with other connections.
    pub fn send(&mut self, bytes: Bytes, subscription: u32, messages: u32) {
        self.link.output.push(bytes, Carried { subscription, messages });
    }

    /// The connection's own output buffer: what is appended here is sent after all that was queued before.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.link.output.tail()
    }

    /// Bytes that wait or are on their way to the kernel.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.link.output.bytes()
    }

    /// Asks the broker; the answer comes with the same number, never during this call.
    pub fn ask(&mut self, request: u64, what: Request) {
        self.actions.push(Action::Ask { request, what });
    }

    /// Starts a subscription; notices and batches follow, never during this call. They bear its `number`, which the session
    /// chooses and which no other subscription of the connection has. A connection has at most
    /// [`SUBSCRIPTIONS_PER_CONNECTION_MAX`](ringmain_model::limit::SUBSCRIPTIONS_PER_CONNECTION_MAX): one more is refused as busy.
    pub fn subscribe(&mut self, subscription: Subscription) {
        self.actions.push(Action::Subscribe(subscription));
    }

    /// Whether batches wait: a session that is not ready for any holds them from before it subscribes, and lets them come when
    /// all its subscriptions stand. Notices come all the same.
    pub fn hold_batches(&mut self, held: bool) {
        self.link.batches_held = held;
        if !held {
            self.actions.push(Action::GiveCredit);
        }
    }

    /// Makes the connection a member of a group; notices and assignments follow, never during this call.
    pub fn join(&mut self, join: Join) {
        self.actions.push(Action::Join(join));
    }

    /// Ends the connection's part in its group, in all partitions: nothing of it comes after this call.
    pub fn leave_group(&mut self) {
        self.actions.push(Action::LeaveGroup);
    }

    /// Acknowledges a message that the group gave in `epoch`, in the partition of that number.
    pub fn ack(&mut self, partition: u32, epoch: u64, offset: Offset) {
        self.actions.push(Action::Say(partition, MemberWord::Ack { epoch, offset }));
    }

    /// Gives a message back, to go out again after `delay_ms` milliseconds.
    pub fn nack(&mut self, partition: u32, epoch: u64, offset: Offset, delay_ms: u64) {
        self.actions.push(Action::Say(partition, MemberWord::Nack(Nack { epoch, offset, delay_ms })));
    }

    /// Changes how many messages of one partition the connection may hold unacknowledged.
    pub fn hold_at_most(&mut self, partition: u32, messages: u32) {
        self.actions.push(Action::Say(partition, MemberWord::InFlightMax(messages)));
    }

    /// Has the connection's fetches of a group that wait answered soon: with nothing, unless they were given something before.
    pub fn take_back_pulls(&mut self) {
        self.actions.push(Action::TakeBackPulls);
    }

    /// Ends the subscription of that number, if there is one: nothing of it comes after this call.
    pub fn unsubscribe(&mut self, number: u32) {
        self.actions.push(Action::Unsubscribe(number));
    }

    /// Ends all subscriptions of the connection.
    pub fn unsubscribe_all(&mut self) {
        self.actions.push(Action::UnsubscribeAll);
    }

    /// Has `on_timer` called at that time on the monotonic clock (milliseconds), instead of any earlier action.
    pub fn set_deadline(&mut self, monotonic_ms: Option<u64>) {
        self.link.deadline_ms = monotonic_ms.unwrap_or(u64::MAX);
    }

    /// Stops or resumes reading from the connection. What the kernel had already given still comes.
    pub fn want_input(&mut self, wanted: bool) {
        self.link.input_wanted = wanted;
    }

    /// Whether a peer that takes no byte for the write timeout is cut off; on unless a session says otherwise.
    pub fn limit_write_stall(&mut self, limited: bool) {
        self.link.stall_limited = limited;
    }

    /// Has `on_drained` called once less than half of what may wait for a connection's peer waits.
    pub fn wake_when_drained(&mut self) {
        self.link.wants_drained = true;
    }

    /// Ends the connection; the gentlest action of several gives way to the harshest.
    pub fn close(&mut self, how: Close) {
        self.link.closing = Some(self.link.closing.map_or(how, |earlier| earlier.max(how)));
    }
}
