//! What a session may ask of the broker, and what it is told: for a front on any core.

use ringmain_engine::Reply;
pub use ringmain_engine::{AnswerWhen, GroupAction};
use ringmain_model::{
    GroupName, HighWaterMark, Incarnation, Message, Offset, PartitionRef, Position, Refusal, TopicConfig, TopicName,
    TopicPatch,
};

use crate::report::CoreReport;

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
        action: GroupAction,
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
    /// Through which protocol.
    pub protocol: Protocol,
    /// What leaves counts as acknowledged: the client has no way to say so.
    pub acks_by_sending: bool,
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

/// What a reader asked for that is not where it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requested {
    /// An offset, perhaps of another life of the topic.
    Offset(Offset),
    /// Something that could not be read.
    Unreadable,
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
