//! Request heads: bytes to method, target and fields; pure, on the core that owns the connection.

use std::mem::MaybeUninit;

use httparse::{Error, Header, Request, Status};

use super::framing::Fields;
use super::refusal::excerpt;
use super::{Framing, HeadLimits, Headers, Method, Refusal, Version};

/// The head of a request, borrowed from the bytes that it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead<'b> {
    /// The method, if it is a known one.
    pub method: Method,
    /// The method as it was sent.
    pub method_text: &'b str,
    /// The target as it was sent; [`super::Target::parse`] takes it apart.
    pub target: &'b str,
    /// Version of the request line.
    pub version: Version,
    /// How the body ends; never [`Framing::UntilClose`].
    pub framing: Framing,
    /// Whether the client wants the connection to stay open after the answer.
    pub keep_alive: bool,
    /// Whether the client waits for [`super::CONTINUE`] or a final answer before it sends a body. False when there is no
    /// body to wait for.
    pub expect_continue: bool,
    /// The host and perhaps port that the request is for: the authority of an absolute-form target, else the `Host`
    /// field. `None` only in HTTP/1.0.
    pub host: Option<&'b str>,
    /// All header fields.
    pub headers: Headers<'b>,
}

/// Header lines that the parser has room for.
pub(super) const HEADERS_MAX: usize = 100;

/// Empty lines that may precede a head, for clients that end a body with a CRLF too many.
const EMPTY_LINES_MAX: usize = 8;

/// Decodes the request head at the start of `input`, together with the number of bytes that it and the empty lines
/// before it take. `Ok(None)` means that more bytes are needed.
///
/// More input never changes an answer: what is refused stays refused in the same way, and a head stays the same head.
///
/// # Errors
///
/// A [`Refusal`] with status 400, 414, 417, 431, 501 or 505. The connection must be closed after its answer.
pub fn decode_request_head<'b>(
    input: &'b [u8],
    limits: &HeadLimits,
) -> Result<Option<(RequestHead<'b>, usize)>, Refusal> {
    let Some(start) = skip_empty_lines(input)? else { return Ok(None) };
    let window = window(&input[start..], limits);
    let headers_max = limits.headers_max.min(HEADERS_MAX);
    let mut storage = [const { MaybeUninit::<Header<'b>>::uninit() }; HEADERS_MAX];
    let mut request = Request::new(&mut []);
    match request.parse_with_uninit_headers(window, &mut storage[..headers_max]) {
        Ok(Status::Complete(length)) => {
            refuse_bare_line_feeds(&window[..length])?;
            Ok(Some((interpret(&request)?, start + length)))
        }
        Ok(Status::Partial) if window.len() == limits.head_bytes_max => {
            Err(Refusal::head_too_large(limits, memchr::memchr(b'\n', window).is_some()))
        }
        Ok(Status::Partial) => Ok(None),
        Err(error) => Err(explain(error, window, headers_max)),
    }
}

/// Applies the rules that span lines to a head that is well formed line by line.
fn interpret<'b>(request: &Request<'_, 'b>) -> Result<RequestHead<'b>, Refusal> {
    let (Some(method_text), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(Refusal::request("The request line is incomplete. Send METHOD TARGET HTTP/1.1."));
    };
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let method = Method::of(method_text);
    if target == "*" && !matches!(method, Method::Options | Method::Other) {
        return Err(Refusal::request("The target * is for OPTIONS only. Send a target that starts with a slash."));
    }
    let fields = Fields::collect(request.headers)?;
    let host = fields.host(version, target)?;
    let framing = fields.request_framing(version)?;
    Ok(RequestHead {
        method,
        method_text,
        target,
        version,
        framing,
        keep_alive: fields.keep_alive(version),
        expect_continue: fields.expects_continue(version, framing)?,
        host,
        headers: Headers::new(request.headers),
    })
}

/// Where the first line starts. `None` means that only empty lines have come so far.
pub(super) fn skip_empty_lines(input: &[u8]) -> Result<Option<usize>, Refusal> {
    let mut start = 0;
    loop {
        match &input[start..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] if start < 2 * EMPTY_LINES_MAX => start += 2,
            [b'\r', ..] | [b'\n', ..] => {
                return Err(Refusal::request(
                    "The request starts with a bare CR, a bare LF or too many empty lines. Send the request line at \
                     once, and CRLF as line end.",
                ));
            }
            _ => return Ok(Some(start)),
        }
    }
}

/// The bytes that a head may take: the parser never sees more, so that the bound gives the same answer however the input
/// was split.
pub(super) fn window<'b>(input: &'b [u8], limits: &HeadLimits) -> &'b [u8] {
    &input[..input.len().min(limits.head_bytes_max)]
}

/// The parser takes a bare LF for a line end; this policy does not.
pub(super) fn refuse_bare_line_feeds(head: &[u8]) -> Result<(), Refusal> {
    let bare = memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r');
    if bare {
        return Err(Refusal::request(
            "The request has a line that ends with a bare LF, which not all readers take for a line end. End each line \
             with CRLF.",
        ));
    }
    Ok(())
}

/// Puts the parser's error into words.
#[cold]
fn explain(error: Error, window: &[u8], headers_max: usize) -> Refusal {
    match error {
        Error::Version => version(window),
        Error::TooManyHeaders => Refusal::too_many_headers(headers_max),
        Error::HeaderName => header_name(window),
        Error::HeaderValue => Refusal::header(
            "A header value of the request has a control character or a bare CR. Send visible characters, and CRLF as \
             line end.",
        ),
        Error::NewLine | Error::Status => Refusal::request(
            "A line of the request ends with a bare CR or has extra words. Send METHOD TARGET HTTP/1.1, and CRLF as line \
             end.",
        ),
        Error::Token if window.first() == Some(&0x16) => Refusal::request(
            "The request looks like a TLS handshake, but this port speaks plain HTTP. Use http:// instead of https://.",
        ),
        Error::Token => Refusal::request(
            "The request line is malformed. Send METHOD TARGET HTTP/1.1 with single spaces, a target of printable \
             characters in UTF-8, and percent escapes for all others.",
        ),
    }
}

/// A version that is well formed but unknown is 505, anything else 400. Only bytes up to the first wrong one count.
#[cold]
fn version(window: &[u8]) -> Refusal {
    let third = window.splitn(3, |&byte| byte == b' ').nth(2).unwrap_or_default();
    let unknown = match third.strip_prefix(b"HTTP/") {
        Some([b'1', b'.', minor, ..]) => minor.is_ascii_digit(),
        Some([b'1', second, ..]) => second.is_ascii_digit(),
        Some([first, ..]) => first.is_ascii_digit(),
        _ => false,
    };
    if !unknown {
        return Refusal::request("The request line does not end in HTTP/1.1. Send METHOD TARGET HTTP/1.1.");
    }
    let message = if window.starts_with(b"PRI * HTTP/2") {
        "The client speaks HTTP/2, which this port does not. Use HTTP/1.1 (curl: without --http2-prior-knowledge)."
    } else {
        "The request's HTTP version is not supported. Use HTTP/1.1."
    };
    Refusal::new(505, "version_not_supported", message)
}

/// Says what is wrong with the first header line that has no proper name.
#[cold]
fn header_name(window: &[u8]) -> Refusal {
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    for line in window.split_inclusive(|&byte| byte == b'\n').skip(1) {
        let name = &line[..line.iter().position(|byte| !token(byte)).unwrap_or(line.len())];
        match (name.len(), line.get(name.len())) {
            (1.., Some(b':')) | (_, None) => {}
            (0, Some(b' ' | b'\t')) => {
                return Refusal::header(
                    "A header line of the request starts with white space, which folds it into the line before. Send \
                     each header on one line.",
                );
            }
            (0, Some(b'\r')) => {}
            (1.., Some(b' ' | b'\t')) => {
                return Refusal::header(format!(
                    "The header name {:?} is followed by white space. Put the colon right behind the name.",
                    excerpt(name)
                ));
            }
            _ => break,
        }
    }
    Refusal::header(
        "A header line of the request has no name, no colon, or a name with a forbidden character. Send Name: value.",
    )
}
