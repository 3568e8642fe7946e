//! The header fields that decide where a message ends and what follows it; pure, on the core that owns the connection.
//!
//! Rules: RFC 9112 sections 6.1 to 6.3 and 9.3, RFC 9110 sections 7.2, 8.6 and 10.1.1.

use httparse::Header;

use super::headers::{list, trim};
use super::host;
use super::refusal::excerpt;
use super::{Framing, Refusal, Version};

/// What one pass over the fields of a head found.
#[derive(Default)]
pub(crate) struct Fields<'b> {
    host: Option<&'b [u8]>,
    host_repeated: bool,
    content_length: Option<u64>,
    codings: Codings,
    connection_close: bool,
    connection_keep_alive: bool,
    expect_continue: bool,
    expect_unknown: Option<&'b [u8]>,
}

/// The transfer codings of a head, as one list over all its `Transfer-Encoding` fields.
#[derive(Default)]
struct Codings {
    present: bool,
    /// The coding named last is `chunked`.
    chunked_last: bool,
    /// `chunked` stands before another coding, or twice.
    chunked_inside: bool,
    /// A coding of the registry that is not implemented here.
    registered: bool,
    /// A coding that is in no registry, or an element that is not a plain token.
    unknown: bool,
}

impl<'b> Fields<'b> {
    /// Sorts the fields that matter; refuses what is wrong in itself.
    pub(crate) fn collect(headers: &[Header<'b>]) -> Result<Self, Refusal> {
        let mut fields = Self::default();
        for header in headers {
            // Names of other lengths cannot matter, and the length is at hand.
            match header.name.len() {
                4 if header.name.eq_ignore_ascii_case("host") => {
                    fields.host_repeated |= fields.host.is_some();
                    fields.host = Some(header.value);
                }
                6 if header.name.eq_ignore_ascii_case("expect") => fields.expect(header.value),
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    for option in list(header.value) {
                        fields.connection_close |= option.eq_ignore_ascii_case(b"close");
                        fields.connection_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if header.name.eq_ignore_ascii_case("content-length") => fields.content_length(header.value)?,
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => fields.codings.add(header.value),
                _ => {}
            }
        }
        Ok(fields)
    }

    fn expect(&mut self, value: &'b [u8]) {
        for expectation in list(value) {
            if expectation.eq_ignore_ascii_case(b"100-continue") {
                self.expect_continue = true;
            } else {
                self.expect_unknown = Some(expectation);
            }
        }
    }

    fn content_length(&mut self, value: &'b [u8]) -> Result<(), Refusal> {
        for element in value.split(|&byte| byte == b',') {
            let length = decimal(trim(element)).ok_or_else(|| length_malformed(value))?;
            if self.content_length.is_some_and(|earlier| earlier != length) {
                return Err(Refusal::framing(
                    "The request names two different Content-Lengths, so its end is ambiguous. Send one.",
                ));
            }
            self.content_length = Some(length);
        }
        Ok(())
    }

    /// The host that the request is for: exactly one field in HTTP/1.1, at most one in HTTP/1.0, and the authority of an
    /// absolute-form target before either.
    pub(crate) fn host(&self, version: Version, target: &'b str) -> Result<Option<&'b str>, Refusal> {
        if self.host_repeated {
            return Err(invalid_host("The request has more than one Host field. Send exactly one."));
        }
        let named = match self.host {
            Some(value) => Some(host::authority(value).ok_or_else(|| malformed_host(value))?),
            None if version == Version::Http11 => {
                return Err(invalid_host("The request has no Host field, which HTTP/1.1 requires. Send exactly one."));
            }
            None => None,
        };
        if target.starts_with('/') {
            return Ok(named);
        }
        match host::split_absolute_form(target) {
            Some((text, _)) => {
                let authority = host::authority(text.as_bytes());
                Ok(Some(authority.ok_or_else(|| malformed_host(text.as_bytes()))?))
            }
            None => Ok(named),
        }
    }

    /// How the body of a request ends.
    pub(crate) fn request_framing(&self, version: Version) -> Result<Framing, Refusal> {
        if !self.codings.present {
            return Ok(self.content_length.map_or(Framing::None, Framing::Length));
        }
        if version == Version::Http10 {
            return Err(Refusal::framing(
                "The request is HTTP/1.0 and has a Transfer-Encoding, which that version does not know. Send \
                 Content-Length, or speak HTTP/1.1.",
            ));
        }
        self.codings_valid()?;
        if !self.codings.chunked_last {
            return Err(Refusal::framing(
                "The request's last transfer coding is not chunked, so its end cannot be found. Send \
                 Transfer-Encoding: chunked, or Content-Length.",
            ));
        }
        Ok(Framing::Chunked)
    }

    /// How the body of a response ends, unless its status or the request's method says that there is none.
    pub(crate) fn response_framing(&self) -> Result<Framing, Refusal> {
        if !self.codings.present {
            return Ok(self.content_length.map_or(Framing::UntilClose, Framing::Length));
        }
        self.codings_valid()?;
        Ok(if self.codings.chunked_last { Framing::Chunked } else { Framing::UntilClose })
    }

    /// Refuses what neither a request nor a response may have.
    fn codings_valid(&self) -> Result<(), Refusal> {
        if self.content_length.is_some() {
            return Err(Refusal::framing(
                "The request has both Content-Length and Transfer-Encoding, so its end is ambiguous. Send one of them.",
            ));
        }
        if self.codings.chunked_inside {
            return Err(Refusal::framing(
                "The request's transfer coding chunked is not the last one, or is applied twice. Send it once, last.",
            ));
        }
        if self.codings.unknown || (self.codings.registered && self.codings.chunked_last) {
            return Err(Refusal::new(
                501,
                "transfer_coding_not_implemented",
                "The request uses a transfer coding other than chunked. Send Transfer-Encoding: chunked, or \
                 Content-Length.",
            ));
        }
        Ok(())
    }

    /// Whether the connection may carry another message after this one.
    pub(crate) fn keep_alive(&self, version: Version) -> bool {
        !self.connection_close && (version == Version::Http11 || self.connection_keep_alive)
    }

    /// Whether the client waits for 100 before it sends the body. HTTP/1.0 has no expectations: they are ignored there.
    pub(crate) fn expects_continue(&self, version: Version, framing: Framing) -> Result<bool, Refusal> {
        if version == Version::Http10 {
            return Ok(false);
        }
        if let Some(unknown) = self.expect_unknown {
            let message = format!(
                "The expectation {:?} is not supported. Send Expect: 100-continue, or no Expect at all.",
                excerpt(unknown)
            );
            return Err(Refusal::new(417, "expectation_failed", message));
        }
        Ok(self.expect_continue && !matches!(framing, Framing::None | Framing::Length(0)))
    }
}

impl Codings {
    fn add(&mut self, value: &[u8]) {
        self.present = true;
        for coding in list(value) {
            self.chunked_inside |= self.chunked_last;
            self.chunked_last = coding.eq_ignore_ascii_case(b"chunked");
            if !self.chunked_last {
                let registered = [&b"gzip"[..], b"x-gzip", b"deflate", b"compress", b"x-compress", b"identity"];
                let known = registered.iter().any(|name| coding.eq_ignore_ascii_case(name));
                self.registered |= known;
                self.unknown |= !known;
            }
        }
    }
}

/// One decimal number without sign that fits 64 bits.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

#[cold]
fn length_malformed(value: &[u8]) -> Refusal {
    Refusal::framing(format!(
        "The request's Content-Length {:?} is not a decimal number of bytes below 2^64 without sign. Send the body's \
         length, or Transfer-Encoding: chunked.",
        excerpt(value)
    ))
}

#[cold]
fn malformed_host(value: &[u8]) -> Refusal {
    invalid_host(format!(
        "The request's host {:?} is empty or not a host name or address with an optional port. Send one such as \
         broker.example:8080.",
        excerpt(value)
    ))
}

#[cold]
fn invalid_host(message: impl Into<String>) -> Refusal {
    Refusal::new(400, "invalid_host", message)
}
