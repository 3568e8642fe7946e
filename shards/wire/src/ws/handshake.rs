//! The request that turns an HTTP connection into a WebSocket; pure, on the core that owns the connection.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use sha1::{Digest as _, Sha1};

use crate::http::{Framing, Method, Refusal, RequestHead, Version};

/// What the answer to a key is derived with (RFC 6455 section 1.3).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Bytes that a key stands for.
const KEY_BYTES: usize = 16;

/// A key is a number to be used once: what its last symbol's spare bits say does not matter.
const KEY_ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// The `Sec-WebSocket-Accept` that answers a `Sec-WebSocket-Key`: the server sends it, the client compares it.
///
/// # Errors
///
/// 400 `invalid_handshake` if the key is not the base64 of 16 bytes.
pub fn accept_key(key: &str) -> Result<String, Refusal> {
    let mut decoded = [0; KEY_BYTES + 2];
    if KEY_ENGINE.decode_slice(key, &mut decoded) != Ok(KEY_BYTES) {
        return Err(invalid(
            "The Sec-WebSocket-Key is not 16 bytes in base64. Send 16 random bytes, encoded, each time.",
        ));
    }
    let digest = Sha1::new().chain_update(key).chain_update(KEY_SUFFIX).finalize();
    Ok(base64::engine::general_purpose::STANDARD.encode(digest))
}

/// Judges a request to become a WebSocket: the `Sec-WebSocket-Accept` to answer 101 with, and the subprotocol, if the client
/// offers any of those in `known`. The client's order decides, and names match exactly. Extensions are never agreed on. The
/// `Origin` is the caller's to judge, and so is the target.
///
/// # Errors
///
/// 405 `method_not_allowed` unless the method is GET. 426 `upgrade_required` if the request asks for no WebSocket, and 426
/// `websocket_version` if for another version than 13; both are to be answered with `Upgrade: websocket`,
/// `Connection: upgrade` and `Sec-WebSocket-Version: 13`. 400 `invalid_handshake` if the key is missing, repeated or
/// malformed, or if there is a body. The framing of the connection stays intact.
pub fn check_upgrade<'o>(head: &RequestHead<'_>, known: &[&'o str]) -> Result<(String, Option<&'o str>), Refusal> {
    if head.method != Method::Get {
        let message = "A WebSocket begins with a GET request. Send GET.";
        return Err(Refusal::new(405, "method_not_allowed", message));
    }
    if head.version != Version::Http11 {
        return Err(upgrade_required("HTTP/1.0 knows no upgrade. Send HTTP/1.1, with Upgrade: websocket."));
    }
    if !head.headers.lists("upgrade", "websocket") {
        return Err(upgrade_required(
            "This is a WebSocket's address, but the request does not ask for one. Send Upgrade: websocket and \
             Connection: Upgrade; if you did, a proxy on the way has removed them.",
        ));
    }
    if !head.headers.lists("connection", "upgrade") {
        return Err(upgrade_required(
            "The request has Upgrade: websocket, but its Connection field does not list Upgrade. Send Connection: \
             Upgrade; if you did, a proxy on the way has removed it.",
        ));
    }
    if only(head, "sec-websocket-version") != Some("13") {
        let message = "The request's Sec-WebSocket-Version is not 13, the only one known here. Send 13.";
        return Err(Refusal::new(426, "websocket_version", message));
    }
    if !matches!(head.framing, Framing::None | Framing::Length(0)) {
        return Err(invalid("A request that begins a WebSocket has no body. Send it without one."));
    }
    let Some(key) = only(head, "sec-websocket-key") else {
        return Err(invalid("The request has no Sec-WebSocket-Key, or more than one. Send exactly one."));
    };
    Ok((accept_key(key)?, subprotocol(head, known)))
}

/// The text of a field that stands in the head exactly once.
fn only<'b>(head: &RequestHead<'b>, name: &str) -> Option<&'b str> {
    let mut values = fields(head, name);
    values.next().filter(|_| values.next().is_none()).and_then(|value| str::from_utf8(value).ok())
}

/// The first of the client's subprotocols that is known here. The offer may be spread over several fields.
fn subprotocol<'o>(head: &RequestHead<'_>, known: &[&'o str]) -> Option<&'o str> {
    fields(head, "sec-websocket-protocol")
        .flat_map(|value| value.split(|&byte| byte == b','))
        .find_map(|offer| known.iter().find(|name| name.as_bytes() == offer.trim_ascii()).copied())
}

fn fields<'h, 'b>(head: &'h RequestHead<'b>, name: &'h str) -> impl Iterator<Item = &'b [u8]> + use<'h, 'b> {
    head.headers.iter().filter(move |(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[cold]
fn upgrade_required(message: &str) -> Refusal {
    Refusal::new(426, "upgrade_required", message)
}

#[cold]
fn invalid(message: &str) -> Refusal {
    Refusal::new(400, "invalid_handshake", message)
}
