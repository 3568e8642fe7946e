//! Answers as bytes: heads with their standing headers, JSON envelopes, errors. On the core of the connection.

use ringmain_wire::http::{ResponseBody, ResponseHead, Version, encode_response_head};
use serde::Serialize;
use smallvec::SmallVec;

use super::problem::{CODING_STATUS, Problem, UPGRADE_STATUS};

/// Response headers that scripts of other origins may read.
const EXPOSED_HEADERS: &str =
    "Retry-After, X-Next-Offset, X-Earliest-Offset, X-Latest-Offset, X-Gap-Requested, X-Gap-Resumed";

/// What an answer takes from its request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Context {
    pub(super) version: Version,
    /// The connection ends after the answer.
    pub(super) close: bool,
    /// The request was HEAD: a head without its body.
    pub(super) head_only: bool,
    /// The origin that may read the answer.
    pub(super) origin: Option<Box<str>>,
}

/// An answer before it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response<'a> {
    pub(super) status: u16,
    pub(super) content_type: Option<&'a str>,
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a [u8],
}

impl Context {
    fn headers<'a>(&'a self, own: &[(&'a str, &'a str)]) -> SmallVec<[(&'a str, &'a str); 8]> {
        let mut headers = SmallVec::from_slice(own);
        if let Some(origin) = &self.origin {
            headers.push(("Access-Control-Allow-Origin", &**origin));
            headers.push(("Access-Control-Expose-Headers", EXPOSED_HEADERS));
            headers.push(("Vary", "Origin"));
        }
        headers
    }

    /// Appends an answer.
    pub(super) fn write(&self, out: &mut Vec<u8>, date: &str, response: &Response<'_>) {
        self.write_pieces(out, date, response, [response.body].into_iter());
    }

    /// Appends an answer whose body is made of pieces, instead of the one that it holds.
    pub(super) fn write_pieces<'b>(
        &self,
        out: &mut Vec<u8>,
        date: &str,
        response: &Response<'_>,
        pieces: impl Iterator<Item = &'b [u8]> + Clone,
    ) {
        let length = pieces.clone().map(<[u8]>::len).sum::<usize>();
        let body = if length == 0 { ResponseBody::None } else { ResponseBody::Length(length as u64) };
        out.reserve(256 + length);
        let head =
            ResponseHead { status: response.status, headers: &[], body, close: self.close, version: self.version };
        match (response.content_type, response.headers, &self.origin) {
            // Most answers: nothing to put together.
            (Some(content_type), [], None) => {
                let headers = [("Content-Type", content_type), ("Cache-Control", "no-store")];
                encode_response_head(out, date, &ResponseHead { headers: &headers, ..head });
            }
            (content_type, own, _) => {
                let mut all: SmallVec<[_; 8]> = SmallVec::new();
                if let Some(content_type) = content_type {
                    all.push(("Content-Type", content_type));
                    all.push(("Cache-Control", "no-store"));
                }
                all.extend_from_slice(own);
                encode_response_head(out, date, &ResponseHead { headers: &self.headers(&all), ..head });
            }
        }
        if !self.head_only {
            pieces.for_each(|piece| out.extend_from_slice(piece));
        }
    }

    /// Appends the head of an answer without an end.
    pub(super) fn write_stream_head(&self, out: &mut Vec<u8>, date: &str, own: &[(&str, &str)]) {
        let headers = self.headers(own);
        let body = match self.version {
            Version::Http11 => ResponseBody::Chunked,
            Version::Http10 => ResponseBody::UntilClose,
        };
        let head = ResponseHead { status: 200, headers: &headers, body, close: false, version: self.version };
        encode_response_head(out, date, &head);
    }

    /// Appends a refusal.
    pub(super) fn write_problem(&self, out: &mut Vec<u8>, date: &str, problem: &Problem) {
        #[derive(Serialize)]
        struct Envelope<'a> {
            status: &'static str,
            message: &'a str,
            code: &'a str,
        }
        let mut body = Vec::with_capacity(128);
        write_json(&mut body, &Envelope { status: "error", message: &problem.message, code: problem.code });
        let retry_after = problem.retry_after.map(|seconds| seconds.to_string());
        let mut headers: SmallVec<[_; 4]> = SmallVec::new();
        if let Some(seconds) = &retry_after {
            headers.push(("Retry-After", seconds.as_str()));
        }
        if let Some(methods) = problem.allow {
            headers.push(("Allow", methods));
        }
        if problem.status == CODING_STATUS {
            headers.push(("Accept-Encoding", "identity"));
        }
        if problem.status == UPGRADE_STATUS {
            headers.push(("Upgrade", "websocket"));
            // Whoever sends Upgrade says so in Connection (RFC 9110, section 7.8); one more line beside `close` is a list.
            headers.push(("Connection", "upgrade"));
            headers.push(("Sec-WebSocket-Version", "13"));
        }
        let response =
            Response { status: problem.status, content_type: Some("application/json"), headers: &headers, body: &body };
        self.write(out, date, &response);
    }
}

/// Appends `{"status":"success","data":…}`.
pub(super) fn write_success(out: &mut Vec<u8>, data: &impl Serialize) {
    out.extend_from_slice(br#"{"status":"success","data":"#);
    write_json(out, data);
    out.push(b'}');
}

/// Appends a value of our own as JSON. Such values have text keys and finite numbers, and memory takes all bytes, so this
/// cannot fail; should it, the text ends early and the client sees broken JSON rather than a broken broker.
pub(super) fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    let _ = serde_json::to_writer(out, value);
}
