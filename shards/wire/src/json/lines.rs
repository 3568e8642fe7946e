//! Publishes in newline-delimited JSON, decoded line by line as they arrive; pure, on the core that owns the connection.

use super::{PublishBody, decode_publish};
use crate::http::Refusal;

/// Decodes newline-delimited JSON: one object as [`decode_publish`] takes it on each line. Lines end with a line feed, before
/// which a carriage return may stand; the last one may do without. Lines of white space alone are passed over, but counted.
///
/// It holds no input: what it has not used is given to it again, with what came after it.
#[derive(Clone, Debug)]
pub struct PublishLines {
    line_bytes_max: usize,
    /// Lines used so far.
    count: u64,
    /// Bytes at the start of what is given again in which no line feed was found.
    searched: usize,
}

impl PublishLines {
    /// A decoder of lines of at most `line_bytes_max` bytes without the line feed.
    #[must_use]
    pub fn new(line_bytes_max: usize) -> Self {
        Self { line_bytes_max, count: 0, searched: 0 }
    }

    /// Decodes the next publish of `input`, moves `input` behind its line and says the line's number, counted from 1.
    /// Nothing when there is no more whole line; what then is left of `input` must stand at the start of the next one. After
    /// the last input, which `is_last` marks, nothing is left.
    ///
    /// # Errors
    ///
    /// Those of [`decode_publish`], each beginning with the line; the lines after it can still be decoded. 413
    /// `payload_too_large` for a line that is too long, as soon as it is: nothing can be decoded after it.
    pub fn decode(&mut self, input: &mut &[u8], is_last: bool) -> Option<(u64, Result<PublishBody, Refusal>)> {
        while let Some(line) = self.next_line(input, is_last) {
            self.count += 1;
            let publish = if line.len() > self.line_bytes_max {
                Err(self.too_long())
            } else if line.trim_ascii().is_empty() {
                continue;
            } else {
                decode_publish(line)
            };
            let line = self.count;
            return Some((line, publish.map_err(|refusal| refusal.at(format_args!("line {line}")))));
        }
        None
    }

    /// Takes a line off `input`: one that has ended, the last one, or the start of one that is too long.
    fn next_line<'t>(&mut self, input: &mut &'t [u8], is_last: bool) -> Option<&'t [u8]> {
        let text = *input;
        let unsearched = text.get(self.searched..).unwrap_or_default();
        let (line, used) = match memchr::memchr(b'\n', unsearched) {
            Some(at) => (&text[..self.searched + at], self.searched + at + 1),
            None if (is_last && !text.is_empty()) || text.len() > self.line_bytes_max => (text, text.len()),
            None => {
                self.searched = text.len();
                return None;
            }
        };
        self.searched = 0;
        *input = &text[used..];
        Some(line)
    }

    #[cold]
    fn too_long(&self) -> Refusal {
        let message = format!(
            "It has more than {} bytes, which the largest message does not need however it is written. Send a smaller \
             message, and each on a line of its own.",
            self.line_bytes_max
        );
        Refusal::new(413, "payload_too_large", message)
    }
}
