//! Bodies of the HTTP face as JSON: a publish, lines of them, and a message; pure, on the core that owns the connection.
//!
//! Payloads are standard base64 with padding (RFC 4648 section 4). Unknown members are ignored, of a repeated member the
//! last one counts, and names are case-sensitive.

mod base64;
mod decode;
mod lines;
mod message;
mod publish;

pub use decode::{MessageOwned, decode_message};
pub use lines::PublishLines;
pub use message::{Message, encode_message, timestamp_text, timestamp_us, write_timestamp};
pub use publish::{PublishBody, decode_publish, publish_of_value};

/// Headers of one message that a decoder takes at most, so that a body of many empty ones cannot cost many times its size
/// in memory. The broker's own limit is lower.
pub const HEADERS_MAX: usize = 256;

/// Bytes of a name that stands for several headers: each of them gets a copy of it. The broker takes no longer one.
const SHARED_NAME_BYTES_MAX: usize = 65_535;
