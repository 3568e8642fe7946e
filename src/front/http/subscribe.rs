//! What a request for a stream asks for, whatever its protocol: where it starts, in which form, in which group. On its core.

use ringmain_driver::{Io, Join, Protocol, Requested, SlowReader, StartAt, Subscription};
use ringmain_model::limit::{MEMBER_IN_FLIGHT_DEFAULT, MEMBER_IN_FLIGHT_MAX};
use ringmain_model::{GroupName, Offset, Position, ResumeToken, TopicMark, TopicName};
use ringmain_wire::http::{RequestHead, Target};
use serde_json::{Value, json};

use super::problem::Problem;
use super::query::{number, number_within, word};

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

/// A stream that is asked for.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) topic: TopicName,
    pub(super) group: Option<GroupName>,
    pub(super) format: Format,
    pub(super) face: Face,
    start: StartAt,
    /// Where a new group starts.
    group_start: Option<Offset>,
    in_flight_max: u32,
    pub(super) slow: SlowReader,
}

/// The words of `format=` and `slow=`.
pub(super) const FORMATS: [(&str, Format); 2] = [("json", Format::Json), ("raw", Format::Raw)];
pub(super) const SLOW_READERS: [(&str, SlowReader); 3] =
    [("lag", SlowReader::Lag), ("skip", SlowReader::Skip), ("close", SlowReader::Close)];

impl Opening {
    pub(super) fn read(
        topic: TopicName,
        face: Face,
        head: &RequestHead<'_>,
        target: &Target<'_>,
        io: &Io<'_>,
    ) -> Result<Self, Problem> {
        let group = match target.query_value("group").filter(|group| !group.is_empty()) {
            Some(name) => Some(GroupName::new(&name).map_err(|error| Problem::parameter(error.to_string()))?),
            None => None,
        };
        let from_offset = number(target, "from_offset")?.map(Offset);
        // Browsers never come back after a refusal, and send what they last heard, from whomever: an unreadable header is told
        // as a gap. A query was written by somebody who can mend it.
        let start = match resume_texts(head, target) {
            (Some(text), _) => start_of(&text, &topic, io).unwrap_or(StartAt::Lost),
            (None, Some(text)) => start_of(&text, &topic, io)?,
            (None, None) => from_offset.map_or(StartAt::Tail, StartAt::Offset),
        };
        let format = word(target, "format", &FORMATS)?.unwrap_or(Format::Json);
        if format == Format::Raw && group.is_some() && matches!(face, Face::WebSocket { .. }) {
            return Err(Problem::parameter("a member of a group needs offsets to acknowledge: leave format=raw out"));
        }
        let in_flight = 1..=u64::from(MEMBER_IN_FLIGHT_MAX);
        let in_flight_max = number_within(target, "max_in_flight", in_flight, u64::from(MEMBER_IN_FLIGHT_DEFAULT))?;
        Ok(Self {
            topic,
            group,
            format,
            face,
            start,
            group_start: from_offset,
            in_flight_max: u32::try_from(in_flight_max).unwrap_or(MEMBER_IN_FLIGHT_MAX),
            slow: word(target, "slow", &SLOW_READERS)?.unwrap_or_default(),
        })
    }

    /// Asks the broker for it.
    pub(super) fn ask(&self, io: &mut Io<'_>) {
        let protocol = match self.face {
            Face::Sse => Protocol::Sse,
            Face::WebSocket { .. } => Protocol::WebSocket,
        };
        match &self.group {
            None => io.subscribe(Subscription {
                number: 0,
                name: self.topic.clone(),
                partition: 0,
                start: self.start,
                protocol,
                slow: self.slow,
            }),
            Some(group) => io.join(Join {
                partition: 0,
                is_ordered: false,
                topic: self.topic.clone(),
                group: group.clone(),
                start: self.group_start,
                in_flight_max: self.in_flight_max,
                protocol,
            }),
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

/// The cursor that a client brings back, by header and by query: the header wins, because after the first reconnect a
/// browser sends both, and the query is the older one. The names in the query are those that polyfills use.
pub(super) fn resume_texts(head: &RequestHead<'_>, target: &Target<'_>) -> (Option<String>, Option<String>) {
    let header = head.headers.get("last-event-id").map(|value| String::from_utf8_lossy(value).into_owned());
    let names = ["last_event_id", "lastEventId", "evs_last_event_id", "Last-Event-ID"];
    let query = names.iter().find_map(|name| target.query_value(name)).map(std::borrow::Cow::into_owned);
    (header.filter(|text| !text.is_empty()), query.filter(|text| !text.is_empty()))
}

/// Where the one topic of a request starts by a token.
pub(super) fn start_of(text: &str, topic: &TopicName, io: &Io<'_>) -> Result<StartAt, Problem> {
    let refuse = |message: String| Problem::new(400, "invalid_resume_token", message);
    let token = ResumeToken::decode(text).map_err(|error| refuse(error.to_string()))?;
    match &token {
        ResumeToken::LastSeen(offset) => return Ok(StartAt::Offset(offset.plus(1))),
        ResumeToken::Positions(positions) if positions.len() == 1 => return Ok(StartAt::Position(positions[0])),
        ResumeToken::Positions(_) | ResumeToken::Several(_) => {}
    }
    let sentence = "this resume token is of a stream of several topics, and this is none of them: leave it out";
    start_in(&token, topic, io).ok_or_else(|| refuse(sentence.to_owned()))
}

/// Where a token says that a topic goes on, if it has a position in it: one of its present life, or else one of an earlier life.
pub(super) fn start_in(token: &ResumeToken, topic: &TopicName, io: &Io<'_>) -> Option<StartAt> {
    let partition = io.place_of(topic).map(|place| place.partition(0));
    let found = match token {
        ResumeToken::LastSeen(_) => None,
        ResumeToken::Positions(positions) => {
            positions.iter().find(|position| Some(position.partition) == partition).copied()
        }
        ResumeToken::Several(marked) => {
            let own = marked.iter().find(|marked| Some(marked.position.partition) == partition);
            let earlier = || marked.iter().find(|marked| marked.mark == TopicMark::of(topic));
            own.or_else(earlier).map(|marked| marked.position)
        }
    };
    found.map(StartAt::Position)
}

/// A gap as both protocols tell it: with its topic where a reader may have several.
pub(super) fn gap_json(topic: Option<&TopicName>, requested: Requested, resumed: Offset) -> String {
    let requested = match requested {
        Requested::Offset(offset) => offset.to_string(),
        Requested::Unreadable => "null".to_owned(),
    };
    let topic = topic.map(|topic| format!(r#""topic":{},"#, Value::from(topic.as_str()))).unwrap_or_default();
    format!(r#"{{{topic}"requested":{requested},"resumed":{resumed}}}"#)
}

/// The end of one of several topics as both protocols tell it.
pub(super) fn end_json(topic: &TopicName, reason: &str) -> String {
    json!({ "topic": topic.as_str(), "reason": reason }).to_string()
}

/// What retention took of a group, as both protocols tell it.
pub(super) fn lost_json(messages: u64, resumed: Offset) -> String {
    format!(r#"{{"messages":{messages},"resumed":{resumed}}}"#)
}
