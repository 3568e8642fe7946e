//! Offsets, each meaning its own type, so that a log's marks cannot be mixed up; plain values for any core.

use std::fmt;

/// Position of a record in a partition, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Offset(pub u64);

impl Offset {
    /// The offset `count` records later; saturates at the end of the number range.
    #[must_use]
    pub fn plus(self, count: u64) -> Offset {
        Offset(self.0.saturating_add(count))
    }

    /// How many records lie from `start` up to this offset; 0 when `start` is above.
    #[must_use]
    pub fn since(self, start: Offset) -> u64 {
        self.0.saturating_sub(start.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

macro_rules! mark {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
        pub struct $name(Offset);

        impl $name {
            /// The mark at `offset`.
            #[must_use]
            pub fn at(offset: Offset) -> Self {
                Self(offset)
            }

            /// Where the mark stands.
            #[must_use]
            pub fn offset(self) -> Offset {
                self.0
            }

            /// Moves the mark to `offset`.
            ///
            /// # Panics
            /// When that is backwards: marks only move forward, and a mark that does not is our own fault.
            pub fn advance(&mut self, offset: Offset) {
                assert!(offset >= self.0, "{} moved back from {} to {offset}", stringify!($name), self.0);
                self.0 = offset;
            }
        }
    };
}

mark! {
    /// First offset kept.
    LogStart
}
mark! {
    /// The offset that the next record gets.
    LogEnd
}
mark! {
    /// Everything below it is synced on this node.
    DurableOffset
}
mark! {
    /// Everything below it is visible to consumers.
    HighWaterMark
}
