//! Authorities: what a `Host` field or an absolute-form target may name; pure, on the core that owns the connection.
//!
//! Grammar: RFC 3986 section 3.2, without user information (RFC 9110 section 4.2.4), and with a host that is not empty
//! (section 4.2.1).

use std::net::Ipv6Addr;

/// The authority if it is well formed: a host name, an IPv4 address or a bracketed IPv6 address, then perhaps a port.
pub(crate) fn authority(value: &[u8]) -> Option<&str> {
    let text = str::from_utf8(value).ok()?;
    let (host_valid, after) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']')?;
            (address.parse::<Ipv6Addr>().is_ok(), after)
        }
        None => {
            let (host, after) = text.split_at(text.find(':').unwrap_or(text.len()));
            (registered_name(host.as_bytes()), after)
        }
    };
    let port_valid = match after.strip_prefix(':') {
        Some(digits) => port_number(digits),
        None => after.is_empty(),
    };
    (host_valid && port_valid).then_some(text)
}

/// At least one unreserved character, sub-delimiter or well-formed percent escape, and nothing else.
fn registered_name(name: &[u8]) -> bool {
    let mut rest = name;
    while let [first, after @ ..] = rest {
        rest = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => after,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => after,
            b'%' => match after {
                [high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => after,
                _ => return false,
            },
            _ => return false,
        };
    }
    !name.is_empty()
}

/// Decimal digits up to 65535; an empty port is allowed by the grammar and means the default one.
fn port_number(digits: &str) -> bool {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    plain && (digits.is_empty() || digits.parse::<u16>().is_ok())
}

/// The authority part of an absolute-form target, not yet checked, and what follows it. `None` for the other forms.
pub(crate) fn split_absolute_form(target: &str) -> Option<(&str, &str)> {
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let start = target.get(..scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then(|| &target[scheme.len()..])
    })?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some(rest.split_at(end))
}
