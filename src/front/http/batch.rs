//! Publishing many messages with one request: bodies that hold them, and the one answer. On the core of the connection.

use std::borrow::Cow;

use ringmain_model::limit::PUBLISH_BATCH_MESSAGES_MAX;
use ringmain_model::{Message, Offset, Refusal, RefusalKind, TopicName};
use ringmain_wire::batch::batch_ranges;
use ringmain_wire::json::{decode_publish_lines, timestamp_text};
use serde::Serialize;

use super::HttpFront;
use super::problem::Problem;
use super::publish::{check, message_of_publish, to_bytes};
use super::respond::{Context, write_success};

/// Headers of all messages of one batch: empty ones take more room in memory than in a body.
const BATCH_HEADERS_MAX: usize = 8 * PUBLISH_BATCH_MESSAGES_MAX;

/// The messages of a body of newline-delimited JSON; a fault refuses them all and names its line.
pub(super) fn messages_of_lines(body: &[u8], bytes_max: usize) -> Result<Vec<Message>, Problem> {
    let (mut messages, mut headers) = (Vec::new(), 0);
    for (line, publish) in decode_publish_lines(body) {
        let publish = publish.map_err(Problem::from).map_err(|problem| problem.and(NOTHING_STORED))?;
        let message = message_of_publish(publish, None, bytes_max);
        let message = message.map_err(|problem| problem.at("line", line).and(NOTHING_STORED))?;
        headers += message.headers.len();
        if headers > BATCH_HEADERS_MAX {
            return Err(too_large(&format!("the messages of this batch have more than {BATCH_HEADERS_MAX} headers")));
        }
        add(&mut messages, message)?;
    }
    not_empty(messages)
}

/// The messages of a body of payloads behind their lengths; a fault refuses them all and says in which message it is.
pub(super) fn messages_of_payloads(body: Cow<'_, [u8]>, bytes_max: usize) -> Result<Vec<Message>, Problem> {
    // The payloads stay where they are.
    let body = to_bytes(body);
    let mut messages = Vec::new();
    for (range, number) in batch_ranges(&body).zip(1..) {
        let range = range.map_err(Problem::from).map_err(|problem| problem.and(NOTHING_STORED))?;
        let message = Message::of(body.slice(range));
        check(&message, bytes_max).map_err(|problem| problem.at("message", number).and(NOTHING_STORED))?;
        add(&mut messages, message)?;
    }
    not_empty(messages)
}

const NOTHING_STORED: &str = "nothing of the batch was stored";

fn add(messages: &mut Vec<Message>, message: Message) -> Result<(), Problem> {
    if messages.len() == PUBLISH_BATCH_MESSAGES_MAX {
        return Err(too_large(&format!("this batch has more than {PUBLISH_BATCH_MESSAGES_MAX} messages")));
    }
    messages.push(message);
    Ok(())
}

fn too_large(what: &str) -> Problem {
    let refusal = Refusal::new(RefusalKind::PayloadTooLarge, format!("{what}: divide it; {NOTHING_STORED}"));
    refusal.into()
}

fn not_empty(messages: Vec<Message>) -> Result<Vec<Message>, Problem> {
    if messages.is_empty() {
        return Err(Problem::new(400, "invalid_body", "the batch is empty: send at least one message"));
    }
    Ok(messages)
}

/// What was stored of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredBatch {
    pub(super) first: Offset,
    pub(super) last: Offset,
    pub(super) count: u64,
    pub(super) time_us: i64,
}

impl HttpFront {
    /// Writes 202 with the places of a batch's messages.
    pub(super) fn write_published_all(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        topic: &TopicName,
        batch: StoredBatch,
    ) {
        #[derive(Serialize)]
        struct PublishedAll<'a> {
            first_offset: u64,
            last_offset: u64,
            count: u64,
            topic: &'a str,
            timestamp: &'a str,
        }
        let published = PublishedAll {
            first_offset: batch.first.0,
            last_offset: batch.last.0,
            count: batch.count,
            topic: topic.as_str(),
            timestamp: &timestamp_text(batch.time_us),
        };
        self.body.clear();
        write_success(&mut self.body, &published);
        self.write_body(context, out, 202);
    }
}
