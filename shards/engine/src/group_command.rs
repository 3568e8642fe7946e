//! What is asked of groups and told of them. Values that cross between cores.

use ringmain_model::{GroupName, Offset, PartitionRef};
use ringmain_wal::RecordBatch;

use crate::command::Origin;

/// Where a new group starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupStart {
    /// With what is published from now on.
    Tail,
    /// At an offset.
    Offset(Offset),
}

/// What a member has done.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Messages that its connection has sent, in the order in which they were assigned.
    pub sent: u32,
    /// What it acknowledges: the epoch in which it got each message, and its offset.
    pub acks: Vec<(u64, Offset)>,
    /// What it gives back.
    pub nacks: Vec<Nack>,
    /// How many messages it may hold from now on.
    pub in_flight_max: Option<u32>,
}

/// A negative acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nack {
    /// The epoch in which the message was got.
    pub epoch: u64,
    /// The message.
    pub offset: Offset,
    /// How long to wait before it goes out again, milliseconds.
    pub delay_ms: u64,
}

/// What may be done with a group from outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupAction {
    /// Tell how it stands.
    Stat,
    /// End it; its members are told.
    Delete,
    /// Begin a new epoch.
    Seek(SeekTo),
    /// Give out up to `count` messages to a worker without a stream, waiting for the first. With a count of 0 nothing is given: the
    /// answer comes when there is something.
    Pull {
        /// Where a group that is not there begins.
        start: GroupStart,
        /// Messages at most.
        count: u32,
        /// How long to wait, milliseconds.
        wait_ms: u64,
    },
    /// Forget the asker's pull: nobody waits for it any more.
    Abandon,
    /// Acknowledge; without an epoch, in the present one.
    Ack {
        /// The epoch in which the messages were got.
        epoch: Option<u64>,
        /// The messages.
        offsets: Vec<Offset>,
        /// The member that says so; without one it is a worker without a stream.
        by: Option<Origin>,
    },
    /// Give back what a pull got; without an epoch, in the present one.
    Nack {
        /// The epoch in which the messages were got.
        epoch: Option<u64>,
        /// The messages.
        offsets: Vec<Offset>,
        /// How long to wait before they go out again, milliseconds.
        delay_ms: u64,
    },
}

/// Where a group is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// An offset, or the nearest that is there.
    Offset(Offset),
    /// The first message taken at or after that time, microseconds since the Unix epoch.
    Time(i64),
    /// The earliest message kept.
    Earliest,
    /// What is published from now on.
    Latest,
}

/// How a group stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStats {
    /// Its name.
    pub name: GroupName,
    /// How often it was made to seek.
    pub epoch: u64,
    /// The lowest offset that is not acknowledged.
    pub committed: Offset,
    /// The first offset that was never given out.
    pub next: Offset,
    /// High-water mark − committed.
    pub lag: u64,
    /// Its live members.
    pub members: u64,
    /// Messages given out and not acknowledged.
    pub pending: u64,
    /// Those of them that wait for a member.
    pub redelivering: u64,
    /// Messages that retention took before they were acknowledged.
    pub lost: u64,
    /// Messages that were given out as often as may be and not acknowledged.
    pub dead: u64,
}

/// A message on its way to the dead letters of its topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// Where it stands.
    pub partition: PartitionRef,
    /// The group that could not deal with it.
    pub group: GroupName,
    /// The group's epoch.
    pub epoch: u64,
    /// Its offset.
    pub offset: Offset,
}

/// One message given to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assigned {
    /// Its offset.
    pub offset: Offset,
    /// How often it has been given out, this time included.
    pub attempt: u32,
}

/// Messages of one batch given to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The group's epoch.
    pub epoch: u64,
    /// The batch that holds them.
    pub batch: RecordBatch,
    /// Which of its records, in the order in which they were given out.
    pub records: Vec<Assigned>,
}

/// News for a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberNews {
    /// Retention took messages before they were acknowledged.
    Lost {
        /// How many.
        messages: u64,
        /// Where the group goes on.
        resumed: Offset,
    },
    /// The group was made to seek.
    Moved {
        /// The new epoch.
        epoch: u64,
        /// Where it goes on.
        next: Offset,
    },
    /// The group was deleted.
    GroupDeleted,
}
