//! What a request for a stream asks for, whatever its protocol: where it starts, in which form, in which group. On its core.

use ringmain_driver::{End, Io, Join, Notice, Protocol, SlowReader, StartAt, Subscription};
use ringmain_model::limit::{MEMBER_IN_FLIGHT_DEFAULT, MEMBER_IN_FLIGHT_MAX};
use ringmain_model::{GroupName, Offset, Position, Refusal, TopicName};
use ringmain_wire::http::{RequestHead, Target};
use smallvec::SmallVec;

use super::problem::Problem;
use super::query::{number, number_within, text, word};
use super::resume::{Brought, Scope, check_for_topic};

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// As JSON, its payload in base64.
    Json,
    /// The payload alone: text over SSE, a binary frame over WebSocket.
    Raw,
}

/// The protocol of a stream, and what its handshake needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Face {
    Sse,
    WebSocket {
        /// Value of `Sec-WebSocket-Accept`.
        accept: String,
        /// The subprotocol agreed on.
        protocol: Option<&'static str>,
    },
}

impl Face {
    pub(super) fn protocol(&self) -> Protocol {
        match self {
            Face::Sse => Protocol::Sse,
            Face::WebSocket { .. } => Protocol::WebSocket,
        }
    }
}

/// How the waiting for subscriptions or memberships stands.
#[derive(Debug)]
pub(super) enum Standing {
    /// Not all stand.
    Waits,
    All,
    /// One will never stand.
    Failed(Problem),
}

/// A stream that is asked for: of one partition, or of a group in all of them.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) topic: TopicName,
    pub(super) group: Option<GroupName>,
    /// The partition that is read.
    partition: u32,
    /// How many the topic has.
    pub(super) partitions: u32,
    pub(super) format: Format,
    pub(super) face: Face,
    start: StartAt,
    /// Where a new group starts.
    group_start: Option<Offset>,
    in_flight_max: u32,
    is_ordered: bool,
    pub(super) slow: SlowReader,
    /// Where the partition that is read ended when the subscription began to stand, or the first of a group's.
    end: Option<Position>,
    /// The group's epochs in the partitions that stand.
    epochs: SmallVec<[Option<u64>; 1]>,
}

/// The words of `format=`, `slow=` and `ordered=`.
pub(super) const FORMATS: [(&str, Format); 2] = [("json", Format::Json), ("raw", Format::Raw)];
pub(super) const SLOW_READERS: [(&str, SlowReader); 3] =
    [("lag", SlowReader::Lag), ("skip", SlowReader::Skip), ("close", SlowReader::Close)];
const ORDERS: [(&str, bool); 2] = [("true", true), ("false", false)];

impl Opening {
    pub(super) fn read(
        topic: TopicName,
        face: Face,
        head: &RequestHead<'_>,
        target: &Target<'_>,
        io: &Io<'_>,
    ) -> Result<Self, Problem> {
        let place = io.place_of(&topic).ok_or_else(|| Refusal::topic_not_found(topic.as_str()))?;
        let group = match text(target, "group")?.filter(|group| !group.is_empty()) {
            Some(name) => Some(GroupName::new(&name)?),
            None => None,
        };
        let partition = partition_of(target, place.partitions)?;
        if partition.is_some() && group.is_some() {
            return Err(Problem::parameter("a member takes part in all partitions of its group: leave partition out"));
        }
        let partition = partition.unwrap_or(0);
        let from_offset = number(target, "from_offset")?.map(Offset);
        let brought = Brought::read(head, target, |token| check_for_topic(token, &topic, true, io))?;
        let default = from_offset.map_or(StartAt::Tail, StartAt::Offset);
        let start = brought.start(Scope::OneTopic, &topic, place.partition(partition), default);
        let format = word(target, "format", &FORMATS)?.unwrap_or(Format::Json);
        if format == Format::Raw && group.is_some() && matches!(face, Face::WebSocket { .. }) {
            return Err(Problem::parameter("a member of a group needs offsets to acknowledge: leave format=raw out"));
        }
        let in_flight = 1..=u64::from(MEMBER_IN_FLIGHT_MAX);
        let in_flight_max = number_within(target, "max_in_flight", in_flight, u64::from(MEMBER_IN_FLIGHT_DEFAULT))?;
        let parts = if group.is_some() { place.partitions } else { 1 };
        Ok(Self {
            topic,
            group,
            partition,
            partitions: place.partitions,
            format,
            face,
            start,
            group_start: from_offset,
            in_flight_max: u32::try_from(in_flight_max).unwrap_or(MEMBER_IN_FLIGHT_MAX),
            is_ordered: word(target, "ordered", &ORDERS)?.unwrap_or(false),
            slow: word(target, "slow", &SLOW_READERS)?.unwrap_or_default(),
            end: None,
            epochs: (0..parts).map(|_| None).collect(),
        })
    }

    /// Asks the broker for it.
    ///
    /// # Errors
    /// When the topic has gone since the request was read, or is another.
    pub(super) fn ask(&self, io: &mut Io<'_>) -> Result<(), Problem> {
        check_place(&self.topic, self.partitions, io)?;
        let protocol = self.face.protocol();
        let Some(group) = &self.group else {
            io.subscribe(Subscription {
                number: 0,
                name: self.topic.clone(),
                partition: self.partition,
                start: self.start,
                protocol,
                counts: true,
                slow: self.slow,
            });
            return Ok(());
        };
        // What partitions give before all of them stand would find no stream to go to.
        let in_flight_max = if self.partitions == 1 { self.in_flight_max } else { 0 };
        for partition in 0..self.partitions {
            io.join(Join {
                partition,
                is_ordered: self.is_ordered,
                topic: self.topic.clone(),
                group: group.clone(),
                start: self.group_start,
                in_flight_max,
                protocol,
                acks_by_sending: protocol == Protocol::Sse,
            });
        }
        Ok(())
    }

    /// Takes news from before there is a stream.
    pub(super) fn note(&mut self, number: u32, notice: Notice) -> Standing {
        match notice {
            Notice::Subscribed { partition, high_water } => {
                self.end = Some(Position { partition, next: high_water.offset() });
                return Standing::All;
            }
            Notice::Joined { partition, epoch, high_water } => {
                self.end.get_or_insert(Position { partition, next: high_water.offset() });
                self.note_epoch(number, epoch);
            }
            Notice::Moved { epoch, .. } => self.note_epoch(number, epoch),
            Notice::Refused(refusal) => return Standing::Failed(refusal.into()),
            Notice::Ended(end) => {
                let refusal = match (end, &self.group) {
                    (End::GroupDeleted, Some(group)) => Refusal::group_not_found(group.as_str()),
                    _ => Refusal::topic_not_found(self.topic.as_str()),
                };
                return Standing::Failed(refusal.into());
            }
            Notice::Gap { .. } | Notice::Lost { .. } => {}
        }
        if self.epochs.iter().all(Option::is_some) { Standing::All } else { Standing::Waits }
    }

    fn note_epoch(&mut self, partition: u32, epoch: u64) {
        if let Some(place) = usize::try_from(partition).ok().and_then(|partition| self.epochs.get_mut(partition)) {
            *place = Some(epoch);
        }
    }

    /// The group's epochs, by partition, when it stands in all of them.
    pub(super) fn epochs(&self) -> impl Iterator<Item = u64> {
        self.epochs.iter().map(|epoch| epoch.unwrap_or_default())
    }

    /// Where what is read ended when it began to stand.
    pub(super) fn end(&self) -> Option<Position> {
        self.end
    }

    /// Lets a group that stands in several partitions give.
    pub(super) fn give_credit(&self, io: &mut Io<'_>) {
        if self.group.is_some() && self.partitions > 1 {
            hold_at_most(self.in_flight_max, self.partitions, io);
        }
    }

    /// Where reading begins, when the end of the partition is `at`; `None` when a gap will say it, and for groups.
    pub(super) fn begins_at(&self, at: Position) -> Option<Offset> {
        match self.start {
            _ if self.group.is_some() => None,
            StartAt::Tail => Some(at.next),
            StartAt::Offset(offset) => Some(offset.min(at.next)),
            StartAt::Position(position) if position.partition == at.partition => Some(position.next.min(at.next)),
            StartAt::Position(_) | StartAt::Lost => None,
        }
    }
}

/// Whether a request for a stream of a topic is for all of its several partitions, without a group.
pub(super) fn reads_all_partitions(topic: &TopicName, target: &Target<'_>, io: &Io<'_>) -> bool {
    let has_several = io.place_of(topic).is_some_and(|place| place.partitions > 1);
    // Of values that contradict each other the reading of one partition tells.
    let has_group = text(target, "group").map_or(true, |group| group.is_some_and(|group| !group.is_empty()));
    has_several && !has_group && matches!(text(target, "partition"), Ok(None))
}

/// The partition that a query names, which a topic of so many has.
fn partition_of(target: &Target<'_>, partitions: u32) -> Result<Option<u32>, Problem> {
    match number(target, "partition")? {
        Some(number) => check_partition(number, partitions).map(Some),
        None => Ok(None),
    }
}

/// A partition's number, checked against how many there are.
pub(super) fn check_partition(number: u64, partitions: u32) -> Result<u32, Problem> {
    u32::try_from(number).ok().filter(|number| *number < partitions).ok_or_else(|| {
        let sentence = match partitions {
            1 => format!("there is no partition {number}: the topic has one, 0"),
            count => format!("there is no partition {number}: the topic has {count}, from 0 to {}", count - 1),
        };
        Problem::parameter(sentence)
    })
}

/// Whether a topic is still there with so many partitions as when the request was read.
pub(super) fn check_place(topic: &TopicName, partitions: u32, io: &Io<'_>) -> Result<(), Problem> {
    let is_it = io.place_of(topic).is_some_and(|place| place.partitions == partitions);
    if is_it { Ok(()) } else { Err(Refusal::topic_not_found(topic.as_str()).into()) }
}

/// Divides what a member may hold among the partitions: each may give one message at least, unless none may give any.
pub(super) fn hold_at_most(messages: u32, partitions: u32, io: &mut Io<'_>) {
    let share = (messages / partitions.max(1)).max(messages.min(1));
    (0..partitions).for_each(|partition| io.hold_at_most(partition, share));
}
