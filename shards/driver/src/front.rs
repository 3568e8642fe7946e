//! The seam between a core's loop and the protocols that it speaks: what a front is told, and what it may ask.

use bytes::Bytes;
pub use ringmain_engine::{AnswerWhen, GroupAction as GroupWish};
use ringmain_engine::{Assignment, Nack, Now, Reply};
use ringmain_model::{
    GroupName, HighWaterMark, Incarnation, Message, Offset, PartitionRef, Position, Refusal, ShardId, TopicConfig,
    TopicName, TopicPatch,
};
use ringmain_wal::RecordBatch;

use crate::connection::{Carried, Link};
use crate::core::Poisoned;
use crate::membership::MemberWord;
use crate::placement::PlacementTable;
use crate::report::CoreReport;

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

/// What a session may ask of the broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Make a topic.
    Create {
        /// Its name.
        name: TopicName,
        /// How many partitions it has, at least 1.
        partitions: u32,
        /// Its settings.
        config: TopicConfig,
    },
    /// End a topic's life.
    Delete {
        /// Its name.
        name: TopicName,
    },
    /// Change a topic's settings.
    Change {
        /// Its name.
        name: TopicName,
        /// What changes.
        patch: TopicPatch,
    },
    /// Store messages, all or none.
    PublishAll {
        /// The topic's name.
        name: TopicName,
        /// The number of the partition.
        partition: u32,
        /// The messages, in order, at least one.
        messages: Vec<Message>,
        /// When the answer is wanted.
        answer: AnswerWhen,
    },
    /// How a partition of a topic stands.
    Stat {
        /// The topic's name.
        name: TopicName,
        /// The number of the partition.
        partition: u32,
    },
    /// How the groups of a partition stand.
    Groups {
        /// The topic's name.
        topic: TopicName,
        /// The number of the partition.
        partition: u32,
    },
    /// Do something with a group without being a member.
    Group {
        /// The topic's name.
        topic: TopicName,
        /// The number of the partition.
        partition: u32,
        /// The group's name.
        group: GroupName,
        /// What.
        wish: GroupWish,
    },
    /// How all cores stand, and the next topics by name: one [`Answer::Report`] per core, all of the same topics.
    Report {
        /// Names up to this text were seen; it need not be one. `None` begins with the first.
        after: Option<Box<str>>,
        /// At most about that many topics, and not more than a turn bears.
        topics_max: usize,
    },
    /// Store a message.
    Publish {
        /// The topic's name.
        name: TopicName,
        /// The number of the partition.
        partition: u32,
        /// The message.
        message: Message,
        /// When the answer is wanted.
        answer: AnswerWhen,
    },
    /// Read a page.
    Fetch {
        /// The topic's name.
        name: TopicName,
        /// The number of the partition.
        partition: u32,
        /// First offset wanted.
        from: Offset,
        /// At most that many bytes, and at least one batch.
        bytes_max: usize,
        /// Stop at the batch that reaches that many records.
        records_max: u64,
    },
}

/// An answer.
#[derive(Debug)]
pub enum Answer {
    /// The only answer to the request.
    Reply(Reply),
    /// One core's part of a [`Request::Report`].
    Report(Box<CoreReport>),
}

/// Where a subscription starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartAt {
    /// With what is published from now on.
    Tail,
    /// At an offset.
    Offset(Offset),
    /// Where a resume token says.
    Position(Position),
    /// At the earliest message, told as a gap: the client brought a token that nobody here can read.
    Lost,
}

/// What a reader asked for that is not where it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requested {
    /// An offset, perhaps of another life of the topic.
    Offset(Offset),
    /// Something that could not be read.
    Unreadable,
}

/// Through which protocol a subscriber reads: a label of the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Server-sent events.
    Sse,
    /// WebSocket.
    WebSocket,
    /// A fetch that waits; it is no subscriber in the metrics.
    Fetch,
}

impl Protocol {
    /// Its place in counts by protocol: SSE, then WebSocket. A waiting fetch is counted nowhere and shares SSE's.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self == Protocol::WebSocket)
    }

    /// Counts of this protocol alone.
    pub(crate) fn counts(self, messages: u64) -> [u64; 2] {
        let mut counts = [0; 2];
        counts[self.index()] = messages;
        counts
    }
}

/// Why a subscription ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The topic was deleted.
    TopicDeleted,
    /// The group was deleted.
    GroupDeleted,
    /// The reader was too slow, and asked to be cut off then.
    TooSlow,
}

/// What happens to a subscriber that followed and fell behind its core's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SlowReader {
    /// It catches up from the log.
    #[default]
    Lag,
    /// It goes on at the end; what it missed is told as a gap and counted.
    Skip,
    /// Its subscription ends.
    Close,
}

/// A subscription to one partition that is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscription {
    /// By what the session knows it.
    pub number: u32,
    /// The topic's name.
    pub name: TopicName,
    /// The number of the partition.
    pub partition: u32,
    /// Where it starts.
    pub start: StartAt,
    /// Through which protocol.
    pub protocol: Protocol,
    /// Whether it counts as a subscriber: of the partitions of a topic that a connection reads, one does.
    pub counts: bool,
    /// What happens to it when it falls behind.
    pub slow: SlowReader,
}

/// A membership that is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The topic.
    pub topic: TopicName,
    /// The number of the partition: a connection joins its group in each.
    pub partition: u32,
    /// The group.
    pub group: GroupName,
    /// Where the group starts if it is not there yet; its end when `None`.
    pub start: Option<Offset>,
    /// Messages that the member may hold unacknowledged.
    pub in_flight_max: u32,
    /// Through which protocol. An SSE member acknowledges by sending.
    pub protocol: Protocol,
    /// The messages of each partition are to go to one member at a time, in order.
    pub is_ordered: bool,
}

/// What a core knows of where a topic is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicPlace {
    /// The topic's life.
    pub incarnation: Incarnation,
    /// How many partitions it has.
    pub partitions: u32,
}

impl TopicPlace {
    /// One of its partitions.
    #[must_use]
    pub fn partition(&self, number: u32) -> PartitionRef {
        PartitionRef { incarnation: self.incarnation, partition: number }
    }
}

/// News of a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// It stands: whatever is published from here on will be delivered.
    Subscribed {
        /// The partition that is read.
        partition: PartitionRef,
        /// Everything below it is visible now.
        high_water: HighWaterMark,
    },
    /// The connection is a member of its group in one partition. The notice, like all of a membership, comes with the number of the
    /// partition as that of the subscription.
    Joined {
        /// The partition that is read.
        partition: PartitionRef,
        /// The group's epoch.
        epoch: u64,
        /// Everything below it is visible now.
        high_water: HighWaterMark,
    },
    /// The group was made to seek; acknowledgements of earlier epochs do not count.
    Moved {
        /// The new epoch.
        epoch: u64,
        /// Where it goes on.
        next: Offset,
    },
    /// Retention took messages of the group before they were acknowledged.
    Lost {
        /// How many.
        messages: u64,
        /// Where the group goes on.
        resumed: Offset,
    },
    /// There is no such topic, or no room.
    Refused(Refusal),
    /// Reading goes on elsewhere than was asked.
    Gap {
        /// What was asked for.
        requested: Requested,
        /// The offset where reading goes on.
        resumed: Offset,
    },
    /// It is over.
    Ended(End),
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

    /// Has `on_timer` called at that time on the monotonic clock (milliseconds), instead of any earlier wish.
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

    /// Ends the connection; the gentlest wish of several gives way to the harshest.
    pub fn close(&mut self, how: Close) {
        self.link.closing = Some(self.link.closing.map_or(how, |earlier| earlier.max(how)));
    }
}
