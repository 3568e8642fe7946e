//! What tells a repeat of a message from another one: its id, and hashes of what it carries. On the core of the connection.

use ringmain_model::limit::MESSAGE_ID_BYTES_MAX;
use ringmain_model::{Message, MessageId};
use sha2::{Digest as _, Sha256};

use super::problem::Problem;

/// A client's id of a message, hashed, before it is known what the message carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IdName([u8; 16]);

impl IdName {
    /// Checks and hashes an id, which may be any bytes.
    pub(super) fn new(id: &[u8]) -> Result<Self, Problem> {
        if id.is_empty() {
            return Err(Problem::parameter(
                "the message's id is empty: leave it out, or give each message one of its own",
            ));
        }
        if id.len() > MESSAGE_ID_BYTES_MAX {
            let length = id.len();
            return Err(Problem::parameter(format!(
                "the message's id has {length} bytes: at most {MESSAGE_ID_BYTES_MAX} are allowed"
            )));
        }
        Ok(Self(first(&Sha256::digest(id))))
    }

    /// Names a message that is otherwise complete.
    pub(super) fn give(self, message: &mut Message) {
        message.id = Some(MessageId { name: self.0, content: content(message) });
    }
}

/// A hash of body, key and headers. Each part stands behind its length, so that no two messages give the same bytes. It is
/// stored with the message and must stay as it is, or repeats across an update would be taken for mistakes.
fn content(message: &Message) -> u64 {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(&message.payload);
    // No key is another thing than an empty one.
    part(if message.key.is_some() { b"k" } else { b"" });
    part(message.key.as_deref().unwrap_or_default());
    part(&(message.headers.len() as u64).to_le_bytes());
    for (name, value) in &message.headers {
        part(name);
        part(value);
    }
    u64::from_le_bytes(first(&hash.finalize()))
}

fn first<const LENGTH: usize>(hash: &[u8]) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes.copy_from_slice(&hash[..LENGTH]);
    bytes
}
