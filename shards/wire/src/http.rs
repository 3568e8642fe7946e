//! HTTP/1.x as bytes: heads, bodies, targets and refusals; pure, on the core that owns the connection.
//!
//! Where RFC 9112 leaves a choice, this module takes the strict side, because two readers of one stream that disagree
//! about where a request ends are how requests are smuggled:
//!
//! - lines end with CRLF; a bare LF or bare CR anywhere in a head or in chunked framing is refused;
//! - `Content-Length` together with `Transfer-Encoding` is refused, and so is `Transfer-Encoding` in HTTP/1.0;
//! - `chunked` alone is implemented; other codings are 501, and a coding list that does not end in `chunked` is 400;
//! - equal repeated lengths (`5, 5`, or two equal fields) count as one, all others are refused;
//! - exactly one valid, non-empty `Host` in HTTP/1.1, at most one in HTTP/1.0; an absolute-form target overrules it.

mod body;
mod encode;
mod framing;
mod headers;
mod host;
mod percent;
mod refusal;
mod request;
mod response;
mod target;

pub use body::BodyDecoder;
pub use encode::{
    CONTINUE, LAST_CHUNK, ResponseBody, ResponseHead, date_text, encode_chunk, encode_request_head,
    encode_response_head, media_type,
};
pub use headers::Headers;
pub use percent::percent_encode_segment;
pub use refusal::Refusal;
pub use request::{RequestHead, decode_request_head};
pub use response::{ResponseHeadDecoded, decode_response_head};
pub use target::Target;

/// Bounds of a head, for requests and responses alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// First line and header lines with their ends, in bytes. The answer beyond it is 431, or 414 if not even the
    /// first line ended.
    pub head_bytes_max: usize,
    /// Header lines; values above 100 count as 100. The answer beyond it is 431.
    pub headers_max: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { head_bytes_max: 16 << 10, headers_max: 64 }
    }
}

/// A request's method. Methods are case-sensitive: `get` is [`Method::Other`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// `CONNECT`
    Connect,
    /// `TRACE`
    Trace,
    /// A well-formed token that is none of the above; the router answers 501.
    Other,
}

impl Method {
    /// The method that a request line names.
    #[must_use]
    pub fn of(text: &str) -> Self {
        match text {
            "GET" => Self::Get,
            "POST" => Self::Post,
            "HEAD" => Self::Head,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "CONNECT" => Self::Connect,
            "TRACE" => Self::Trace,
            _ => Self::Other,
        }
    }
}

/// The version that a first line names. Every other version is refused with 505.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// `HTTP/1.0`: one request a connection unless `Connection: keep-alive`, no chunked bodies, no `Expect`.
    Http10,
    /// `HTTP/1.1`
    Http11,
}

/// How the end of a body is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// There is no body.
    None,
    /// Exactly this many bytes follow.
    Length(u64),
    /// Chunks follow, each with its size, and a last one of size zero.
    Chunked,
    /// The body ends with the connection. Only responses may do that.
    UntilClose,
}
