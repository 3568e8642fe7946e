//! Percent encoding of path segments and queries (RFC 3986 section 2); pure, on the core that owns the connection.

use std::borrow::Cow;

/// What is wrong with an escaped text.
pub(super) enum Fault {
    /// A `%` without two hexadecimal digits behind it.
    Escape,
    /// The decoded bytes are not UTF-8; overlong forms count as that.
    Utf8,
    /// The decoded text has a NUL.
    Nul,
}

/// Decodes each escape once. With `plus_is_space`, as in queries, `+` stands for a space.
pub(super) fn decode(text: &str, plus_is_space: bool) -> Result<Cow<'_, str>, Fault> {
    let bytes = text.as_bytes();
    if memchr::memchr3(b'%', if plus_is_space { b'+' } else { b'%' }, 0, bytes).is_none() {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let (high, low) = (hex(*high).ok_or(Fault::Escape)?, hex(*low).ok_or(Fault::Escape)?);
                (high << 4 | low, after)
            }
            (b'%', _) => return Err(Fault::Escape),
            (b'+', _) if plus_is_space => (b' ', after),
            _ => (*first, after),
        };
        if byte == 0 {
            return Err(Fault::Nul);
        }
        decoded.push(byte);
        rest = after;
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| Fault::Utf8)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Upper-case digits, as RFC 3986 section 2.1 asks of those who write.
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Text as one path segment: all but unreserved characters are escaped, `/` among them. The segments `.` and `..`, which
/// clients resolve even when they are escaped, cannot be sent faithfully; names never are those.
#[must_use]
pub fn percent_encode_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => escape(byte, &mut encoded),
        }
    }
    encoded
}

/// Appends `%XX`.
pub(super) fn escape(byte: u8, out: &mut String) {
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}
