//! Requests for a stream of several topics, or of all partitions of one: which, where each starts, and waiting until all stand. On the connection's core.
//!
//! The answer's head leaves when every subscription stands, so that whatever is published after it will be delivered. Batches of
//! those that stand first are held until then.

use ringmain_driver::{Io, Notice, Requested, SlowReader, StartAt, Subscription};
use ringmain_model::limit::{SUBSCRIPTIONS_PER_CONNECTION_MAX, TOPICS_PER_CONNECTION_MAX};
use ringmain_model::{MarkedPosition, Offset, Position, Refusal, TopicMark, TopicName};
use ringmain_wire::http::{RequestHead, Target};

use super::problem::Problem;
use super::query::{number, text, word};
use super::resume::{Brought, Scope, check_for_several, check_for_topic};
use super::subscribe::{FORMATS, Face, Format, SLOW_READERS, Standing, check_place};

/// A partition of a stream that is asked for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) topic: TopicName,
    partition: u32,
    /// How many its topic has.
    pub(super) partitions: u32,
    start: StartAt,
    /// Where it ended when the subscription began to stand.
    end: Option<Position>,
    /// A gap that is to be told once there is a stream to tell it in.
    pub(super) gap: Option<(Requested, Offset)>,
}

/// A stream that is asked for. A partition's place in the list is the number of its subscription; those of a topic stand together,
/// in order.
#[derive(Debug)]
pub(super) struct SeveralOpening {
    pub(super) parts: Vec<Wanted>,
    /// All are of one topic, by its own route.
    pub(super) of_route: bool,
    pub(super) format: Format,
    pub(super) face: Face,
    pub(super) slow: SlowReader,
}

impl SeveralOpening {
    /// Of the topics that the query names.
    pub(super) fn read(face: Face, head: &RequestHead<'_>, target: &Target<'_>, io: &Io<'_>) -> Result<Self, Problem> {
        if text(target, "group")?.is_some_and(|group| !group.is_empty()) {
            let sentence =
                "a group belongs to one topic: subscribe to it at /topics/{name}/subscribe, a connection for each";
            return Err(Problem::parameter(sentence));
        }
        if target.query_value("partition").is_some() {
            let sentence = "partition is of one topic: read it alone at /topics/{name}/subscribe?partition=, or leave partition out";
            return Err(Problem::parameter(sentence));
        }
        let names = topic_names(target)?;
        if names.is_empty() && face == Face::Sse {
            return Err(Problem::parameter("name the topics of the stream: ?topic=a&topic=b"));
        }
        let brought = Brought::read(head, target, check_for_several)?;
        Self::of((face, false), names, &brought, target, io)
    }

    /// Of all partitions of one topic.
    pub(super) fn of_topic(
        topic: TopicName,
        face: Face,
        head: &RequestHead<'_>,
        target: &Target<'_>,
        io: &Io<'_>,
    ) -> Result<Self, Problem> {
        let brought = Brought::read(head, target, |token| check_for_topic(token, &topic, false, io))?;
        Self::of((face, true), vec![topic], &brought, target, io)
    }

    fn of(
        (face, of_route): (Face, bool),
        names: Vec<TopicName>,
        brought: &Brought,
        target: &Target<'_>,
        io: &Io<'_>,
    ) -> Result<Self, Problem> {
        let format = word(target, "format", &FORMATS)?.unwrap_or(Format::Json);
        let slow = word(target, "slow", &SLOW_READERS)?.unwrap_or_default();
        let default = number(target, "from_offset")?.map_or(StartAt::Tail, |offset| StartAt::Offset(Offset(offset)));
        let scope = if of_route { Scope::OneTopic } else { Scope::Several };
        let mut parts = Vec::with_capacity(names.len());
        for topic in names {
            let place = io.place_of(&topic).ok_or_else(|| Refusal::topic_not_found(topic.as_str()))?;
            check_count(parts.len(), &topic, place.partitions)?;
            parts.extend((0..place.partitions).map(|partition| {
                let start = brought.start(scope, &topic, place.partition(partition), default);
                let (topic, partitions) = (topic.clone(), place.partitions);
                Wanted { topic, partition, partitions, start, end: None, gap: None }
            }));
        }
        Ok(Self { parts, of_route, format, face, slow })
    }

    /// Asks the broker for it.
    ///
    /// # Errors
    /// When a topic has gone since the request was read, or is another.
    pub(super) fn ask(&self, io: &mut Io<'_>) -> Result<(), Problem> {
        for wanted in &self.parts {
            check_place(&wanted.topic, wanted.partitions, io)?;
        }
        let protocol = self.face.protocol();
        io.hold_batches(true);
        for (number, wanted) in (0..).zip(&self.parts) {
            let (name, partition, start, slow) = (wanted.topic.clone(), wanted.partition, wanted.start, self.slow);
            // Its partitions stand together, from the first on.
            let counts = partition == 0;
            io.subscribe(Subscription { number, name, partition, start, protocol, counts, slow });
        }
        Ok(())
    }

    /// Takes news from before there is a stream.
    pub(super) fn note(&mut self, number: u32, notice: Notice) -> Standing {
        let Some(wanted) = usize::try_from(number).ok().and_then(|number| self.parts.get_mut(number)) else {
            return Standing::Waits;
        };
        match notice {
            Notice::Subscribed { partition, high_water } => {
                wanted.end = Some(Position { partition, next: high_water.offset() });
            }
            Notice::Gap { requested, resumed } => wanted.gap = Some((requested, resumed)),
            Notice::Refused(refusal) => return Standing::Failed(refusal.into()),
            Notice::Ended(_) => {
                return Standing::Failed(Refusal::topic_not_found(wanted.topic.as_str()).into());
            }
            Notice::Joined { .. } | Notice::Moved { .. } | Notice::Lost { .. } => {}
        }
        if self.parts.iter().all(|wanted| wanted.end.is_some()) { Standing::All } else { Standing::Waits }
    }

    /// Its topics, and how many partitions each has.
    pub(super) fn topics(&self) -> impl Iterator<Item = (&TopicName, u32)> {
        let firsts = self.parts.iter().filter(|wanted| wanted.partition == 0);
        firsts.map(|wanted| (&wanted.topic, wanted.partitions))
    }
}

impl Wanted {
    /// Where reading begins, as a client that is cut before its first message must bring it back. A place that means nothing
    /// here stays as it was brought until a gap tells where reading goes on.
    pub(super) fn begins_at(&self) -> Option<MarkedPosition> {
        let end = self.end?;
        let at = |next: Offset| Position { partition: end.partition, next: next.min(end.next) };
        let position = match self.start {
            StartAt::Tail => end,
            StartAt::Offset(offset) => at(offset),
            StartAt::Position(position) if position.partition == end.partition => at(position.next),
            StartAt::Position(position) => position,
            StartAt::Lost => at(Offset(0)),
        };
        Some(MarkedPosition { position, mark: TopicMark::of(&self.topic) })
    }
}

/// Whether a connection that reads so many partitions may read those of one more topic.
pub(super) fn check_count(reads: usize, topic: &TopicName, partitions: u32) -> Result<(), Problem> {
    if reads + partitions as usize > SUBSCRIPTIONS_PER_CONNECTION_MAX {
        return Err(Problem::parameter(format!(
            "{topic} has {partitions} partitions beside the {reads} that this connection reads: at most {SUBSCRIPTIONS_PER_CONNECTION_MAX} a connection; open another one"
        )));
    }
    Ok(())
}

/// The topics of a query, each named once.
fn topic_names(target: &Target<'_>) -> Result<Vec<TopicName>, Problem> {
    let mut names = Vec::new();
    for (_, value) in target.query().filter(|(name, _)| name == "topic") {
        let name = TopicName::new(&value)?;
        if names.contains(&name) {
            return Err(Problem::parameter(format!("topic={value} is there twice: name each topic once")));
        }
        if names.len() == TOPICS_PER_CONNECTION_MAX {
            let sentence = format!("at most {TOPICS_PER_CONNECTION_MAX} topics a stream: open another one");
            return Err(Problem::parameter(sentence));
        }
        names.push(name);
    }
    Ok(names)
}
