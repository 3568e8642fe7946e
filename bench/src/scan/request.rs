//! Finds the ends of requests in the cheapest way that is right for well-formed ones; pure.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::failure::Failure;

/// A request head larger than this is not answered.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The end of a head. Made once, because making it costs as much as looking through a request.
static HEAD_END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));

/// The field that tells the length of a body.
const LENGTH_FIELD: &[u8] = b"content-length:";

/// Finds where each request of a connection ends: its head at the first empty line, its body by `Content-Length`.
/// It checks nothing else: it is the least that any server of HTTP/1.1 has to do.
#[derive(Debug, Default)]
pub(crate) struct RequestScanner {
    partial: Vec<u8>,
    /// Bytes of the body that are still to come; none while a head is looked for.
    body: Option<u64>,
}

impl RequestScanner {
    /// Takes the next bytes and gives the number of requests that they complete.
    ///
    /// # Errors
    ///
    /// For a head that does not end, and for a length that is no number.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        if self.partial.is_empty() {
            let (count, used) = self.scan(bytes)?;
            self.partial.extend_from_slice(&bytes[used..]);
            return Ok(count);
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        let (count, used) = self.scan(&joined)?;
        joined.drain(..used);
        self.partial = joined;
        Ok(count)
    }

    /// Gives the number of requests that are complete and the number of bytes that are done with.
    fn scan(&mut self, bytes: &[u8]) -> Result<(usize, usize), Failure> {
        let mut count = 0;
        let mut used = 0;
        loop {
            if let Some(missing) = self.body {
                let available = bytes.len() - used;
                let taken = usize::try_from(missing).map_or(available, |missing| missing.min(available));
                used += taken;
                let missing = missing - taken as u64;
                if missing > 0 {
                    self.body = Some(missing);
                    return Ok((count, used));
                }
                self.body = None;
                count += 1;
            }
            let rest = &bytes[used..];
            let Some(head_bytes) = HEAD_END.find(rest).map(|at| at + 4) else {
                return if rest.len() > HEAD_BYTES_MAX {
                    Err(Failure::said("the head of a request does not end"))
                } else {
                    Ok((count, used))
                };
            };
            self.body = Some(body_length(&rest[..head_bytes])?);
            used += head_bytes;
        }
    }
}

/// The length that a head announces; 0 without the field.
fn body_length(head: &[u8]) -> Result<u64, Failure> {
    let mut rest = head;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if let Some((name, value)) = line.split_at_checked(LENGTH_FIELD.len())
            && name.eq_ignore_ascii_case(LENGTH_FIELD)
        {
            return str::from_utf8(value)
                .ok()
                .and_then(|value| value.trim().parse().ok())
                .ok_or_else(|| Failure::said("the Content-Length of a request is no number"));
        }
    }
    Ok(0)
}
