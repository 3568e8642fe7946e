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
    /// What tells a repeat of it from another message.
    pub id: Option<MessageId>,
}

/// A client's name for one message, so that a repeat is stored once. Hashes, because the names may be long and a window of them
/// is kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId {
    /// 128 bits of a cryptographic hash of the name.
    pub name: [u8; 16],
    /// 64 bits of one of body, key and headers: the same name with another of these is a mistake.
    pub content: u64,
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
