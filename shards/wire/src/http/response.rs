//! Response heads, for the client's side: bytes to status and fields; pure, on the core that owns the connection.

use std::mem::MaybeUninit;

use httparse::{Error, Header, Response, Status};

use super::framing::Fields;
use super::request::{HEADERS_MAX, refuse_bare_line_feeds, skip_empty_lines, window};
use super::{Framing, HeadLimits, Headers, Method, Refusal, Version};

/// The head of a response, borrowed from the bytes that it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHeadDecoded<'b> {
    /// Status code, 100 to 999.
    pub status: u16,
    /// Version of the status line.
    pub version: Version,
    /// How the body ends. [`Framing::None`] for answers to `HEAD`, for 1xx, 204 and 304, and for 2xx to `CONNECT`.
    pub framing: Framing,
    /// Whether another request may follow on this connection. False when the body ends with the connection.
    pub keep_alive: bool,
    /// All header fields.
    pub headers: Headers<'b>,
}

/// Decodes the response head at the start of `input`, together with the number of bytes that it takes. `Ok(None)` means
/// that more bytes are needed. An interim response (1xx) is a head of its own; another follows it.
///
/// # Errors
///
/// A [`Refusal`] with status 502 and code `invalid_response`; the connection cannot be used further.
pub fn decode_response_head<'b>(
    input: &'b [u8],
    limits: &HeadLimits,
    request_method: Method,
) -> Result<Option<(ResponseHeadDecoded<'b>, usize)>, Refusal> {
    decode(input, limits, request_method).map_err(Refusal::of_response)
}

fn decode<'b>(
    input: &'b [u8],
    limits: &HeadLimits,
    request_method: Method,
) -> Result<Option<(ResponseHeadDecoded<'b>, usize)>, Refusal> {
    let Some(start) = skip_empty_lines(input)? else { return Ok(None) };
    let window = window(&input[start..], limits);
    let headers_max = limits.headers_max.min(HEADERS_MAX);
    let mut storage = [const { MaybeUninit::<Header<'b>>::uninit() }; HEADERS_MAX];
    let mut response = Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    match parser.parse_response_with_uninit_headers(&mut response, window, &mut storage[..headers_max]) {
        Ok(Status::Complete(length)) => {
            refuse_bare_line_feeds(&window[..length])?;
            Ok(Some((interpret(&response, request_method)?, start + length)))
        }
        Ok(Status::Partial) if window.len() == limits.head_bytes_max => Err(Refusal::head_too_large(limits, true)),
        Ok(Status::Partial) => Ok(None),
        Err(Error::TooManyHeaders) => Err(Refusal::too_many_headers(headers_max)),
        Err(error) => {
            Err(Refusal::request(format!("The request is malformed: {error}. Is the peer an HTTP/1.1 server?")))
        }
    }
}

fn interpret<'b>(response: &Response<'_, 'b>, request_method: Method) -> Result<ResponseHeadDecoded<'b>, Refusal> {
    let (Some(minor), Some(status)) = (response.version, response.code) else {
        return Err(Refusal::request("The request has no status line."));
    };
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let fields = Fields::collect(response.headers)?;
    let tunnel = request_method == Method::Connect && (200..300).contains(&status);
    let framing = if bodiless(status) || request_method == Method::Head || tunnel {
        Framing::None
    } else {
        fields.response_framing()?
    };
    Ok(ResponseHeadDecoded {
        status,
        version,
        framing,
        keep_alive: framing != Framing::UntilClose && fields.keep_alive(version),
        headers: Headers::new(response.headers),
    })
}

/// Statuses that never carry a body (RFC 9110 sections 6.4.1, 15.2, 15.3.5 and 15.4.5).
pub(super) fn bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
