//! The first block of a segment of either kind: magic, checksum, version around what it says of itself. Pure, for any core.

use crate::fields::Fields;
use crate::position::BLOCK_BYTES;

/// Bytes of such a header: one block.
pub(crate) const FILE_HEADER_BYTES: usize = 4096;
const _: () = assert!(FILE_HEADER_BYTES as u64 == BLOCK_BYTES);
/// Magic, checksum and version.
pub(crate) const PREFIX_BYTES: usize = 16;
/// What the checksum covers begins here.
const SUMMED_FROM: usize = 12;

/// Why a block is no header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderDamage {
    /// Too short, another magic, a wrong checksum, or content that cannot be.
    #[error("the segment's header is damaged")]
    Damaged,
    /// A whole header of a newer version.
    #[error("the segment has version {0}, this program reads version {known}", known = SEGMENT_VERSION)]
    Newer(u32),
}

/// The version of both headers.
pub(crate) const SEGMENT_VERSION: u32 = 1;

/// The block of a header with that content.
pub(crate) fn encode_header(magic: [u8; 8], content: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut block = Vec::with_capacity(FILE_HEADER_BYTES);
    block.extend_from_slice(&magic);
    block.extend_from_slice(&[0; 4]);
    block.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
    content(&mut block);
    block.resize(FILE_HEADER_BYTES, 0);
    let checksum = crc32c::crc32c(&block[SUMMED_FROM..]);
    block[8..SUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// Reads the content of a header by `read`, which must take all that is not zero.
///
/// # Errors
/// What is wrong with it. A newer version is told only of a header whose checksum is right.
pub(crate) fn decode_header<H>(
    magic: [u8; 8],
    block: &[u8],
    read: impl FnOnce(&mut Fields<'_>) -> Option<H>,
) -> Result<H, HeaderDamage> {
    let damaged = HeaderDamage::Damaged;
    let block = block.get(..FILE_HEADER_BYTES).ok_or(damaged)?;
    let mut fields = Fields::of(block);
    let has_magic = fields.take(8) == Some(magic.as_slice());
    if !has_magic || fields.u32() != Some(crc32c::crc32c(&block[SUMMED_FROM..])) {
        return Err(damaged);
    }
    let version = fields.u32().ok_or(damaged)?;
    if version != SEGMENT_VERSION {
        return Err(HeaderDamage::Newer(version));
    }
    let header = read(&mut fields).ok_or(damaged)?;
    fields.zeros(fields.left()).ok_or(damaged)?;
    Ok(header)
}
