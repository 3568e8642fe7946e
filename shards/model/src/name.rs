//! Topic names and the rule that they keep; plain values for any core.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::limit::TOPIC_NAME_BYTES_MAX;

/// A valid topic name: 1 to 255 bytes of UTF-8 without control characters, not `.` or `..`, not starting with `$`.
///
/// Cloning shares the text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicName(Arc<str>);

/// Why a text is no topic name. The message says what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// No text at all.
    #[error("a topic name is missing: give 1 to {TOPIC_NAME_BYTES_MAX} bytes of text")]
    Empty,
    /// Above the length limit.
    #[error("this topic name has {0} bytes: at most {TOPIC_NAME_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// Holds a control character.
    #[error("this topic name holds a control character: use printable text")]
    Control,
    /// `.` or `..`.
    #[error("`.` and `..` cannot be topic names: they mean places in a path")]
    Dots,
    /// Starts with `$`.
    #[error("topic names that start with `$` belong to the broker: choose another first letter")]
    Reserved,
}

impl TopicName {
    /// Checks a text against the rule.
    ///
    /// # Errors
    /// The first part of the rule that the text breaks.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > TOPIC_NAME_BYTES_MAX {
            return Err(NameError::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(NameError::Control);
        }
        if text == "." || text == ".." {
            return Err(NameError::Dots);
        }
        if text.starts_with('$') {
            return Err(NameError::Reserved);
        }
        Ok(Self(Arc::from(text)))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}
