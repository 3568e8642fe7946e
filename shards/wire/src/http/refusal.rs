//! What a decoder answers when it will not go on; pure, on the core that owns the connection.

use crate::http::HeadLimits;

/// Why input was refused, in the words that the client is to read.
///
/// After a refusal from a head or body decoder the place where the next request starts is unknown, so the connection
/// must be closed once the answer is sent. A refusal of a target or of JSON leaves the framing intact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Status code to answer with. Decoders of the client side use 502, since the peer is at fault.
    pub status: u16,
    /// Stable word for programs, such as `invalid_host`.
    pub code: &'static str,
    /// What is wrong, why it is refused, and what to send instead. It quotes at most 40 bytes of input, escaped.
    pub message: String,
}

/// Bytes of input that a message quotes at most.
const EXCERPT_BYTES_MAX: usize = 40;

impl Refusal {
    #[cold]
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    #[cold]
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", message)
    }

    #[cold]
    pub(crate) fn header(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_header", message)
    }

    #[cold]
    pub(crate) fn framing(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_framing", message)
    }

    #[cold]
    pub(crate) fn head_too_large(limits: &HeadLimits, first_line_ended: bool) -> Self {
        let bytes_max = limits.head_bytes_max;
        if first_line_ended {
            let message = format!("The request head is larger than {bytes_max} bytes. Send fewer or shorter headers.");
            Self::new(431, "head_too_large", message)
        } else {
            let message = format!(
                "The request line is longer than {bytes_max} bytes. Shorten the target, or move data to the body."
            );
            Self::new(414, "target_too_long", message)
        }
    }

    #[cold]
    pub(crate) fn too_many_headers(headers_max: usize) -> Self {
        let message = format!("The request has more than {headers_max} header lines. Send fewer.");
        Self::new(431, "head_too_large", message)
    }

    #[cold]
    pub(crate) fn body_too_large(body_bytes_max: u64) -> Self {
        let message = format!(
            "The body is larger than the {body_bytes_max} bytes that this request may carry. Send less at a time."
        );
        Self::new(413, "payload_too_large", message)
    }

    /// The same refusal, with the part of the body that it is about before its words.
    #[cold]
    pub(crate) fn at(self, place: std::fmt::Arguments<'_>) -> Self {
        Self { message: format!("In {place} of the body: {}", self.message), ..self }
    }

    /// The same fault seen from the client's side: the peer's answer cannot be read.
    #[cold]
    pub(crate) fn of_response(self) -> Self {
        Self { status: 502, code: "invalid_response", message: self.message.replace("request", "response") }
    }
}

/// A piece of input that is safe to print: printable ASCII, shortened.
#[cold]
pub(crate) fn excerpt(input: &[u8]) -> String {
    let shown = &input[..input.len().min(EXCERPT_BYTES_MAX)];
    let ellipsis = if shown.len() < input.len() { "…" } else { "" };
    format!("{}{ellipsis}", shown.escape_ascii())
}
