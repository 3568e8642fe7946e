//! Little-endian fields, read in order from bytes that may hold anything. Pure, for any core.

use bytes::Bytes;

/// The rest of some bytes; each read takes from its front, or gives `None` and means damage.
#[derive(Debug)]
pub(crate) struct Fields<'b> {
    rest: &'b [u8],
}

impl<'b> Fields<'b> {
    pub(crate) fn of(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reserved bytes: `None` unless all are 0.
    pub(crate) fn zeros(&mut self, count: usize) -> Option<()> {
        self.take(count)?.iter().all(|byte| *byte == 0).then_some(())
    }

    /// A text behind its 16-bit length.
    pub(crate) fn text(&mut self) -> Option<&'b str> {
        let length = usize::from(self.u16()?);
        std::str::from_utf8(self.take(length)?).ok()
    }
}

/// Appends a text behind its 16-bit length. Names are bounded far below that.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The length of something bounded far below 4 GiB, as it is stored.
pub(crate) fn length32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Appends `count` zero bytes to a gathered write, without making them.
pub(crate) fn push_zeros(parts: &mut Vec<Bytes>, mut count: usize) {
    while count > 0 {
        let part = count.min(ZEROS.len());
        parts.push(Bytes::from_static(&ZEROS[..part]));
        count -= part;
    }
}
