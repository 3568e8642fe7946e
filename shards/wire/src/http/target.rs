//! Request targets: path segments and query pairs, decoded once; pure, on the core that owns the connection.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::percent::{self, Fault};
use super::refusal::excerpt;
use super::{Refusal, host};

/// Segments of a path at most: several times more than any route has.
const SEGMENTS_MAX: usize = 32;

/// A request target taken apart.
///
/// The path is split at `/` first and each segment decoded once, so `%2F` stays inside its segment, and `..` is a segment
/// like any other: nothing is resolved. A slash at the end names the same resource as none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'t> {
    /// The decoded segments, without a last empty one; empty for `/` and `*`. Empty segments inside are kept.
    pub segments: SmallVec<[Cow<'t, str>; 6]>,
    /// The query as sent, checked for decodability.
    query: &'t str,
    asterisk: bool,
}

impl<'t> Target<'t> {
    /// Takes a target in origin form (`/a/b?c=d`), in absolute form (`http://host/a`) or `*` apart.
    ///
    /// # Errors
    ///
    /// 400 `invalid_target` for other forms, a fragment, a broken escape, an escape that decodes to NUL or to something
    /// that is not UTF-8, and more than 32 segments.
    pub fn parse(target: &'t str) -> Result<Target<'t>, Refusal> {
        if target == "*" {
            return Ok(Self { segments: SmallVec::new(), query: "", asterisk: true });
        }
        if memchr::memchr(b'#', target.as_bytes()).is_some() {
            return Err(invalid("The target has a fragment (#…), which clients keep to themselves. Escape # as %23."));
        }
        let origin = if target.starts_with('/') {
            target
        } else {
            let (_, origin) = host::split_absolute_form(target).ok_or_else(|| {
                invalid(
                    "The target starts neither with a slash nor with http://. Send a path that starts with a slash.",
                )
            })?;
            origin
        };
        let (path, query) = match memchr::memchr(b'?', origin.as_bytes()) {
            Some(at) => (&origin[..at], &origin[at + 1..]),
            None => (origin, ""),
        };
        let segments = segments(path)?;
        query_decodable(query)?;
        Ok(Self { segments, query, asterisk: false })
    }

    /// The decoded pairs of the query in order: `+` is a space, a name without `=` has an empty value, empty pairs are
    /// left out, repeated names are kept.
    pub fn query(&self) -> impl Iterator<Item = (Cow<'t, str>, Cow<'t, str>)> + use<'t> {
        // `parse` has decoded each part once, so none is lost here.
        raw_pairs(self.query)
            .filter_map(|(name, value)| Some((percent::decode(name, true).ok()?, percent::decode(value, true).ok()?)))
    }

    /// The first value with this name.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<Cow<'t, str>> {
        // Most targets have none, and are asked for several names.
        if self.query.is_empty() {
            return None;
        }
        self.query().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// Whether the target is `*`: the server as a whole.
    #[must_use]
    pub fn is_asterisk(&self) -> bool {
        self.asterisk
    }
}

fn segments(path: &str) -> Result<SmallVec<[Cow<'_, str>; 6]>, Refusal> {
    let mut segments = SmallVec::new();
    let Some(mut rest) = path.strip_prefix('/') else { return Ok(segments) };
    while !rest.is_empty() {
        let end = memchr::memchr(b'/', rest.as_bytes()).unwrap_or(rest.len());
        if segments.len() == SEGMENTS_MAX {
            return Err(invalid(format!("The path has more than {SEGMENTS_MAX} segments; no resource has as many.")));
        }
        let segment = &rest[..end];
        segments.push(percent::decode(segment, false).map_err(|fault| undecodable("path segment", segment, &fault))?);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    Ok(segments)
}

fn query_decodable(query: &str) -> Result<(), Refusal> {
    if memchr::memchr2(b'%', 0, query.as_bytes()).is_none() {
        return Ok(());
    }
    for (name, value) in raw_pairs(query) {
        for part in [name, value] {
            percent::decode(part, true).map_err(|fault| undecodable("query", part, &fault))?;
        }
    }
    Ok(())
}

fn raw_pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

#[cold]
fn undecodable(what: &str, text: &str, fault: &Fault) -> Refusal {
    let why = match fault {
        Fault::Escape => "a % is not followed by two hexadecimal digits. Escape % itself as %25",
        Fault::Utf8 => "it does not decode to UTF-8. Escape the bytes of its UTF-8 form",
        Fault::Nul => "it decodes to a NUL character. Leave that out",
    };
    invalid(format!("The {what} {:?} cannot be decoded: {why}.", excerpt(text.as_bytes())))
}

#[cold]
fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(400, "invalid_target", message)
}
