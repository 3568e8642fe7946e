//! The broker's refusals: what was wrong, told once, mapped to each protocol in one place; plain values for any core.

use std::fmt;
use std::time::Duration;

/// The kind of a refusal. [`RefusalKind::code`] is the stable word that clients see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalKind {
    /// The name breaks the naming rule.
    InvalidName,
    /// A setting is unknown, out of range or not offered.
    InvalidConfig,
    /// A request's parameter is malformed.
    InvalidRequest,
    /// The topic is there already.
    TopicExists,
    /// No topic of that name, or it was deleted meanwhile.
    TopicNotFound,
    /// No consumer group of that name in the topic.
    GroupNotFound,
    /// The message is above its limit.
    PayloadTooLarge,
    /// The message's id was used for another message.
    IdReused,
    /// A queue is full; nothing was done, trying again later is right.
    Busy,
    /// The memory or disk set aside is used up; nothing was stored.
    StorageFull,
    /// The broker is going down; nothing was done.
    ShuttingDown,
    /// An earlier write or sync failed, so that the shard writes no more; nothing was done.
    StorageFailed,
    /// It was admitted, and whether it is on the disk is not known.
    OutcomeUnknown,
}

impl RefusalKind {
    /// The stable word for clients.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            RefusalKind::InvalidName => "invalid_name",
            RefusalKind::InvalidConfig => "invalid_config",
            RefusalKind::InvalidRequest => "invalid_request",
            RefusalKind::TopicExists => "topic_exists",
            RefusalKind::TopicNotFound => "topic_not_found",
            RefusalKind::GroupNotFound => "group_not_found",
            RefusalKind::PayloadTooLarge => "payload_too_large",
            RefusalKind::IdReused => "id_reused",
            RefusalKind::Busy => "busy",
            RefusalKind::StorageFull => "storage_full",
            RefusalKind::ShuttingDown => "shutting_down",
            RefusalKind::StorageFailed => "storage_failed",
            RefusalKind::OutcomeUnknown => "outcome_unknown",
        }
    }
}

/// A request that was refused before it changed anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What kind it is.
    pub kind: RefusalKind,
    /// What was wrong and what to do, for a person.
    pub message: String,
    /// When trying again makes sense.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal of `kind` with its sentence.
    #[must_use]
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        let retry_after = match kind {
            RefusalKind::Busy | RefusalKind::ShuttingDown => Some(Duration::from_secs(1)),
            RefusalKind::StorageFull => Some(Duration::from_secs(5)),
            _ => None,
        };
        Self { kind, message: message.into(), retry_after }
    }

    /// No topic of that name.
    #[must_use]
    pub fn topic_not_found(name: &str) -> Self {
        Self::new(RefusalKind::TopicNotFound, format!("there is no topic `{name}`: create it with POST /topics"))
    }

    /// No group of that name.
    #[must_use]
    pub fn group_not_found(name: &str) -> Self {
        Self::new(
            RefusalKind::GroupNotFound,
            format!("this topic has no group `{name}`: a group begins when its first member joins"),
        )
    }

    /// A full queue of the given meaning.
    #[must_use]
    pub fn busy(what: &str) -> Self {
        Self::new(RefusalKind::Busy, format!("{what}: nothing was done, try again after the time in Retry-After"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
