//! Names of consumer groups and the rule that they keep; plain values for any core.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::limit::GROUP_NAME_BYTES_MAX;

/// A valid group name: 1 to 255 bytes of UTF-8 without control characters, and neither `.` nor `..`, which clients take out of paths.
/// Cloning shares the text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupName(Arc<str>);

/// Why a text is no group name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupNameError {
    /// No text, or above the length limit.
    #[error("this group name has {0} bytes: give 1 to {GROUP_NAME_BYTES_MAX}")]
    Length(usize),
    /// Holds a control character.
    #[error("this group name holds a control character: use printable text")]
    Control,
    /// Is `.` or `..`.
    #[error("a group cannot be named . or ..: clients take these out of paths")]
    Dots,
}

impl GroupName {
    /// Checks a text against the rule.
    ///
    /// # Errors
    /// The part of the rule that the text breaks.
    pub fn new(text: &str) -> Result<Self, GroupNameError> {
        if text.is_empty() || text.len() > GROUP_NAME_BYTES_MAX {
            return Err(GroupNameError::Length(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(GroupNameError::Control);
        }
        if text == "." || text == ".." {
            return Err(GroupNameError::Dots);
        }
        Ok(Self(Arc::from(text)))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for GroupName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}
