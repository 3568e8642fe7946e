//! Heads and chunks as bytes, for both sides; pure, on the core that owns the connection.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use super::Version;
use super::percent;
use super::response::bodiless;

/// What follows the head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// No body: `Content-Length: 0`, or nothing where the status forbids the field.
    None,
    /// So many bytes. Also for an answer to `HEAD`, which then sends none of them.
    Length(u64),
    /// Chunks. Not for HTTP/1.0 clients, which get [`ResponseBody::UntilClose`].
    Chunked,
    /// Bytes until the connection ends; implies `Connection: close`.
    UntilClose,
}

/// What a response head says. `Date`, `Connection`, `Content-Length` and `Transfer-Encoding` are written by the encoder and
/// must not be among `headers` (`Connection: upgrade` beside status 101 and 426 excepted).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// Status code.
    pub status: u16,
    /// Further fields in order. Control characters in values become spaces, so that no value can end its line.
    pub headers: &'a [(&'a str, &'a str)],
    /// What follows.
    pub body: ResponseBody,
    /// Whether the connection ends after this response.
    pub close: bool,
    /// Version of the request: HTTP/1.0 clients must be told when the connection stays open.
    pub version: Version,
}

/// The chunk that ends a chunked body, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The interim response that invites a client to send its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends a response head. `date` is the text of [`date_text`], which changes once a second and is thus the caller's to
/// keep. The version in the status line is always 1.1, as RFC 9110 section 6.2 advises, also towards older clients.
pub fn encode_response_head(out: &mut Vec<u8>, date: &str, head: &ResponseHead<'_>) {
    debug_assert!(head.version == Version::Http11 || head.body != ResponseBody::Chunked, "1.0 clients know no chunks");
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal(out, u64::from(head.status));
    out.push(b' ');
    out.extend_from_slice(reason(head.status).as_bytes());
    out.extend_from_slice(b"\r\nDate: ");
    field_value(out, date);
    for (name, value) in head.headers {
        field(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
    if !bodiless(head.status) {
        match head.body {
            ResponseBody::None => out.extend_from_slice(b"Content-Length: 0\r\n"),
            ResponseBody::Length(length) => {
                out.extend_from_slice(b"Content-Length: ");
                decimal(out, length);
                out.extend_from_slice(b"\r\n");
            }
            ResponseBody::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            ResponseBody::UntilClose => {}
        }
    }
    if head.close || head.body == ResponseBody::UntilClose {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if head.version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a request head in HTTP/1.1. Bytes of `target` that would break the line are escaped, those of `host` and of header
/// values become spaces. Without `body_length` there is no body unless `headers` say `Transfer-Encoding: chunked`.
pub fn encode_request_head(
    out: &mut Vec<u8>,
    method: &str,
    target: &str,
    host: &str,
    headers: &[(&str, &str)],
    body_length: Option<u64>,
) {
    debug_assert!(method.bytes().all(|byte| byte.is_ascii_graphic()), "a method is one word");
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(printable_target(target).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    field_value(out, host);
    for (name, value) in headers {
        field(out, name, value);
    }
    if let Some(length) = body_length {
        out.extend_from_slice(b"\r\nContent-Length: ");
        decimal(out, length);
    }
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends `data` as one chunk. Nothing is written for empty data, since an empty chunk would end the body.
pub fn encode_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let digits = (usize::BITS - data.len().leading_zeros()).div_ceil(4);
    out.reserve(data.len() + 4 + 16);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(data.len() >> (4 * place)) & 15]);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// A time as an HTTP date (RFC 9110 section 5.6.7), such as `Sun, 06 Nov 1994 08:49:37 GMT`. Seconds since 1970; years
/// beyond 9999, which the format cannot hold, are written as its last second.
#[must_use]
pub fn date_text(unix_seconds: u64) -> String {
    const SECONDS_MAX: u64 = 253_402_300_799;
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(unix_seconds.min(SECONDS_MAX)))
}

/// Type and subtype of a `Content-Type`, in lower case and without parameters.
#[must_use]
pub fn media_type(content_type: &str) -> Cow<'_, str> {
    let essence = content_type.split(';').next().unwrap_or_default().trim_matches([' ', '\t']);
    if essence.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(essence.to_ascii_lowercase())
    } else {
        Cow::Borrowed(essence)
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    debug_assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'), "a field name is a token");
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    field_value(out, value);
}

/// Appends a value that cannot end its line, whatever it contains.
fn field_value(out: &mut Vec<u8>, value: &str) {
    let start = out.len();
    out.extend_from_slice(value.as_bytes());
    for byte in &mut out[start..] {
        if byte.is_ascii_control() && *byte != b'\t' {
            *byte = b' ';
        }
    }
}

fn printable_target(target: &str) -> Cow<'_, str> {
    if target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Cow::Borrowed(target);
    }
    let mut escaped = String::with_capacity(target.len() + 8);
    for byte in target.bytes() {
        if byte.is_ascii_graphic() { escaped.push(char::from(byte)) } else { percent::escape(byte, &mut escaped) }
    }
    Cow::Owned(escaped)
}

fn decimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Reason phrases of RFC 9110 and its registry for the statuses that the broker sends; empty for others, as allowed.
fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}
