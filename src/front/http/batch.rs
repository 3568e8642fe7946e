//! Publishing many messages with one request: bodies that hold them, read as they come, and the one answer. On the core of
//! the connection.

mod packed;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use ringmain_model::limit::{
    LINE_BYTES_BESIDE, LINE_BYTES_PER_BYTE, PUBLISH_BATCH_HEADERS_MAX, PUBLISH_BATCH_MESSAGES_MAX,
};
use ringmain_model::{Message, Refusal, RefusalKind};
use ringmain_wire::batch::BatchDecoder;
use ringmain_wire::http::Framing;
use ringmain_wire::json::PublishLines;

use self::packed::Packed;
use super::problem::Problem;
use super::publish::{check_bytes, message_of_publish, to_bytes};
use crate::front::FrontSettings;

/// A batch whose body may be on its way: how it is written, and what has been read of it. The first fault refuses it all, and
/// what it says does not depend on how the body was cut on its way.
#[derive(Debug)]
pub(super) enum Batch {
    /// Newline-delimited JSON.
    Lines(Lines),
    /// Payloads behind their lengths.
    Payloads(Payloads),
}

impl Batch {
    pub(super) fn of_lines(settings: &FrontSettings) -> Self {
        let message_bytes_max = settings.message_bytes_max;
        let line_bytes_max = message_bytes_max.saturating_mul(LINE_BYTES_PER_BYTE).saturating_add(LINE_BYTES_BESIDE);
        Self::Lines(Lines {
            decoder: PublishLines::new(line_bytes_max),
            packed: Packed::default(),
            bytes: 0,
            headers: 0,
            message_bytes_max,
            bytes_max: settings.body_bytes_max,
        })
    }

    pub(super) fn of_payloads(framing: Framing, settings: &FrontSettings) -> Self {
        let announced = match framing {
            Framing::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
            _ => settings.body_bytes_max,
        };
        let decoder = BatchDecoder::new(announced);
        Self::Payloads(Payloads { decoder, message_bytes_max: settings.message_bytes_max })
    }

    /// Reads what has come of the body and not been let go; says how many bytes of it need not be kept.
    pub(super) fn take(&mut self, body: &[u8]) -> Result<usize, Problem> {
        let taken = match self {
            Self::Lines(lines) => lines.take(body, false),
            // The payloads stay where they are.
            Self::Payloads(payloads) => payloads.check(body).map(|()| 0),
        };
        taken.map_err(nothing_stored)
    }

    /// Bytes held of what need not be kept.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Lines(lines) => lines.packed.bytes(),
            Self::Payloads(_) => 0,
        }
    }

    /// The messages, once the body is there whole: `body` is what had to be kept of it.
    pub(super) fn finish(self, body: Cow<'_, [u8]>) -> Result<Vec<Message>, Problem> {
        let messages = match self {
            Self::Lines(lines) => lines.finish(&body),
            Self::Payloads(payloads) => payloads.finish(body),
        };
        let messages = messages.map_err(nothing_stored)?;
        if messages.is_empty() {
            return Err(Problem::new(400, "invalid_body", "the batch is empty: send at least one message"));
        }
        Ok(messages)
    }
}

#[derive(Debug)]
pub(super) struct Lines {
    decoder: PublishLines,
    /// The messages so far.
    packed: Packed,
    /// Their bytes.
    bytes: usize,
    /// Their headers.
    headers: usize,
    message_bytes_max: usize,
    bytes_max: usize,
}

impl Lines {
    fn take(&mut self, body: &[u8], is_last: bool) -> Result<usize, Problem> {
        let mut rest = body;
        while let Some((line, publish)) = self.decoder.decode(&mut rest, is_last) {
            let message = message_of_publish(publish?, None, self.message_bytes_max);
            self.add(&message.map_err(|problem| problem.at("line", line))?)?;
        }
        Ok(body.len() - rest.len())
    }

    fn add(&mut self, message: &Message) -> Result<(), Problem> {
        self.headers += message.headers.len();
        if self.headers > PUBLISH_BATCH_HEADERS_MAX {
            return Err(too_large(&format!(
                "the messages of this batch have more than {PUBLISH_BATCH_HEADERS_MAX} headers"
            )));
        }
        // A name stands once in a body however many values it has, and with each of them in memory.
        self.bytes += message.bytes();
        if self.bytes > self.bytes_max {
            let bytes_max = self.bytes_max;
            return Err(too_large(&format!(
                "the messages of this batch have more than {bytes_max} bytes with a name for each header"
            )));
        }
        check_count(self.packed.count() + 1)?;
        self.packed.push(message);
        Ok(())
    }

    fn finish(mut self, body: &[u8]) -> Result<Vec<Message>, Problem> {
        self.take(body, true)?;
        Ok(self.packed.unpack())
    }
}

#[derive(Debug)]
pub(super) struct Payloads {
    decoder: BatchDecoder,
    message_bytes_max: usize,
}

impl Payloads {
    /// Checks the lengths that have come.
    fn check(&mut self, body: &[u8]) -> Result<(), Problem> {
        while let Some(range) = self.decoder.decode(body)? {
            let number = self.decoder.count();
            check_bytes(range.len(), self.message_bytes_max).map_err(|problem| problem.at("message", number))?;
            check_count(usize::try_from(number).unwrap_or(usize::MAX))?;
        }
        Ok(())
    }

    fn finish(mut self, body: Cow<'_, [u8]>) -> Result<Vec<Message>, Problem> {
        self.check(&body)?;
        let body = to_bytes(body);
        // Now its length is known, and the last payload may end beyond it.
        let mut decoder = BatchDecoder::new(body.len());
        let mut messages = Vec::new();
        while let Some(range) = decoder.decode(&body)? {
            messages.push(Message::of(body.slice(range)));
        }
        Ok(messages)
    }
}

fn check_count(count: usize) -> Result<(), Problem> {
    if count > PUBLISH_BATCH_MESSAGES_MAX {
        return Err(too_large(&format!("this batch has more than {PUBLISH_BATCH_MESSAGES_MAX} messages")));
    }
    Ok(())
}

fn too_large(what: &str) -> Problem {
    Refusal::new(RefusalKind::PayloadTooLarge, format!("{what}: divide it")).into()
}

fn nothing_stored(problem: Problem) -> Problem {
    problem.and("nothing of the batch was stored")
}
