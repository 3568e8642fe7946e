//! From method and target to what is wanted: every route of the face, and what each of them allows. On any core.

use ringmain_model::{GroupName, TopicName};
use ringmain_wire::http::{Method, Target};

use super::dashboard::Part;
use super::group_requests::GroupVerb;
use super::problem::Problem;

/// What is done with a group by a POST below it.
const GROUP_VERBS: [(&str, GroupVerb); 4] =
    [("seek", GroupVerb::Seek), ("fetch", GroupVerb::Fetch), ("ack", GroupVerb::Ack), ("nack", GroupVerb::Nack)];

fn group_name(text: &str) -> Result<GroupName, Problem> {
    Ok(GroupName::new(text)?)
}

/// What a request addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// `*`: the server as a whole.
    Server,
    Topics,
    Topic(TopicName),
    Publish(TopicName),
    Messages(TopicName),
    Sse(TopicName),
    WebSocket(TopicName),
    /// Streams of several topics, which the query names.
    SseOfSeveral,
    WebSocketOfSeveral,
    /// Sends back what comes over WebSocket; only when it was asked for at the start.
    Echo,
    Groups(TopicName),
    Group(TopicName, GroupName),
    GroupVerb(TopicName, GroupName, GroupVerb),
    Health,
    Ready,
    Metrics,
    /// The description of all of these.
    OpenApi,
    /// The page that shows how the broker stands, or a part of it.
    Dashboard(&'static Part),
}

impl Place {
    /// Finds what a target addresses.
    pub(super) fn find(target: &Target<'_>) -> Result<Self, Problem> {
        if target.is_asterisk() {
            return Ok(Place::Server);
        }
        let segments: Vec<&str> = target.segments.iter().map(AsRef::as_ref).collect();
        let topic = |name: &str| TopicName::new(name).map_err(Problem::from);
        match segments[..] {
            ["topics"] => Ok(Place::Topics),
            ["topics", name] => Ok(Place::Topic(topic(name)?)),
            ["topics", name, "publish"] => Ok(Place::Publish(topic(name)?)),
            ["topics", name, "messages"] => Ok(Place::Messages(topic(name)?)),
            ["topics", name, "subscribe", "sse"] => Ok(Place::Sse(topic(name)?)),
            ["topics", name, "subscribe", "ws"] => Ok(Place::WebSocket(topic(name)?)),
            ["topics", name, "groups"] => Ok(Place::Groups(topic(name)?)),
            ["topics", name, "groups", group] => Ok(Place::Group(topic(name)?, group_name(group)?)),
            ["topics", name, "groups", group, verb] if GROUP_VERBS.iter().any(|(word, _)| *word == verb) => {
                let found = GROUP_VERBS.iter().find(|(word, _)| *word == verb);
                let verb = found.map_or(GroupVerb::Stat, |(_, verb)| *verb);
                Ok(Place::GroupVerb(topic(name)?, group_name(group)?, verb))
            }
            ["subscribe", "sse"] => Ok(Place::SseOfSeveral),
            ["subscribe", "ws"] => Ok(Place::WebSocketOfSeveral),
            ["debug", "ws-echo"] => Ok(Place::Echo),
            ["health"] => Ok(Place::Health),
            ["health", "ready"] => Ok(Place::Ready),
            ["metrics"] => Ok(Place::Metrics),
            ["openapi.json"] => Ok(Place::OpenApi),
            ["dashboard"] => Ok(Place::Dashboard(Part::page())),
            ["dashboard", name] => Part::named(name).map(Place::Dashboard),
            _ => Err(Problem::new(
                404,
                "not_found",
                "there is nothing at this path: topics are at /topics, their messages at /topics/{name}/messages; a slash inside a topic's name is written %2F",
            )),
        }
    }

    /// The methods that it allows, as the `Allow` header lists them.
    pub(super) fn allow(&self) -> &'static str {
        match self {
            Place::Server => "OPTIONS",
            Place::Topics => "GET, HEAD, POST, OPTIONS",
            Place::Topic(_) => "GET, HEAD, PATCH, DELETE, OPTIONS",
            Place::Publish(_) | Place::GroupVerb(..) => "POST, OPTIONS",
            Place::Group(..) => "GET, HEAD, DELETE, OPTIONS",
            Place::WebSocket(_) | Place::WebSocketOfSeveral | Place::Echo => "GET, OPTIONS",
            Place::SseOfSeveral | Place::Messages(_) | Place::Sse(_) | Place::Groups(_) => "GET, HEAD, OPTIONS",
            Place::Health | Place::Ready | Place::Metrics | Place::OpenApi | Place::Dashboard(_) => {
                "GET, HEAD, OPTIONS"
            }
        }
    }

    /// Checks that the place allows a method; HEAD counts as GET from here on.
    pub(super) fn check(&self, method: Method, method_text: &str) -> Result<Verb, Problem> {
        let (verb, word) = match method {
            Method::Get => (Verb::Get, "GET"),
            Method::Head => (Verb::Get, "HEAD"),
            Method::Post => (Verb::Post, "POST"),
            Method::Patch => (Verb::Patch, "PATCH"),
            Method::Delete => (Verb::Delete, "DELETE"),
            Method::Options => (Verb::Options, "OPTIONS"),
            Method::Other => {
                let shown: String = method_text.chars().take(20).collect();
                return Err(Problem::new(501, "unknown_method", format!("the method {shown} is unknown here")));
            }
            Method::Put | Method::Connect | Method::Trace => return Err(self.not_allowed(method_text)),
        };
        if self.allow().split(", ").any(|allowed| allowed == word) {
            Ok(verb)
        } else {
            Err(self.not_allowed(method_text))
        }
    }

    fn not_allowed(&self, method_text: &str) -> Problem {
        let mut problem = Problem::new(
            405,
            "method_not_allowed",
            format!("this path does not take {method_text}: use {}", self.allow()),
        );
        problem.allow = Some(self.allow());
        problem
    }
}

/// What is to be done with a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Get,
    Post,
    Patch,
    Delete,
    Options,
}
