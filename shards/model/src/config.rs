//! What a topic is told when it is made; plain values for any core.

use crate::limit::{
    ACK_WAIT_MS_DEFAULT, ACK_WAIT_MS_MAX, ACK_WAIT_MS_MIN, RETENTION_BYTES_MAX, RETENTION_MESSAGES_DEFAULT,
    RETENTION_MESSAGES_MAX,
};

/// Where a topic's records live.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Storage {
    /// In the broker's memory: durability is immediate and ends with the process.
    #[default]
    Memory,
    /// In the shard's log and on the disk: what is acknowledged survives the process and the power.
    Wal,
}

impl Storage {
    /// The word for it in requests and stats.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Storage::Memory => "memory",
            Storage::Wal => "wal",
        }
    }
}

/// How much of a topic is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Messages kept, at least 1.
    pub max_messages: u64,
    /// Bytes of records kept; the newest message stays even when it alone is larger.
    pub max_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_messages: RETENTION_MESSAGES_DEFAULT, max_bytes: RETENTION_BYTES_MAX }
    }
}

impl Retention {
    /// Whether both numbers are within their limits.
    ///
    /// # Errors
    /// A sentence that names the field, its value and the range.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=RETENTION_MESSAGES_MAX).contains(&self.max_messages) {
            return Err(format!(
                "retention.max_messages is {}: choose 1 to {RETENTION_MESSAGES_MAX}",
                self.max_messages
            ));
        }
        if !(1..=RETENTION_BYTES_MAX).contains(&self.max_bytes) {
            return Err(format!("retention.max_bytes is {}: choose 1 to {RETENTION_BYTES_MAX}", self.max_bytes));
        }
        Ok(())
    }
}

/// A topic's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicConfig {
    /// Where records live.
    pub storage: Storage,
    /// How much is kept.
    pub retention: Retention,
    /// How long a group's member may hold a message without a word before it goes to another, in milliseconds.
    pub ack_wait_ms: u64,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self { storage: Storage::default(), retention: Retention::default(), ack_wait_ms: ACK_WAIT_MS_DEFAULT }
    }
}

impl TopicConfig {
    /// Whether all numbers are within their limits.
    ///
    /// # Errors
    /// A sentence that names the field, its value and the range.
    pub fn check(&self) -> Result<(), String> {
        self.retention.check()?;
        if !(ACK_WAIT_MS_MIN..=ACK_WAIT_MS_MAX).contains(&self.ack_wait_ms) {
            return Err(format!("ack_wait_ms is {}: choose {ACK_WAIT_MS_MIN} to {ACK_WAIT_MS_MAX}", self.ack_wait_ms));
        }
        Ok(())
    }
}
