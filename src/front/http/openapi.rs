//! `GET /openapi.json`: the description of this face, for programs; the same on every core.

use super::respond::{Context, Response};

/// The description, in OpenAPI 3.1. It is written by hand; tests hold it against the routes and the answers.
pub(super) const DOCUMENT: &str = include_str!("openapi.json");

/// Writes the description. Like all answers it is not stored: that keeps an upgrade's description from being an old one.
pub(super) fn write_openapi(context: &Context, out: &mut Vec<u8>, date: &str) {
    let body = DOCUMENT.as_bytes();
    context.write(out, date, &Response { status: 200, content_type: Some("application/json"), headers: &[], body });
}

#[cfg(test)]
mod tests;
