//! The settings of topics as flags, for making and for changing one; on the main thread.

use clap::Args;
use jiff::{Span, SpanRelativeTo};
use serde_json::{Map, Value, json};

/// What takes a bound away.
const NONE: &str = "none";

/// Settings that a topic may have; those that are not given stay as they are.
#[derive(Args, Debug)]
pub(super) struct SettingsFlags {
    /// Messages that it keeps, or none for any number
    #[arg(long, value_name = "MESSAGES", value_parser = count)]
    max_messages: Option<Bound>,
    /// Bytes that it keeps, or none for any number
    #[arg(long, value_name = "BYTES", value_parser = count)]
    max_bytes: Option<Bound>,
    /// How long it keeps a message, like 90s, 12h or 7d, or none for ever
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_age: Option<Bound>,
    /// How long a member of a group may hold a message without a word, like 30s
    #[arg(long, value_name = "TIME", value_parser = time)]
    ack_wait: Option<Bound>,
    /// Topic to which messages go that were given out too often
    #[arg(long, value_name = "TOPIC")]
    dead_letter: Option<String>,
    /// How often a group gives a message out, or none for ever
    #[arg(long, value_name = "TIMES", value_parser = count)]
    max_deliver: Option<Bound>,
}

/// A number, or that there is none.
#[derive(Clone, Copy, Debug)]
struct Bound(Option<u64>);

fn count(text: &str) -> Result<Bound, String> {
    if text == NONE {
        return Ok(Bound(None));
    }
    text.parse().map(|number| Bound(Some(number))).map_err(|_| format!("write a whole number, or {NONE}"))
}

/// Milliseconds; a day has 24 hours.
fn time(text: &str) -> Result<Bound, String> {
    if text == NONE {
        return Ok(Bound(None));
    }
    let span: Option<Span> = text.parse().ok();
    let duration = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let milliseconds = duration.and_then(|duration| u64::try_from(duration.as_millis()).ok());
    milliseconds
        .map(|milliseconds| Bound(Some(milliseconds)))
        .ok_or_else(|| format!("write a number with its unit, like 500ms, 90s, 15m, 12h or 7d, or {NONE}"))
}

impl SettingsFlags {
    /// The members of a request's body.
    pub(super) fn body(&self) -> Map<String, Value> {
        let mut body = Map::new();
        let group = |fields: &[(&str, Option<Value>)]| -> Map<String, Value> {
            fields.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?))).collect()
        };
        let number = |bound: Option<Bound>| bound.map(|Bound(number)| json!(number));
        let retention = group(&[
            ("max_messages", number(self.max_messages)),
            ("max_bytes", number(self.max_bytes)),
            ("max_age_ms", number(self.max_age)),
        ]);
        if !retention.is_empty() {
            body.insert("retention".to_owned(), Value::Object(retention));
        }
        let dead_letter = group(&[
            ("topic", self.dead_letter.as_ref().map(|topic| json!(topic))),
            ("max_deliver", number(self.max_deliver)),
        ]);
        if !dead_letter.is_empty() {
            body.insert("dead_letter".to_owned(), Value::Object(dead_letter));
        }
        body.extend(number(self.ack_wait).map(|ack_wait| ("ack_wait_ms".to_owned(), ack_wait)));
        body
    }
}
