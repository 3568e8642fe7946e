//! Where a stream starts by the token that its client brings back, partition by partition. On the connection's core.

use std::borrow::Cow;

use ringmain_driver::{Io, StartAt};
use ringmain_model::{PartitionRef, Position, ResumeToken, TopicMark, TopicName};
use ringmain_wire::http::{RequestHead, Target};

use super::problem::Problem;
use super::query::text;

/// What a client brings back.
#[derive(Debug)]
pub(super) enum Brought {
    Nothing,
    /// Something in which nobody here can read a place.
    Unreadable,
    Token(ResumeToken),
}

/// What the positions of a token without topics' marks may be of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// The one topic that is asked for.
    OneTopic,
    /// Any topic: of this one are those of its present life alone.
    Several,
}

impl Brought {
    /// Reads what a request brings; `check` says what is wrong with a token that cannot be meant. Browsers never come back after
    /// a refusal, and send what they last heard, from whomever: an unreadable header is told as a gap. A query was written by
    /// somebody who can mend it.
    pub(super) fn read(
        head: &RequestHead<'_>,
        target: &Target<'_>,
        check: impl Fn(&ResumeToken) -> Result<(), Problem>,
    ) -> Result<Self, Problem> {
        let read = |text: &str| -> Result<ResumeToken, Problem> {
            let token = decode(text)?;
            check(&token)?;
            Ok(token)
        };
        Ok(match resume_texts(head, target)? {
            (Some(text), _) => read(&text).map_or(Self::Unreadable, Self::Token),
            (None, Some(text)) => Self::Token(read(&text)?),
            (None, None) => Self::Nothing,
        })
    }

    /// Where a partition starts; at `default` when nothing brought says anything of it.
    pub(super) fn start(&self, scope: Scope, topic: &TopicName, partition: PartitionRef, default: StartAt) -> StartAt {
        match self {
            Self::Nothing => default,
            Self::Unreadable => StartAt::Lost,
            Self::Token(token) => start_in(token, scope, topic, partition).unwrap_or(default),
        }
    }
}

/// The cursor that a client brings back, by header and by query: the header wins, because after the first reconnect a
/// browser sends both, and the query is the older one. The names in the query are those that polyfills use.
fn resume_texts(head: &RequestHead<'_>, target: &Target<'_>) -> Result<(Option<String>, Option<String>), Problem> {
    let header = head.headers.get("last-event-id").map(|value| String::from_utf8_lossy(value).into_owned());
    let names = ["last_event_id", "lastEventId", "evs_last_event_id", "Last-Event-ID"];
    let mut query = None;
    for name in names {
        query = query.or(text(target, name)?);
    }
    let query = query.map(Cow::into_owned);
    Ok((header.filter(|text| !text.is_empty()), query.filter(|text| !text.is_empty())))
}

fn refuse(message: impl Into<String>) -> Problem {
    Problem::new(400, "invalid_resume_token", message)
}

/// The token in a text.
pub(super) fn decode(text: &str) -> Result<ResumeToken, Problem> {
    ResumeToken::decode(text).map_err(|error| refuse(error.to_string()))
}

/// Whether a token can mean something for one topic, of which `alone` says that one partition is read.
pub(super) fn check_for_topic(token: &ResumeToken, topic: &TopicName, alone: bool, io: &Io<'_>) -> Result<(), Problem> {
    let Some(place) = io.place_of(topic) else { return Ok(()) };
    match token {
        ResumeToken::LastSeen(_) if !alone => Err(refuse(format!(
            "an offset does not say in which of the {} partitions of {topic} it is: give a resume token, or read one partition with partition=",
            place.partitions
        ))),
        ResumeToken::Several(_) if positions(token, Scope::OneTopic, topic, place.partition(0)).is_empty() => {
            Err(refuse("this resume token is of a stream of several topics, and this is none of them: leave it out"))
        }
        _ => Ok(()),
    }
}

/// Whether a token can mean something in a stream of several topics.
pub(super) fn check_for_several(token: &ResumeToken) -> Result<(), Problem> {
    match token {
        ResumeToken::LastSeen(_) => {
            Err(refuse("an offset does not say of which topic it is: give a resume token of such a stream"))
        }
        _ => Ok(()),
    }
}

/// A token's positions in a topic, as far as it can be told; `partition` is one of its partitions.
fn positions(token: &ResumeToken, scope: Scope, topic: &TopicName, partition: PartitionRef) -> Vec<Position> {
    let is_of_this_life = |position: &Position| position.partition.incarnation == partition.incarnation;
    match token {
        ResumeToken::LastSeen(_) => Vec::new(),
        ResumeToken::Positions(positions) => {
            positions.iter().filter(|position| scope == Scope::OneTopic || is_of_this_life(position)).copied().collect()
        }
        ResumeToken::Several(marked) => {
            let mark = TopicMark::of(topic);
            let own = marked.iter().filter(|marked| marked.mark == mark || is_of_this_life(&marked.position));
            own.map(|marked| marked.position).collect()
        }
    }
}

/// Where a token says that a partition goes on, if it says anything of it.
pub(super) fn start_in(
    token: &ResumeToken,
    scope: Scope,
    topic: &TopicName,
    partition: PartitionRef,
) -> Option<StartAt> {
    if let ResumeToken::LastSeen(offset) = token {
        return Some(StartAt::Offset(offset.plus(1)));
    }
    let positions = positions(token, scope, topic, partition);
    let own = positions.iter().find(|position| position.partition == partition);
    // One of an earlier life stays in a token until the gap to the present one has been told, beside others that are of this life.
    let earlier = || positions.iter().find(|position| position.partition.partition == partition.partition);
    if let Some(position) = own.or_else(earlier) {
        return Some(StartAt::Position(*position));
    }
    // A stream of other partitions says nothing of this one. An earlier life had fewer partitions: all of this one is new.
    let is_of_this_life = |position: &Position| position.partition.incarnation == partition.incarnation;
    (!positions.is_empty() && !positions.iter().any(is_of_this_life)).then_some(StartAt::Lost)
}
