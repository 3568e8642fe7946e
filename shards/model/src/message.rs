//! What a client sends, before it has an offset; plain values for any core.

use bytes::Bytes;

/// One message as a client gave it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// The body, any bytes, possibly none.
    pub payload: Bytes,
    /// What messages of one kind share; chooses the partition where a topic has several.
    pub key: Option<Bytes>,
    /// Names and values in the order given; a name may stand more than once.
    pub headers: Vec<(Bytes, Bytes)>,
}

impl Message {
    /// A message of just a body.
    #[must_use]
    pub fn of(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), ..Self::default() }
    }

    /// Bytes that count against the message limit: body, key, and the headers' names and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.payload.len() + self.key.as_ref().map_or(0, Bytes::len) + headers
    }
}
