//! What cores and shards say to each other: commands, replies, events, effects. Values that cross between cores.

use crate::group_command::{Assignment, DeadLetter, GroupAction, GroupStart, GroupStats, MemberNews, Progress};
use crate::orders::Order;
use ringmain_model::{
    CoreId, GroupName, HighWaterMark, Incarnation, LogStart, Message, Offset, PartitionRef, Refusal, ShardId,
    TopicConfig, TopicName, TopicPatch,
};
use ringmain_wal::{Completion, Effect as FileEffect, Failure, OperationId, RecordBatch, TopicFile};

/// The time of one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Wall clock, microseconds since the Unix epoch: for timestamps only.
    pub unix_us: i64,
    /// Monotonic clock, milliseconds since the broker started: for every deadline.
    pub monotonic_ms: u64,
}

/// Who asked, so that the reply finds its way; the engine hands it back unread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// The core that asked.
    pub core: CoreId,
    /// Which of that core's askers.
    pub asker: u64,
    /// Which of that asker's requests.
    pub request: u64,
}

/// What a core asks a shard to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Make a topic; the incarnation is drawn by the asker, because chance comes from outside.
    Create {
        /// The topic's name.
        name: TopicName,
        /// How many partitions it has, at least 1.
        partitions: u32,
        /// Its settings.
        config: TopicConfig,
        /// Its life.
        incarnation: Incarnation,
    },
    /// Do this shard's part of what another shard decided.
    Order(Order),
    /// End a topic's life.
    Delete {
        /// The topic's name.
        name: TopicName,
    },
    /// Change a topic's settings.
    Change {
        /// The topic's life.
        incarnation: Incarnation,
        /// What changes.
        patch: TopicPatch,
    },
    /// Tell how a partition of a topic stands.
    Stat {
        /// Which.
        partition: PartitionRef,
    },
    /// Tell how all partitions of the shard stand.
    List {
        /// Which partitions; those that are not there any more are left out.
        partitions: Vec<PartitionRef>,
    },
    /// Store a message.
    Publish {
        /// Where.
        partition: PartitionRef,
        /// What.
        message: Message,
        /// When the answer is wanted.
        answer: AnswerWhen,
    },
    /// Store messages, all or none; they become visible together.
    PublishAll {
        /// Where.
        partition: PartitionRef,
        /// What, in order, at least one.
        messages: Vec<Message>,
        /// When the answer is wanted.
        answer: AnswerWhen,
    },
    /// Read visible records.
    Read {
        /// Where.
        partition: PartitionRef,
        /// From which offset on.
        from: Offset,
        /// At most that many bytes, and at least one batch.
        bytes_max: usize,
        /// Stop at the batch that reaches that many records.
        records_max: u64,
        /// Whether the reader has been following: then it may read a little below the log start (the live window).
        following: bool,
    },
    /// Say whether a core wants visible batches pushed, and how many subscribers it has.
    Interest {
        /// Which partition.
        partition: PartitionRef,
        /// What the core wants.
        interest: Interest,
    },
    /// Make the asker a member of a group, which begins if there is none of that name.
    Join {
        /// Where.
        partition: PartitionRef,
        /// The group.
        group: GroupName,
        /// Where a group that begins starts; one that exists goes on from its own place.
        start: GroupStart,
        /// Messages that the member may hold unacknowledged.
        in_flight_max: u32,
        /// A message counts as acknowledged when it is sent.
        acks_by_sending: bool,
        /// The messages of a partition are to go to one member at a time, in order.
        is_ordered: bool,
        /// By what the member is known on its core, the same in all partitions of the topic.
        identity: u64,
    },
    /// The member goes; what it holds goes to the others.
    Leave {
        /// Where.
        partition: PartitionRef,
        /// The group.
        group: GroupName,
    },
    /// What a member has done since it last said so.
    Progress {
        /// Where.
        partition: PartitionRef,
        /// The group.
        group: GroupName,
        /// What it has done.
        progress: Progress,
    },
    /// Tell how a topic's groups stand.
    Groups {
        /// Where.
        partition: PartitionRef,
    },
    /// Do something with a group, without being a member.
    Group {
        /// Where.
        partition: PartitionRef,
        /// The group.
        group: GroupName,
        /// What.
        action: GroupAction,
    },
}

/// When a publish is answered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum AnswerWhen {
    /// When the message is durable and visible: in a memory topic that is at the end of the turn.
    #[default]
    Durable,
    /// When it has its offset and is in memory: a crash may take it back.
    Appended,
}

/// What a core wants of a partition.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Interest {
    /// Whether visible batches are to be pushed to it.
    pub wanted: bool,
    /// Its subscribers; readers that only wait for one page are none.
    pub subscribers: u32,
}

/// What a shard answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The topic is there, and every core knows it.
    Created(Box<TopicStats>),
    /// The topic is gone, and every core knows it.
    Deleted,
    /// How the partition stands.
    Stats(Box<TopicStats>),
    /// How the shard's partitions stand, in no order.
    Listed(Vec<TopicStats>),
    /// The message is stored and visible.
    Published {
        /// Its offset.
        offset: Offset,
        /// When it was taken, microseconds since the Unix epoch.
        time_us: i64,
    },
    /// The messages are stored and visible, but those that had been stored before.
    PublishedAll {
        /// The lowest of their offsets.
        first: Offset,
        /// The highest of their offsets.
        last: Offset,
        /// How many they are.
        count: u64,
        /// How many of them had been stored before, or repeat an earlier one of the batch.
        repeated: u64,
        /// When they were taken, microseconds since the Unix epoch.
        time_us: i64,
    },
    /// A page of records.
    Page(Page),
    /// Pushes begin at the high-water mark.
    Interested {
        /// Which partition.
        partition: PartitionRef,
        /// First offset that will be pushed.
        high_water: HighWaterMark,
    },
    /// The asker is a member.
    Joined {
        /// The group's epoch.
        epoch: u64,
        /// Everything below it is visible now.
        high_water: HighWaterMark,
    },
    /// It was noted.
    Noted,
    /// How the groups stand, by name.
    Groups(Vec<GroupStats>),
    /// How the group stands.
    Group(Box<GroupStats>),
    /// Messages for a worker without a stream, perhaps none.
    Pulled {
        /// Which partition.
        partition: PartitionRef,
        /// The group.
        group: GroupName,
        /// The group's epoch, to acknowledge in.
        epoch: u64,
        /// The messages.
        assignments: Vec<Assignment>,
    },
    /// That many acknowledgements were new.
    Acknowledged(u64),
    /// Nothing was done.
    Refused(Refusal),
}

/// Records read from a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Which partition.
    pub partition: PartitionRef,
    /// Where reading began: what was asked for, or the nearest offset that is there.
    pub from: Offset,
    /// Batches in order; the first may begin below `from`.
    pub batches: Vec<RecordBatch>,
    /// First offset kept.
    pub log_start: LogStart,
    /// Everything below it is visible.
    pub high_water: HighWaterMark,
}

impl Page {
    /// The next offset to read after this page.
    #[must_use]
    pub fn next(&self) -> Offset {
        self.batches.last().map_or(self.from, RecordBatch::end).max(self.from)
    }
}

/// How a partition of a topic stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicStats {
    /// The topic's name.
    pub name: TopicName,
    /// The partition.
    pub partition: PartitionRef,
    /// How many the topic has.
    pub partitions: u32,
    /// Its settings.
    pub config: TopicConfig,
    /// Its shard.
    pub shard: ShardId,
    /// First offset kept.
    pub log_start: LogStart,
    /// Everything below it is visible.
    pub high_water: HighWaterMark,
    /// Bytes of the records kept.
    pub bytes: u64,
    /// Live subscribers on all cores that count in this partition: one counts in one partition of those that it reads.
    pub subscribers: u64,
    /// When it was made, microseconds since the Unix epoch.
    pub created_us: i64,
    /// Its groups, by name.
    pub groups: Vec<GroupStats>,
    /// Messages that its groups lost to retention before they were acknowledged.
    pub lost: u64,
    /// Messages whose ids are remembered, so that a repeat is stored once.
    pub known_ids: u64,
}

impl TopicStats {
    /// Messages kept.
    #[must_use]
    pub fn message_count(&self) -> u64 {
        self.high_water.offset().since(self.log_start.offset())
    }
}

/// What happens to a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A core asks something.
    Asked {
        /// Who.
        origin: Origin,
        /// What.
        command: Command,
    },
    /// A core has applied a placement change.
    Placed {
        /// Which change.
        change: u64,
    },
    /// Something that was to be done at a time may be due: see [`crate::Shard::next_due_ms`].
    TimePassed,
    /// What came of an [`Effect::File`].
    FileDone {
        /// Its number.
        operation: OperationId,
        /// What came of it.
        completion: Completion,
    },
    /// What came of an [`Effect::Order`].
    OrderDone {
        /// Its number.
        order: u64,
        /// Whether the shard has done its part; if not, why.
        outcome: Result<(), Refusal>,
    },
    /// What came of an [`Effect::DeadLetter`].
    DeadLettered {
        /// The letter.
        letter: DeadLetter,
        /// Whether it is stored; if not, it is tried again later.
        is_stored: bool,
    },
    /// All events of this turn have been given: open batches close.
    TurnEnded,
}

/// A change of the table that every core keeps: which topics there are, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlacementChange {
    /// A topic came.
    Add {
        /// Its name.
        name: TopicName,
        /// Its life.
        incarnation: Incarnation,
        /// The shard of its first partition; the others follow: see [`ShardId::of_partition`].
        shard: ShardId,
        /// How many partitions it has.
        partitions: u32,
    },
    /// A topic went.
    Remove {
        /// Its name.
        name: TopicName,
        /// The life that ended.
        incarnation: Incarnation,
    },
}

/// What an operator should know of a shard's storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StorageNews {
    /// A write or sync failed: the shard takes nothing more that is to be stored.
    Poisoned(Failure),
    /// There is no room for another segment of the log.
    Full(Failure),
    /// There is room again.
    Room,
    /// A checkpoint failed, and is tried again.
    CheckpointFailed(Failure),
    /// A read of a topic segment failed, which says nothing of what is in it: readers are refused, groups try again.
    ReadFailed {
        /// The segment.
        file: TopicFile,
        /// What the system said.
        failure: Failure,
    },
    /// The index of a topic segment is damaged; it is made again from the segment.
    IndexDamaged {
        /// The segment.
        file: TopicFile,
        /// What is wrong.
        why: String,
    },
    /// A topic segment cannot be written to: what comes goes on in a new file, and what is in this one is read as far as it can be.
    SegmentGivenUp {
        /// The topic.
        topic: TopicName,
        /// The segment.
        file: TopicFile,
        /// What the system said.
        failure: Failure,
    },
    /// Records of a topic segment cannot be read: readers go on behind them.
    Unreadable {
        /// The topic.
        topic: TopicName,
        /// The segment.
        file: TopicFile,
        /// The first record.
        from: Offset,
        /// The one after the last.
        end: Offset,
        /// What is wrong.
        why: String,
    },
}

/// What the driver must do for a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Answer an asker.
    Reply {
        /// Who asked.
        to: Origin,
        /// The answer.
        reply: Reply,
    },
    /// Give a visible batch to a core that has subscribers.
    Push {
        /// Which core.
        core: CoreId,
        /// The batch.
        batch: RecordBatch,
    },
    /// Give messages to a member of a group.
    Assign {
        /// Who joined.
        to: Origin,
        /// The messages.
        assignment: Assignment,
    },
    /// Tell a member something.
    Tell {
        /// Who joined.
        to: Origin,
        /// The news.
        news: MemberNews,
    },
    /// Have every core apply a change, and give [`Event::Placed`] once per core.
    Place {
        /// The change's number in this shard.
        change: u64,
        /// The change.
        placement: PlacementChange,
    },
    /// Store a message in the topic of that name, wherever that is, and give [`Event::DeadLettered`].
    DeadLetter {
        /// Where it comes from.
        letter: DeadLetter,
        /// The topic that gets it.
        to: TopicName,
        /// What it gets.
        message: Message,
    },
    /// Have another shard do its part, and give [`Event::OrderDone`] with the same number.
    Order {
        /// Its number in this shard.
        order: u64,
        /// Which shard.
        shard: ShardId,
        /// What.
        what: Order,
    },
    /// Tell the operator what happened to the shard's storage.
    StorageNews(StorageNews),
    /// Do something with a file of the shard's directory, and give [`Event::FileDone`] with the same number. Operations may run
    /// side by side.
    File {
        /// Comes back with the result; used once.
        operation: OperationId,
        /// What to do.
        effect: FileEffect,
    },
}
