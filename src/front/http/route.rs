//! From method and target to what is wanted: every route of the face, and what each of them allows. On any core.

use ringmain_model::TopicName;
use ringmain_wire::http::{Method, Target};

use super::problem::Problem;

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
    Health,
    Ready,
    Metrics,
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
            ["health"] => Ok(Place::Health),
            ["health", "ready"] => Ok(Place::Ready),
            ["metrics"] => Ok(Place::Metrics),
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
            Place::Topic(_) => "GET, HEAD, DELETE, OPTIONS",
            Place::Publish(_) => "POST, OPTIONS",
            Place::Messages(_) | Place::Sse(_) | Place::Health | Place::Ready | Place::Metrics => "GET, HEAD, OPTIONS",
        }
    }

    /// Checks that the place allows a method; HEAD counts as GET from here on.
    pub(super) fn check(&self, method: Method, method_text: &str) -> Result<Verb, Problem> {
        let (verb, word) = match method {
            Method::Get | Method::Head => (Verb::Get, "GET"),
            Method::Post => (Verb::Post, "POST"),
            Method::Delete => (Verb::Delete, "DELETE"),
            Method::Options => (Verb::Options, "OPTIONS"),
            Method::Other => {
                let shown: String = method_text.chars().take(20).collect();
                return Err(Problem::new(501, "unknown_method", format!("the method {shown} is unknown here")));
            }
            Method::Put | Method::Patch | Method::Connect | Method::Trace => return Err(self.not_allowed(method_text)),
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
    Delete,
    Options,
}
