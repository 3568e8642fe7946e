//! What a payload carries: which run and which message it is, and when it was sent; pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes of a stamp: a multiple of three, so that its base64 is the same whatever follows.
pub(super) const STAMP_BYTES: usize = 18;

/// The start of a payload: run, number and send time, little-endian.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stamp {
    /// Tells the messages of this run from those of others on the same topic.
    pub(super) run: u16,
    /// Counts the run's messages from 0.
    pub(super) number: u64,
    /// When latency starts to count, by the generator's clock.
    pub(super) started_ns: u64,
}

impl Stamp {
    pub(super) fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..2].copy_from_slice(&self.run.to_le_bytes());
        bytes[2..10].copy_from_slice(&self.number.to_le_bytes());
        bytes[10..].copy_from_slice(&self.started_ns.to_le_bytes());
        bytes
    }

    /// Reads the stamp from the first 24 characters of a payload's base64; none if it is no base64.
    pub(super) fn of_base64(characters: &[u8]) -> Option<Stamp> {
        let mut bytes = [0; STAMP_BYTES];
        let length = STANDARD.decode_slice_unchecked(characters, &mut bytes).ok()?;
        if length != STAMP_BYTES {
            return None;
        }
        Some(Stamp {
            run: u16::from_le_bytes(bytes[..2].try_into().ok()?),
            number: u64::from_le_bytes(bytes[2..10].try_into().ok()?),
            started_ns: u64::from_le_bytes(bytes[10..].try_into().ok()?),
        })
    }
}
