//! Messages from JSON, for the client's side; pure, for any core.

use jiff::Timestamp;
use serde::Deserialize;

use super::base64;
use super::publish::{HeaderMap, Text};
use crate::http::Refusal;

/// A message that owns what [`super::Message`] borrows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageOwned {
    /// Unique for ever.
    pub id: String,
    /// Position in its partition.
    pub offset: u64,
    /// Name of the topic.
    pub topic: String,
    /// The decoded content.
    pub payload: Vec<u8>,
    /// When the broker took it, in microseconds since 1970 UTC; finer digits are cut off.
    pub timestamp_us: i64,
    /// The partition, if it was sent.
    pub partition: Option<u32>,
    /// The key, from `key` or `key_base64`.
    pub key: Option<Vec<u8>>,
    /// Headers: those that are text in the order of `headers`, then those of `headers_base64`.
    pub headers: Vec<(String, Vec<u8>)>,
    /// How often it has been delivered, if it was sent.
    pub attempt: Option<u32>,
}

/// Decodes what [`super::encode_message`] writes. Of headers, the order among different names is kept, except that values
/// that are not text come last, and repeated names stand together.
///
/// # Errors
///
/// A [`Refusal`] with status 502 and code `invalid_message`: the peer is at fault.
pub fn decode_message(json: &[u8]) -> Result<MessageOwned, Refusal> {
    let raw: Raw<'_> = serde_json::from_slice(json).map_err(|error| {
        let why: String = error.to_string().chars().filter(|character| !character.is_control()).take(160).collect();
        invalid(&why)
    })?;
    let timestamp: Timestamp = raw.timestamp.0.parse().map_err(|_| invalid("its timestamp is not in RFC 3339"))?;
    let key = match (raw.key, raw.key_base64) {
        (Some(text), _) => Some(text.into_bytes()),
        (None, Some(text)) => Some(bytes(&text)?),
        (None, None) => None,
    };
    let textual = raw.headers.unwrap_or_default().0.into_iter().map(|(name, text)| Ok((name, text.into_bytes())));
    let binary = raw.headers_base64.unwrap_or_default().0.into_iter().map(|(name, text)| Ok((name, bytes(&text)?)));
    Ok(MessageOwned {
        id: raw.id,
        offset: raw.offset,
        topic: raw.topic,
        payload: raw.payload.map_or(Ok(Vec::new()), |Text(text)| bytes(&text))?,
        timestamp_us: timestamp.as_microsecond(),
        partition: raw.partition,
        key,
        headers: textual.chain(binary).collect::<Result<_, Refusal>>()?,
        attempt: raw.attempt,
    })
}

fn bytes(text: &str) -> Result<Vec<u8>, Refusal> {
    base64::decode(text).map_err(|why| invalid(&why))
}

#[cold]
fn invalid(why: &str) -> Refusal {
    Refusal::new(502, "invalid_message", format!("The message cannot be read: {why}. Is the peer a broker?"))
}

#[derive(Deserialize)]
struct Raw<'j> {
    #[serde(default)]
    id: String,
    offset: u64,
    topic: String,
    #[serde(borrow)]
    payload: Option<Text<'j>>,
    #[serde(borrow)]
    timestamp: Text<'j>,
    partition: Option<u32>,
    key: Option<String>,
    key_base64: Option<String>,
    headers: Option<HeaderMap>,
    headers_base64: Option<HeaderMap>,
    attempt: Option<u32>,
}
