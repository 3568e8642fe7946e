//! Batches of payloads, `application/vnd.ringmain.batch`; pure, on the core that owns the connection.
//!
//! A batch is, repeated, a length of 32 bits, little-endian, then that many bytes.
//!
//! It is the shortest form that a batch can have and takes any bytes; keys, headers and ids have no place in it.

use std::ops::Range;

use crate::http::Refusal;

/// Bytes before each payload.
pub const LENGTH_BYTES: usize = size_of::<u32>();

/// Finds the payloads of a batch while its body arrives. It says where they stand, so that they need not be copied.
#[derive(Clone, Debug)]
pub struct BatchDecoder {
    body_bytes_max: usize,
    /// Where the next payload's length stands.
    at: usize,
    count: u64,
}

impl BatchDecoder {
    /// A decoder for a body of `body_bytes_max` bytes, or, where its length is not known beforehand, of at most so many.
    #[must_use]
    pub fn new(body_bytes_max: usize) -> Self {
        Self { body_bytes_max, at: 0, count: 0 }
    }

    /// Payloads found so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where in the body the next payload stands, as soon as its length has come: the payload itself may be on its way, but
    /// it ends within the bytes that the body may have. `body` is all that has come. Nothing when the next length has not
    /// come whole: for a body that is there whole, of exactly the announced bytes, that means that it has ended.
    ///
    /// # Errors
    ///
    /// 400 `invalid_batch` with the payload's number, counted from 1, when the body must end inside a length or a payload.
    /// Nothing can be decoded after it.
    pub fn decode(&mut self, body: &[u8]) -> Result<Option<Range<usize>>, Refusal> {
        let rest = body.get(self.at..).unwrap_or_default();
        let left = self.body_bytes_max - self.at;
        if !rest.is_empty() && left < LENGTH_BYTES {
            return Err(self.cut_short(left, "its length of 4 bytes"));
        }
        let Some(length) = rest.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let (announced, left) = (u32::from_le_bytes(*length), left - LENGTH_BYTES);
        match usize::try_from(announced) {
            Ok(length) if length <= left => {
                let start = self.at + LENGTH_BYTES;
                self.at = start + length;
                self.count += 1;
                Ok(Some(start..self.at))
            }
            _ => Err(self.cut_short(left, &format!("its {announced} bytes"))),
        }
    }

    #[cold]
    fn cut_short(&self, left: usize, what: &str) -> Refusal {
        let message = format!(
            "In message {} of the body: only {left} bytes are left for {what}. Send for each message its length as an \
             unsigned number of 32 bits, little-endian, then that many bytes.",
            self.count + 1
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
