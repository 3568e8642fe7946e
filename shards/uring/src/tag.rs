//! The 64 bits that the kernel hands back with each completion: whose it is. Lives on the core of its ring.

/// The most slots that a tag can tell apart.
pub(crate) const SLOTS_MAX: u32 = 1 << 24;

/// What an operation does, and so who is to be told of its completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Kind {
    Wake = 1,
    Accept = 2,
    AcceptCancel = 3,
    Receive = 4,
    ReceiveCancel = 5,
    Send = 6,
    SendCancel = 7,
    CancelAll = 8,
    /// A write, read, sync, or anything else that is done with files.
    File = 9,
    /// The sync that follows a write.
    FileSync = 10,
}

impl Kind {
    fn from_bits(bits: u8) -> Option<Kind> {
        Some(match bits {
            1 => Kind::Wake,
            2 => Kind::Accept,
            3 => Kind::AcceptCancel,
            4 => Kind::Receive,
            5 => Kind::ReceiveCancel,
            6 => Kind::Send,
            7 => Kind::SendCancel,
            8 => Kind::CancelAll,
            9 => Kind::File,
            10 => Kind::FileSync,
            _ => return None,
        })
    }

    /// Whether memory or a descriptor of ours must stay until the operation has completed. Cancels
    /// need nothing, and their successes are never reported.
    pub(crate) fn holds_memory(self) -> bool {
        matches!(self, Kind::Wake | Kind::Accept | Kind::Receive | Kind::Send) || self.is_file()
    }

    /// Whether its completion is told before those of sockets.
    pub(crate) fn is_file(self) -> bool {
        matches!(self, Kind::File | Kind::FileSync)
    }
}

/// Kind, slot and generation. A completion whose generation is not that of the slot finds nobody.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tag {
    pub(crate) kind: Kind,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Tag {
    /// A tag of something of which each ring has only one.
    pub(crate) fn of_ring(kind: Kind) -> Tag {
        Tag { kind, slot: 0, generation: 0 }
    }

    /// Layout from the top: 8 bits kind, 24 bits slot, 32 bits generation.
    pub(crate) fn to_bits(self) -> u64 {
        debug_assert!(self.slot < SLOTS_MAX, "the slot does not fit the tag");
        (u64::from(self.kind as u8) << 56) | (u64::from(self.slot) << 32) | u64::from(self.generation)
    }

    /// The reverse of [`Tag::to_bits`]; none when the kind is not one of ours.
    #[expect(clippy::cast_possible_truncation, reason = "each part is masked to its own width before the cast")]
    pub(crate) fn from_bits(bits: u64) -> Option<Tag> {
        Some(Tag {
            kind: Kind::from_bits((bits >> 56) as u8)?,
            slot: ((bits >> 32) & u64::from(SLOTS_MAX - 1)) as u32,
            generation: (bits & u64::from(u32::MAX)) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, SLOTS_MAX, Tag};

    #[test]
    fn a_tag_survives_the_way_through_the_kernel() {
        for kind in (0..=u8::MAX).filter_map(Kind::from_bits) {
            for (slot, generation) in [(0, 0), (1, 2), (SLOTS_MAX - 1, u32::MAX)] {
                let tag = Tag { kind, slot, generation };
                assert_eq!(Tag::from_bits(tag.to_bits()), Some(tag));
            }
        }
    }

    #[test]
    fn bits_of_nobody_make_no_tag() {
        assert_eq!(Tag::from_bits(0), None);
        assert_eq!(Tag::from_bits(u64::MAX), None);
    }
}
