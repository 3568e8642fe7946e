//! Batches of payloads, `application/vnd.ringmain.batch`; pure, on the core that owns the connection.
//!
//! A batch is, repeated, a length of 32 bits, little-endian, then that many bytes.
//!
//! It is the shortest form that a batch can have and takes any bytes; keys, headers and ids have no place in it.

use std::ops::Range;

use crate::http::Refusal;

/// Bytes before each payload.
pub const LENGTH_BYTES: usize = size_of::<u32>();

/// The places of a batch's payloads, in order; see [`batch_ranges`].
#[derive(Clone, Debug)]
pub struct BatchRanges<'b> {
    body: &'b [u8],
    at: usize,
    count: u64,
}

/// Where in `body` the payloads of a batch stand: ranges, so that they need not be copied.
///
/// # Errors
///
/// 400 `invalid_batch` with the payload's number, counted from 1, when the body ends inside a length or a payload. Nothing
/// follows an error.
#[must_use]
pub fn batch_ranges(body: &[u8]) -> BatchRanges<'_> {
    BatchRanges { body, at: 0, count: 0 }
}

impl Iterator for BatchRanges<'_> {
    type Item = Result<Range<usize>, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.body[self.at..];
        if rest.is_empty() {
            return None;
        }
        self.count += 1;
        let Some((length, payloads)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Some(Err(self.cut_short(rest.len(), "its length of 4 bytes")));
        };
        let announced = u32::from_le_bytes(*length);
        match usize::try_from(announced) {
            Ok(length) if length <= payloads.len() => {
                let start = self.at + LENGTH_BYTES;
                self.at = start + length;
                Some(Ok(start..self.at))
            }
            _ => Some(Err(self.cut_short(payloads.len(), &format!("its {announced} bytes")))),
        }
    }
}

impl BatchRanges<'_> {
    #[cold]
    fn cut_short(&mut self, left: usize, what: &str) -> Refusal {
        self.at = self.body.len();
        let message = format!(
            "In message {} of the body: only {left} bytes are left for {what}. Send for each message its length as an \
             unsigned number of 32 bits, little-endian, then that many bytes.",
            self.count
        );
        Refusal::new(400, "invalid_batch", message)
    }
}

/// Appends a payload to a batch.
///
/// # Panics
///
/// When the payload is longer than 4 GiB less one byte.
pub fn encode_batch_payload(out: &mut Vec<u8>, payload: &[u8]) {
    let length = u32::try_from(payload.len());
    assert!(length.is_ok(), "a payload of a batch is shorter than 4 GiB");
    out.extend_from_slice(&length.unwrap_or_default().to_le_bytes());
    out.extend_from_slice(payload);
}
