//! A small HTTP/1.1 client over plain sockets, strict about what it reads. It shares no code with the broker, so that
//! the broker's own codec is not its own judge.

use crate::deadline::LIMIT;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What an attempt to read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// At least one more byte.
    Bytes,
    /// The other side has closed, in order or by a reset.
    Ended,
    /// Nothing until the deadline.
    Quiet,
}

/// One connection to the broker.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    pub(crate) pending: Vec<u8>,
    host: String,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        Self { stream, pending: Vec::new(), host: address.to_string() }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes to a broker that may already have closed; whether they went out.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// A second handle of the same socket, to send from another thread.
    pub(crate) fn sender(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// Tells the broker that nothing more will be sent.
    pub(crate) fn finish_sending(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends one request with `Host` and, unless it is empty and the method needs none, `Content-Length`.
    pub(crate) fn send_request(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) {
        let bytes = request_bytes(&self.host, method, target, headers, body);
        self.send(&bytes);
    }

    /// Reads once, until the deadline at most. What is there is read in any case, however late the test comes to it.
    pub(crate) fn fill(&mut self, until: Instant) -> Filled {
        let mut buffer = [0; 16 * 1024];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
            match self.stream.read(&mut buffer).map_err(|error| error.kind()) {
                Ok(0) => return Filled::Ended,
                Ok(count) => {
                    self.pending.extend_from_slice(&buffer[..count]);
                    return Filled::Bytes;
                }
                // A test that was stopped and goes on has waited for nothing yet.
                Err(ErrorKind::Interrupted) => {}
                Err(ErrorKind::WouldBlock | ErrorKind::TimedOut) if Instant::now() < until => {}
                Err(ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Filled::Quiet,
                Err(_) => return Filled::Ended,
            }
        }
    }

    /// The response to a request of that method. Panics when none arrives or it breaks the rules of HTTP.
    pub(crate) fn response_to(&mut self, method: &str) -> Response {
        let got = self.try_response_to(method);
        got.unwrap_or_else(|| panic!("closed instead of a whole answer to {method}: {:?}", self.pending_text()))
    }

    /// The response, or nothing when the broker closes the connection before it is whole.
    pub(crate) fn try_response_to(&mut self, method: &str) -> Option<Response> {
        let until = Instant::now() + LIMIT;
        let mut response = self.head(until)?;
        let is_interim = (100..200).contains(&response.status);
        if method == "HEAD" || is_interim || matches!(response.status, 204 | 304) {
            return Some(response);
        }
        let length = response.header("content-length").map(|length| length.parse::<usize>().expect("a length"));
        let is_chunked = response.header("transfer-encoding").is_some_and(|coding| coding == "chunked");
        assert!(!(length.is_some() && is_chunked), "two framings: {response:?}");
        if let Some(length) = length {
            response.body = self.take(length, until)?;
        } else if is_chunked {
            while let Some(chunk) = self.chunk(until)? {
                response.body.extend(chunk);
            }
        } else {
            while self.fill(until) == Filled::Bytes {}
            response.body = std::mem::take(&mut self.pending);
        }
        Some(response)
    }

    /// The head of a response; its body is left unread.
    pub(crate) fn head(&mut self, until: Instant) -> Option<Response> {
        let end = loop {
            if let Some(end) = self.pending.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end;
            }
            match self.fill(until) {
                Filled::Bytes => {}
                Filled::Ended => return None,
                Filled::Quiet => panic!("no head of a response within {LIMIT:?}: {:?}", self.pending_text()),
            }
        };
        let head: Vec<u8> = self.pending.drain(..end + 4).collect();
        Some(Response::parse_head(&head[..end]))
    }

    /// One chunk of a chunked body; `Some(None)` when it was the last one, nothing when the broker closed.
    pub(crate) fn chunk(&mut self, until: Instant) -> Option<Option<Vec<u8>>> {
        let end = loop {
            if let Some(end) = self.pending.windows(2).position(|bytes| bytes == b"\r\n") {
                break end;
            }
            match self.fill(until) {
                Filled::Bytes => {}
                Filled::Ended => return None,
                Filled::Quiet => panic!("no chunk within {LIMIT:?}: {:?}", self.pending_text()),
            }
        };
        let line: Vec<u8> = self.pending.drain(..end + 2).collect();
        let line = std::str::from_utf8(&line[..end]).unwrap();
        let size = usize::from_str_radix(line, 16).unwrap_or_else(|_| panic!("{line:?} is no chunk size"));
        let mut chunk = self.take(size + 2, until)?;
        assert!(chunk.ends_with(b"\r\n"), "a chunk does not end where its size says");
        chunk.truncate(size);
        Some((size > 0).then_some(chunk))
    }

    fn take(&mut self, length: usize, until: Instant) -> Option<Vec<u8>> {
        while self.pending.len() < length {
            match self.fill(until) {
                Filled::Bytes => {}
                Filled::Ended => return None,
                Filled::Quiet => panic!("{} of {length} bytes within {LIMIT:?}", self.pending.len()),
            }
        }
        Some(self.pending.drain(..length).collect())
    }

    /// Everything until the broker closes. Panics when it does not.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let until = Instant::now() + LIMIT;
        loop {
            match self.fill(until) {
                Filled::Bytes => {}
                Filled::Ended => return std::mem::take(&mut self.pending),
                Filled::Quiet => panic!("not closed within {LIMIT:?}; so far {:?}", self.pending_text()),
            }
        }
    }

    /// Panics unless the broker closes the connection without another byte.
    pub(crate) fn expect_closed(&mut self) {
        let rest = self.read_to_end();
        assert!(rest.is_empty(), "bytes before the end: {:?}", String::from_utf8_lossy(&rest));
    }

    pub(crate) fn pending_text(&self) -> String {
        String::from_utf8_lossy(&self.pending[..self.pending.len().min(2000)]).into_owned()
    }
}

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case, in order.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    fn parse_head(head: &[u8]) -> Self {
        let text = std::str::from_utf8(head).expect("a head in ASCII");
        assert!(text.is_ascii(), "a head outside ASCII: {text:?}");
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap();
        let status = status_line.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("status line {status_line:?}"));
        assert!(status.as_bytes().get(3) == Some(&b' '), "no space after the status: {status_line:?}");
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("header line {line:?}"));
            let is_token = |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
            assert!(!name.is_empty() && name.chars().all(is_token), "header name {name:?}");
            assert!(!value.contains(['\r', '\n', '\0']), "header value {value:?}");
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let response = Self { status: status[..3].parse().expect("a status"), headers, body: Vec::new() };
        assert!(response.status < 200 || response.header("date").is_some(), "no Date: {response:?}");
        response
    }

    /// The one value of a header. Panics when it is there twice.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        value
    }

    /// Whether a comma-separated header, possibly on several lines, lists a token in any case.
    pub(crate) fn lists(&self, name: &str, token: &str) -> bool {
        let values = self.headers.iter().filter(|(known, _)| known == name).flat_map(|(_, value)| value.split(','));
        values.map(str::trim).any(|listed| listed.eq_ignore_ascii_case(token))
    }

    /// Panics, showing all of it, unless the status is the expected one.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert!(self.status == status, "expected {status}, got {}", self.shown());
        self
    }

    /// Panics unless this is an error with that status and that code, told in the envelope.
    #[track_caller]
    pub(crate) fn expect_error(self, status: u16, code: &str) -> Self {
        let answer = self.expect(status);
        let value = answer.json();
        assert_eq!(value["code"], code, "{}", answer.shown());
        answer.expect_envelope_of_error();
        answer
    }

    /// Panics unless the body is an error in the envelope.
    #[track_caller]
    pub(crate) fn expect_envelope_of_error(&self) {
        let value = self.json();
        let is_told = |name: &str| value[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(value["status"] == "error" && is_told("message") && is_told("code"), "{}", self.shown());
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        let kind = self.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/json"), "not JSON: {}", self.shown());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.shown()))
    }

    /// What a successful answer holds in its envelope.
    #[track_caller]
    pub(crate) fn data(&self) -> serde_json::Value {
        let value = self.json();
        assert_eq!(value["status"], "success", "{}", self.shown());
        value["data"].clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    fn shown(&self) -> String {
        let body = &self.body[..self.body.len().min(2000)];
        format!("{} {:?} {}", self.status, self.headers, String::from_utf8_lossy(body))
    }
}

/// The bytes of a request with `Host` and `Content-Length`; a header given replaces the one that would be made.
pub(crate) fn request_bytes(host: &str, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let has = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    if !has("host") {
        write!(head, "Host: {host}\r\n").unwrap();
    }
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    let has_body = !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH");
    if has_body && !has("content-length") && !has("transfer-encoding") {
        write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A name as one segment of a path: everything but unreserved characters is percent-encoded.
pub(crate) fn path_segment(name: &str) -> String {
    let mut segment = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~.".contains(&byte) {
            segment.push(char::from(byte));
        } else {
            write!(segment, "%{byte:02X}").unwrap();
        }
    }
    segment
}
