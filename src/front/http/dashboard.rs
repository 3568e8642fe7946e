//! `GET /dashboard`: a page that shows how the broker stands, made of files that the program holds; the same on every core.

use std::sync::LazyLock;

use ringmain_wire::http::RequestHead;
use sha2::{Digest as _, Sha256};

use super::problem::Problem;
use super::respond::{Context, Response};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml; charset=utf-8";

/// What the page may do: run and ask nothing but this broker, whatever a topic's name or a message says.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

/// A file of the page.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Part {
    name: &'static str,
    content_type: &'static str,
    body: &'static [u8],
}

macro_rules! part {
    ($name:literal, $content_type:expr) => {
        Part { name: $name, content_type: $content_type, body: include_bytes!(concat!("../../dashboard/", $name)) }
    };
}

static PAGE: Part = part!("page.html", HTML);

/// What the page refers to, and their files in turn.
static PARTS: [Part; 12] = [
    part!("chart.mjs", SCRIPT),
    part!("elements.mjs", SCRIPT),
    part!("format.mjs", SCRIPT),
    part!("icon.svg", IMAGE),
    part!("lag.mjs", SCRIPT),
    part!("live.mjs", SCRIPT),
    part!("overview.mjs", SCRIPT),
    part!("page.css", CSS),
    part!("page.mjs", SCRIPT),
    part!("pager.mjs", SCRIPT),
    part!("requests.mjs", SCRIPT),
    part!("topics.mjs", SCRIPT),
];

/// Entity tags of the page and its parts, in that order: the same for the same bytes, in any process.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |part: &Part| {
        let digest = Sha256::digest(part.body);
        let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("\"{hex}\"")
    };
    std::iter::once(&PAGE).chain(&PARTS).map(tag).collect()
});

impl Part {
    pub(super) fn page() -> &'static Self {
        &PAGE
    }

    pub(super) fn named(name: &str) -> Result<&'static Self, Problem> {
        let found = PARTS.iter().find(|part| part.name == name);
        found.ok_or_else(|| Problem::new(404, "not_found", "the dashboard has no such part: it is at /dashboard"))
    }

    fn tag(&self) -> &'static str {
        let at = PARTS.iter().position(|part| part.name == self.name).map_or(0, |at| at + 1);
        TAGS.get(at).map_or("", String::as_str)
    }
}

/// A part that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Showing {
    part: &'static Part,
    /// The client has these bytes.
    is_known: bool,
    /// The path ends with a slash, where the page's references would lead elsewhere.
    has_slash: bool,
}

impl Showing {
    pub(super) fn read(part: &'static Part, head: &RequestHead<'_>) -> Self {
        let is_known = head.headers.text("if-none-match").is_some_and(|tags| is_listed(tags, part.tag()));
        let path = head.target.split('?').next().unwrap_or_default();
        Self { part, is_known, has_slash: path.ends_with('/') }
    }

    /// Writes the part. The client keeps it and asks each time whether it is still the one: so a page never runs with parts of
    /// another version of the broker.
    pub(super) fn write(&self, context: &Context, out: &mut Vec<u8>, date: &str) {
        let part = self.part;
        if self.has_slash {
            let location = if *part == PAGE { "../dashboard".to_owned() } else { format!("../{}", part.name) };
            let headers = [("Location", location.as_str()), ("Cache-Control", "no-cache")];
            return context.write(
                out,
                date,
                &Response { status: 308, content_type: None, headers: &headers, body: &[] },
            );
        }
        let validators = [("Cache-Control", "no-cache"), ("ETag", part.tag())];
        if self.is_known {
            let response = Response { status: 304, content_type: None, headers: &validators, body: &[] };
            return context.write(out, date, &response);
        }
        let [cache, tag] = validators;
        let headers = [
            ("Content-Type", part.content_type),
            cache,
            tag,
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", POLICY),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ];
        context.write(out, date, &Response { status: 200, content_type: None, headers: &headers, body: part.body });
    }
}

/// Whether `If-None-Match` lists a tag. Weak tags match as well (RFC 9110, section 13.1.2).
fn is_listed(tags: &str, tag: &str) -> bool {
    let listed = |one: &str| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag;
    tags.split(',').map(str::trim).any(listed)
}
