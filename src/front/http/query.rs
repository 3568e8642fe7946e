//! Parameters of a request's query, checked one by one. On the core of the connection.

use std::borrow::Cow;

use ringmain_wire::http::Target;

use super::problem::Problem;

/// The text behind `name`, if the query has it. One that is there with different values says nothing: which was meant is not guessed.
pub(super) fn text<'t>(target: &Target<'t>, name: &str) -> Result<Option<Cow<'t, str>>, Problem> {
    let Some(text) = target.query_value(name) else { return Ok(None) };
    match target.query().find(|(found, value)| found == name && *value != text) {
        None => Ok(Some(text)),
        Some((_, other)) => Err(Problem::parameter(format!(
            "{name} is there more than once, as {text} and as {other}: choose one of them"
        ))),
    }
}

/// The number behind `name`, if the query has it.
pub(super) fn number(target: &Target<'_>, name: &str) -> Result<Option<u64>, Problem> {
    let Some(text) = text(target, name)? else { return Ok(None) };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(Some(number)),
        _ => {
            Err(Problem::parameter(format!("{name}={text} is not a number from 0 to {}: write digits only", u64::MAX)))
        }
    }
}

/// The number behind `name` within a range, or its default.
pub(super) fn number_within(
    target: &Target<'_>,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
) -> Result<u64, Problem> {
    let number = number(target, name)?.unwrap_or(default);
    if range.contains(&number) {
        return Ok(number);
    }
    Err(Problem::parameter(format!("{name}={number} is out of range: choose {} to {}", range.start(), range.end())))
}

/// The meaning of the word behind `name`; `None` when the query has no such name.
pub(super) fn word<T: Copy>(target: &Target<'_>, name: &str, words: &[(&str, T)]) -> Result<Option<T>, Problem> {
    let Some(text) = text(target, name)? else { return Ok(None) };
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, meaning)) => Ok(Some(*meaning)),
        None => {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            Err(Problem::parameter(format!("{name}={text} is unknown: choose {}", known.join(", "))))
        }
    }
}
