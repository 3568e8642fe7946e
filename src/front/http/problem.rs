//! What an HTTP client is told when something is refused: the one place where refusals become statuses. On any core.

use ringmain_model::{GroupNameError, NameError, Refusal, RefusalKind};
use ringmain_wire::http::Refusal as WireRefusal;

/// A refusal as HTTP tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Seconds after which trying again makes sense.
    pub(crate) retry_after: Option<u64>,
    /// Methods of the route, for 405.
    pub(crate) allow: Option<&'static str>,
}

/// The code of refused requests to speak WebSocket: their answer says what would be taken.
pub(super) const UPGRADE_STATUS: u16 = 426;

/// The code of refused bodies with a coding: their answer says which would be taken.
pub(super) const CODING_STATUS: u16 = 415;

impl Problem {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after: None, allow: None }
    }

    /// A malformed parameter.
    pub(crate) fn parameter(message: impl Into<String>) -> Self {
        Self::new(400, RefusalKind::InvalidRequest.code(), message)
    }

    /// The same, said of one part of a body.
    pub(super) fn at(mut self, part: &str, number: u64) -> Self {
        self.message = format!("in {part} {number} of the body: {}", self.message);
        self
    }

    /// The same, with what follows from it.
    pub(super) fn and(mut self, consequence: &str) -> Self {
        let said = self.message.trim_end_matches('.').len();
        self.message.truncate(said);
        self.message.push_str("; ");
        self.message.push_str(consequence);
        self
    }
}

impl From<WireRefusal> for Problem {
    fn from(refusal: WireRefusal) -> Self {
        Self::new(refusal.status, refusal.code, refusal.message)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.kind {
            RefusalKind::InvalidName | RefusalKind::InvalidConfig | RefusalKind::InvalidRequest => 400,
            RefusalKind::TopicNotFound | RefusalKind::GroupNotFound => 404,
            RefusalKind::TopicExists => 409,
            RefusalKind::PayloadTooLarge => 413,
            RefusalKind::IdReused => 422,
            RefusalKind::Busy | RefusalKind::ShuttingDown | RefusalKind::StorageFailed => 503,
            RefusalKind::OutcomeUnknown => 500,
            RefusalKind::StorageFull => 507,
        };
        Self {
            status,
            code: refusal.kind.code(),
            message: refusal.message,
            retry_after: refusal.retry_after.map(|after| after.as_secs().max(1)),
            allow: None,
        }
    }
}

impl From<GroupNameError> for Problem {
    fn from(error: GroupNameError) -> Self {
        Self::new(400, RefusalKind::InvalidName.code(), error.to_string())
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        Self::new(400, RefusalKind::InvalidName.code(), error.to_string())
    }
}
