//! Counts the answers of a keep-alive connection; pure.

use ringmain_wire::http::{Framing, HeadLimits, Method, decode_response_head};

use crate::failure::Failure;

/// Finds where each answer ends. It holds at most one head that has not come wholly.
#[derive(Debug, Default)]
pub(crate) struct ResponseScanner {
    partial: Vec<u8>,
    /// The answer whose body is still coming, and how much of it.
    body: Option<(u16, u64)>,
}

impl ResponseScanner {
    /// Takes the next bytes and tells the status of each answer that they complete. Interim answers are passed over.
    ///
    /// # Errors
    ///
    /// For what is not HTTP/1.1, and for a body without a known length. The connection cannot be used further.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut answered: impl FnMut(u16)) -> Result<(), Failure> {
        if self.partial.is_empty() {
            let used = self.scan(bytes, &mut answered)?;
            self.partial.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        let used = self.scan(&joined, &mut answered)?;
        joined.drain(..used);
        self.partial = joined;
        Ok(())
    }

    /// Gives the number of bytes that are done with.
    fn scan(&mut self, bytes: &[u8], answered: &mut impl FnMut(u16)) -> Result<usize, Failure> {
        let mut used = 0;
        loop {
            if let Some((status, missing)) = self.body {
                let available = bytes.len() - used;
                let taken = usize::try_from(missing).map_or(available, |missing| missing.min(available));
                used += taken;
                let missing = missing - taken as u64;
                if missing > 0 {
                    self.body = Some((status, missing));
                    return Ok(used);
                }
                self.body = None;
                answered(status);
            }
            if used == bytes.len() {
                return Ok(used);
            }
            let Some((head, head_bytes)) = decode_response_head(&bytes[used..], &HeadLimits::default(), Method::Post)?
            else {
                return Ok(used);
            };
            used += head_bytes;
            if (100..200).contains(&head.status) {
                continue;
            }
            self.body = match head.framing {
                Framing::None => Some((head.status, 0)),
                Framing::Length(length) => Some((head.status, length)),
                Framing::Chunked | Framing::UntilClose => {
                    return Err(Failure::said(
                        "the server answers with a body of unknown length, which is not counted",
                    ));
                }
            };
        }
    }
}
