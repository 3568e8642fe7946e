//! Settings of topics as clients write them, when a topic is made and when it is changed. On the core of the connection.

use ringmain_model::limit::{MAX_DELIVER_MAX, RETENTION_BYTES_MAX, RETENTION_MESSAGES_MAX};
use ringmain_model::{Refusal, RefusalKind, TopicName, TopicPatch};
use serde_json::{Map, Value};

use super::problem::Problem;
use super::topics::object_from_slice;

/// What the settings are for. Unknown names are passed over, as streamq did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// A new topic: `null` is as good as nothing.
    Create,
    /// One that is there: `null` takes a bound away.
    Change,
}

pub(super) fn invalid(message: impl Into<String>) -> Problem {
    Refusal::new(RefusalKind::InvalidConfig, message).into()
}

/// A body that is not what is wanted: `example` is.
pub(super) fn explain(error: &serde_json::Error, what: &str, example: &str) -> Problem {
    let code = if error.is_data() { "invalid_config" } else { "invalid_json" };
    let why: String = error.to_string().chars().take(160).collect();
    Problem::new(400, code, format!("the body does not describe {what} ({why}): send {example}"))
}

/// Reads the body of `PATCH /topics/{name}`: what changes, which may be nothing.
pub(super) fn read_change(name: &TopicName, body: &[u8]) -> Result<TopicPatch, Problem> {
    let fields: Map<String, Value> = object_from_slice(body).map_err(|error| {
        explain(&error, "a change", r#"what is to change, like {"retention":{"max_messages":1000}}"#)
    })?;
    let mut patch = TopicPatch::default();
    for (field, value) in &fields {
        match field.as_str() {
            "retention" => read_retention(value, Wish::Change, &mut patch)?,
            "dead_letter" => read_dead_letter(value, Wish::Change, name, &mut patch)?,
            "ack_wait_ms" => patch.ack_wait_ms = Some(number(value, field)?),
            "name" | "storage" | "partitions" => {
                return Err(invalid(format!(
                    "{field} stays as the topic was made: leave it out, or make another topic"
                )));
            }
            _ => {}
        }
    }
    Ok(patch)
}

/// Reads the member `retention`.
pub(super) fn read_retention(value: &Value, wish: Wish, patch: &mut TopicPatch) -> Result<(), Problem> {
    let Some(fields) = object(value, "retention", wish)? else { return Ok(()) };
    for (field, value) in fields {
        let path = format!("retention.{field}");
        let bound = if value.is_null() { None } else { Some(value) };
        if bound.is_none() && wish == Wish::Create {
            continue;
        }
        match field.as_str() {
            "max_messages" => {
                patch.max_messages = Some(bound.map_or(Ok(RETENTION_MESSAGES_MAX), |value| number(value, &path))?);
            }
            "max_bytes" => {
                patch.max_bytes = Some(bound.map_or(Ok(RETENTION_BYTES_MAX), |value| number(value, &path))?);
            }
            "max_age_ms" => patch.max_age_ms = Some(bound.map(|value| number(value, &path)).transpose()?),
            _ => {}
        }
    }
    Ok(())
}

/// Reads the member `dead_letter` of a topic that is called `own`.
pub(super) fn read_dead_letter(
    value: &Value,
    wish: Wish,
    own: &TopicName,
    patch: &mut TopicPatch,
) -> Result<(), Problem> {
    if value.is_null() {
        (patch.dead_letter, patch.max_deliver) = (Some(None), Some(None));
        return Ok(());
    }
    for (field, value) in object(value, "dead_letter", wish)?.into_iter().flatten() {
        match (field.as_str(), value) {
            ("topic", Value::Null) => patch.dead_letter = Some(None),
            ("topic", Value::String(name)) => {
                let name = TopicName::new(name).map_err(|error| invalid(format!("dead_letter.topic: {error}")))?;
                if name == *own {
                    return Err(invalid("dead_letter.topic is the topic itself: name another one"));
                }
                patch.dead_letter = Some(Some(name));
            }
            ("topic", other) => return Err(invalid(format!("dead_letter.topic is {}: give a name", shown(other)))),
            ("max_deliver", Value::Null) => patch.max_deliver = Some(None),
            ("max_deliver", value) => {
                let times = number(value, "dead_letter.max_deliver")?;
                let times = u32::try_from(times).map_err(|_| {
                    invalid(format!("dead_letter.max_deliver is {times}: choose 1 to {MAX_DELIVER_MAX}"))
                })?;
                patch.max_deliver = Some(Some(times));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The members of an object; `None` for a `null` that says nothing.
fn object<'v>(value: &'v Value, name: &str, wish: Wish) -> Result<Option<&'v Map<String, Value>>, Problem> {
    match value {
        Value::Object(fields) => Ok(Some(fields)),
        Value::Null if wish == Wish::Create => Ok(None),
        other => Err(invalid(format!("{name} is {}: give an object", shown(other)))),
    }
}

fn number(value: &Value, name: &str) -> Result<u64, Problem> {
    value.as_u64().ok_or_else(|| invalid(format!("{name} is {}: give a whole number", shown(value))))
}

/// A value, shortened.
fn shown(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}
