//! A small HTTP client over one blocking socket, for the commands that talk to a broker; on the main thread.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use ringmain_wire::http::{
    BodyDecoder, HeadLimits, Method, decode_response_head, encode_request_head, percent_encode_segment,
};
use serde_json::Value;

use super::Failure;

/// Bytes of an answer that is read whole.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// How long the broker may keep silent while it owes an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a broker.
pub(super) struct Client {
    stream: TcpStream,
    host: String,
    input: Vec<u8>,
}

/// An answer that was read whole.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// The path of a topic.
pub(super) fn topic_path(topic: &str) -> String {
    format!("/topics/{}", percent_encode_segment(topic))
}

/// The path of a topic's group.
pub(super) fn group_path(topic: &str, group: &str) -> String {
    format!("{}/groups/{}", topic_path(topic), percent_encode_segment(group))
}

impl Client {
    /// Connects to `http://host:port`.
    pub(super) fn connect(server: &str) -> Result<Self, Failure> {
        let host = server.strip_prefix("http://").unwrap_or(server).trim_end_matches('/');
        if host.is_empty() || host.contains('/') {
            return Err(Failure::Usage(format!("--server {server}: write it like http://127.0.0.1:8080")));
        }
        let with_port = match host.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => host.to_owned(),
            _ => format!("{host}:80"),
        };
        let stream = TcpStream::connect(&with_port).map_err(|error| {
            Failure::Lost(format!("cannot reach a broker at {with_port}: {error}; start one with `ringmain serve`, or name another with --server"))
        })?;
        let patient = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(ANSWER_TIMEOUT)));
        patient.map_err(|error| failed(&error))?;
        Ok(Self { stream, host: host.to_owned(), input: Vec::new() })
    }

    /// Sends a request.
    pub(super) fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(), Failure> {
        let mut request = Vec::with_capacity(body.len() + 512);
        let length = (method != "GET").then_some(body.len() as u64);
        encode_request_head(&mut request, method, target, &self.host, headers, length);
        request.extend_from_slice(body);
        self.stream.write_all(&request).map_err(|error| failed(&error))
    }

    /// Reads an answer's head; what follows it is read by [`Client::read_body`].
    pub(super) fn read_head(&mut self) -> Result<(u16, BodyDecoder), Failure> {
        loop {
            let decoded = decode_response_head(&self.input, &HeadLimits::default(), Method::Get);
            let decoded = decoded.map_err(|refusal| Failure::Failed(refusal.message))?;
            let head = decoded.map(|(head, length)| (head.status, head.framing, length));
            if let Some((status, framing, length)) = head {
                self.input.drain(..length);
                // What is below 200 only announces the answer.
                if status >= 200 {
                    let decoder = BodyDecoder::new(framing, ANSWER_BYTES_MAX);
                    return Ok((status, decoder.map_err(|refusal| Failure::Failed(refusal.message))?));
                }
            } else if !self.read_some()? {
                return Err(Failure::Lost("the broker closed the connection without an answer".to_owned()));
            }
        }
    }

    /// Reads more of a body; `None` at its end. A body without an end is waited for without limit.
    pub(super) fn read_body(&mut self, decoder: &mut BodyDecoder) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if decoder.complete() {
                return Ok(None);
            }
            if self.input.is_empty() && !self.read_some()? {
                decoder.end().map_err(|_| Failure::Lost("the broker cut the connection".to_owned()))?;
                return Ok(None);
            }
            let mut body = Vec::new();
            let (used, _) =
                decoder.decode(&self.input, &mut body).map_err(|refusal| Failure::Failed(refusal.message))?;
            self.input.drain(..used);
            if !body.is_empty() {
                return Ok(Some(body));
            }
        }
    }

    /// Lets reading wait for ever: a stream may be silent.
    pub(super) fn wait_for_ever(&self) -> Result<(), Failure> {
        self.stream.set_read_timeout(None).map_err(|error| failed(&error))
    }

    fn read_some(&mut self) -> Result<bool, Failure> {
        let mut buffer = [0; 16 << 10];
        let count = self.stream.read(&mut buffer).map_err(|error| failed(&error))?;
        self.input.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }

    /// Asks and reads the whole answer; a refusal becomes a failure with the broker's own words.
    pub(super) fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, Failure> {
        self.send(method, target, headers, body)?;
        let (status, mut decoder) = self.read_head()?;
        let mut answer = Answer { status, body: Vec::new() };
        while let Some(part) = self.read_body(&mut decoder)? {
            answer.body.extend_from_slice(&part);
        }
        answer.check()
    }
}

impl Answer {
    fn check(self) -> Result<Self, Failure> {
        if self.status < 400 { Ok(self) } else { Err(refusal(self.status, &self.body)) }
    }

    /// The `data` of the envelope.
    pub(super) fn data(&self) -> Result<Value, Failure> {
        let mut envelope: Value = serde_json::from_slice(&self.body)
            .map_err(|error| Failure::Failed(format!("the answer is not of a broker: {error}; check --server")))?;
        Ok(envelope.get_mut("data").map(Value::take).unwrap_or_default())
    }
}

/// A refusal in the broker's own words.
pub(super) fn refusal(status: u16, body: &[u8]) -> Failure {
    let envelope: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| envelope.get(name).and_then(Value::as_str).map(str::to_owned);
    let message = text("message").unwrap_or_else(|| "no reason given".to_owned());
    let code = text("code").unwrap_or_else(|| status.to_string());
    Failure::Failed(format!("{message} ({code})"))
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::Lost(format!("the connection to the broker failed: {error}"))
}
