//! What a topic is told when it is made; plain values for any core.

use crate::limit::{
    ACK_WAIT_MS_DEFAULT, ACK_WAIT_MS_MAX, ACK_WAIT_MS_MIN, MAX_DELIVER_MAX, RETENTION_AGE_MS_MAX, RETENTION_AGE_MS_MIN,
    RETENTION_BYTES_MAX, RETENTION_MESSAGES_DEFAULT, RETENTION_MESSAGES_MAX,
};
use crate::name::TopicName;

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
    /// Milliseconds that a message is kept at most; for ever when `None`.
    pub max_age_ms: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_messages: RETENTION_MESSAGES_DEFAULT, max_bytes: RETENTION_BYTES_MAX, max_age_ms: None }
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
        if self.max_age_ms.is_some_and(|age| !(RETENTION_AGE_MS_MIN..=RETENTION_AGE_MS_MAX).contains(&age)) {
            return Err(format!(
                "retention.max_age_ms is {}: choose {RETENTION_AGE_MS_MIN} to {RETENTION_AGE_MS_MAX}",
                self.max_age_ms.unwrap_or_default()
            ));
        }
        if !(1..=RETENTION_BYTES_MAX).contains(&self.max_bytes) {
            return Err(format!("retention.max_bytes is {}: choose 1 to {RETENTION_BYTES_MAX}", self.max_bytes));
        }
        Ok(())
    }
}

/// A topic's settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicConfig {
    /// Where records live.
    pub storage: Storage,
    /// How much is kept.
    pub retention: Retention,
    /// How long a group's member may hold a message without a word before it goes to another, in milliseconds.
    pub ack_wait_ms: u64,
    /// How often a group gives a message out at most; without bound when `None`.
    pub max_deliver: Option<u32>,
    /// Where a message goes that was given out that often and not acknowledged; nowhere when `None`: it counts as dropped.
    pub dead_letter: Option<TopicName>,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            storage: Storage::default(),
            retention: Retention::default(),
            ack_wait_ms: ACK_WAIT_MS_DEFAULT,
            max_deliver: None,
            dead_letter: None,
        }
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
        if self.max_deliver.is_some_and(|times| !(1..=MAX_DELIVER_MAX).contains(&times)) {
            return Err(format!(
                "dead_letter.max_deliver is {}: choose 1 to {MAX_DELIVER_MAX}",
                self.max_deliver.unwrap_or_default()
            ));
        }
        if self.dead_letter.is_some() && self.max_deliver.is_none() {
            return Err("dead_letter has no max_deliver, so that nothing would ever go there: say after how many \
                        deliveries, or leave dead_letter out"
                .to_owned());
        }
        Ok(())
    }
}

/// A change of a topic's settings: what is `None` stays.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TopicPatch {
    /// Messages kept.
    pub max_messages: Option<u64>,
    /// Bytes kept.
    pub max_bytes: Option<u64>,
    /// Milliseconds kept; `Some(None)` takes the bound away.
    pub max_age_ms: Option<Option<u64>>,
    /// How long a member may hold a message, in milliseconds.
    pub ack_wait_ms: Option<u64>,
    /// How often a message is given out at most; `Some(None)` takes the bound away.
    pub max_deliver: Option<Option<u32>>,
    /// Where it goes then; `Some(None)` is nowhere.
    pub dead_letter: Option<Option<TopicName>>,
}

impl TopicPatch {
    /// The settings after the change.
    #[must_use]
    pub fn apply(self, to: &TopicConfig) -> TopicConfig {
        let retention = Retention {
            max_messages: self.max_messages.unwrap_or(to.retention.max_messages),
            max_bytes: self.max_bytes.unwrap_or(to.retention.max_bytes),
            max_age_ms: self.max_age_ms.unwrap_or(to.retention.max_age_ms),
        };
        TopicConfig {
            storage: to.storage,
            retention,
            ack_wait_ms: self.ack_wait_ms.unwrap_or(to.ack_wait_ms),
            max_deliver: self.max_deliver.unwrap_or(to.max_deliver),
            dead_letter: self.dead_letter.unwrap_or_else(|| to.dead_letter.clone()),
        }
    }
}
