//! Requests for a stream of several topics: which, where each starts, and waiting until all stand. On the connection's core.
//!
//! The answer's head leaves when every subscription stands, so that whatever is published after it will be delivered. Batches of
//! those that stand first are held until then.

use ringmain_driver::{End, Io, Notice, Protocol, Requested, SlowReader, StartAt, Subscription};
use ringmain_model::limit::TOPICS_PER_CONNECTION_MAX;
use ringmain_model::{MarkedPosition, Offset, Position, Refusal, ResumeToken, TopicMark, TopicName};
use ringmain_wire::http::{RequestHead, Target};

use super::problem::Problem;
use super::query::{number, word};
use super::subscribe::{FORMATS, Face, Format, SLOW_READERS, resume_texts, start_in};

/// A topic of a stream that is asked for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) topic: TopicName,
    start: StartAt,
    /// Where it ended when the subscription began to stand.
    end: Option<Position>,
    /// A gap that is to be told once there is a stream to tell it in.
    pub(super) gap: Option<(Requested, Offset)>,
}

/// A stream of several topics that is asked for. A topic's place in the list is the number of its subscription.
#[derive(Debug)]
pub(super) struct SeveralOpening {
    pub(super) topics: Vec<Wanted>,
    pub(super) format: Format,
    pub(super) face: Face,
    pub(super) slow: SlowReader,
}

/// How the waiting for subscriptions stands.
#[derive(Debug)]
pub(super) enum Standing {
    /// Not all stand.
    Waits,
    All,
    /// One will never stand.
    Failed(Problem),
}

impl SeveralOpening {
    pub(super) fn read(face: Face, head: &RequestHead<'_>, target: &Target<'_>, io: &Io<'_>) -> Result<Self, Problem> {
        if target.query_value("group").is_some_and(|group| !group.is_empty()) {
            let sentence =
                "a group belongs to one topic: subscribe to it at /topics/{name}/subscribe, a connection for each";
            return Err(Problem::parameter(sentence));
        }
        let names = topic_names(target)?;
        if names.is_empty() && face == Face::Sse {
            return Err(Problem::parameter("name the topics of the stream: ?topic=a&topic=b"));
        }
        let format = word(target, "format", &FORMATS)?.unwrap_or(Format::Json);
        let slow = word(target, "slow", &SLOW_READERS)?.unwrap_or_default();
        let default = number(target, "from_offset")?.map_or(StartAt::Tail, |offset| StartAt::Offset(Offset(offset)));
        let token = match resume_texts(head, target) {
            // As on the route of one topic: a browser's header is never refused, a query is.
            (Some(text), _) => Some(several_token(&text).ok()),
            (None, Some(text)) => Some(Some(several_token(&text)?)),
            (None, None) => None,
        };
        let mut topics = Vec::with_capacity(names.len());
        for topic in names {
            if !io.has_topic(&topic) {
                return Err(Refusal::topic_not_found(topic.as_str()).into());
            }
            let start = match &token {
                None => default,
                Some(None) => StartAt::Lost,
                Some(Some(token)) => start_in(token, &topic, io).unwrap_or(default),
            };
            topics.push(Wanted { topic, start, end: None, gap: None });
        }
        Ok(Self { topics, format, face, slow })
    }

    /// Asks the broker for it.
    pub(super) fn ask(&self, io: &mut Io<'_>) {
        let protocol = match self.face {
            Face::Sse => Protocol::Sse,
            Face::WebSocket { .. } => Protocol::WebSocket,
        };
        io.hold_batches(true);
        for (number, wanted) in (0..).zip(&self.topics) {
            let (name, start, slow) = (wanted.topic.clone(), wanted.start, self.slow);
            io.subscribe(Subscription { number, name, partition: 0, start, protocol, slow });
        }
    }

    /// Takes news from before there is a stream.
    pub(super) fn note(&mut self, number: u32, notice: Notice) -> Standing {
        let Some(wanted) = usize::try_from(number).ok().and_then(|number| self.topics.get_mut(number)) else {
            return Standing::Waits;
        };
        match notice {
            Notice::Subscribed { partition, high_water } => {
                wanted.end = Some(Position { partition, next: high_water.offset() });
            }
            Notice::Gap { requested, resumed } => wanted.gap = Some((requested, resumed)),
            Notice::Refused(refusal) => return Standing::Failed(refusal.into()),
            Notice::Ended(End::TopicDeleted | End::GroupDeleted | End::TooSlow) => {
                return Standing::Failed(Refusal::topic_not_found(wanted.topic.as_str()).into());
            }
            Notice::Joined { .. } | Notice::Moved { .. } | Notice::Lost { .. } => {}
        }
        if self.topics.iter().all(|wanted| wanted.end.is_some()) { Standing::All } else { Standing::Waits }
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

/// A token that can mean something in a stream of several topics.
fn several_token(text: &str) -> Result<ResumeToken, Problem> {
    let refuse = |message: String| Problem::new(400, "invalid_resume_token", message);
    match ResumeToken::decode(text) {
        Ok(ResumeToken::LastSeen(_)) => {
            Err(refuse("an offset does not say of which topic it is: give a resume token of such a stream".to_owned()))
        }
        Ok(token) => Ok(token),
        Err(error) => Err(refuse(error.to_string())),
    }
}
