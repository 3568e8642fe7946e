//! Payloads as base64, the way in which Go's `base64.StdEncoding` reads and writes it; pure, for any core.
//!
//! That is: the standard alphabet, padding required, CR and LF ignored anywhere, and bits of the last symbol that carry
//! nothing not looked at. streamq decodes with it, so its clients may rely on each of these.

use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine as _};
use base64::{DecodeError, encoded_len};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Decodes; an error says where and why, in a sentence without its full stop.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, String> {
    match ENGINE.decode(text) {
        Ok(bytes) => Ok(bytes),
        Err(_) if memchr::memchr2(b'\r', b'\n', text.as_bytes()).is_some() => {
            let joined: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
            ENGINE.decode(&joined).map_err(|error| explain(&error, &joined))
        }
        Err(error) => Err(explain(&error, text.as_bytes())),
    }
}

/// Appends the encoding of `bytes` to `out`.
pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    // Lengths of slices stay below isize::MAX, four thirds of which fit usize.
    let length = encoded_len(bytes.len(), true).unwrap_or(0);
    out.resize(start + length, 0);
    let written = ENGINE.encode_slice(bytes, &mut out[start..]);
    debug_assert_eq!(written, Ok(length), "the room is exact");
}

#[cold]
fn explain(error: &DecodeError, text: &[u8]) -> String {
    match *error {
        DecodeError::InvalidByte(at, b'-' | b'_') => {
            format!("the character at position {at} belongs to URL-safe base64")
        }
        DecodeError::InvalidByte(at, b'=') => format!("the padding at position {at} is misplaced"),
        DecodeError::InvalidByte(at, byte) => {
            format!("the character '{}' at position {at} is not in the alphabet", byte.escape_ascii())
        }
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding if !text.ends_with(b"=") => {
            format!("its length of {} characters is not a multiple of 4, so padding with = is missing", text.len())
        }
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => "its padding with = is wrong".to_owned(),
        DecodeError::InvalidLastSymbol(at, _) => format!("the last character, at position {at}, is impossible"),
    }
}
