//! In which format a scraper gets the metrics: the best of ours that it accepts (RFC 9110, section 12.5.1). On the core of the connection.

use std::slice;

use prometheus::proto::MetricFamily;
use prometheus::{Encoder, TextEncoder};
use protobuf::{CodedOutputStream, Message};
use ringmain_wire::http::RequestHead;

/// The text format, which every scraper takes.
const TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Prometheus' protocol buffers, each message behind its length.
const PROTOBUF_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// A format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::front::http) enum Exposition {
    Text,
    Protobuf,
}

impl Exposition {
    /// The format that a request wants most. One that takes neither gets the text: it can do more with it than with a refusal.
    pub(in crate::front::http) fn wanted(head: &RequestHead<'_>) -> Self {
        let accept = head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
        let texts: Vec<_> = accept.map(|(_, value)| String::from_utf8_lossy(value)).collect();
        Self::of(texts.iter().map(|text| &**text))
    }

    fn of<'t>(accepts: impl Iterator<Item = &'t str>) -> Self {
        let (mut text, mut protobuf) = (0, 0);
        for range in accepts.flat_map(|accept| accept.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
            let find = |name: &str| parameters.iter().find(|(other, _)| other.trim().eq_ignore_ascii_case(name));
            let weight = find("q").map_or(1000, |(_, weight)| thousandths(weight));
            let is_ours = |name: &str, wanted: &str| {
                find(name).is_some_and(|(_, value)| value.trim().trim_matches('"').eq_ignore_ascii_case(wanted))
            };
            match kind.as_str() {
                "text/plain" if find("version").is_none() || is_ours("version", "0.0.4") => text = text.max(weight),
                "text/*" | "*/*" => text = text.max(weight),
                "application/vnd.google.protobuf"
                    if is_ours("proto", "io.prometheus.client.MetricFamily") && is_ours("encoding", "delimited") =>
                {
                    protobuf = protobuf.max(weight);
                }
                _ => {}
            }
        }
        if protobuf > text { Self::Protobuf } else { Self::Text }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Text => TEXT_TYPE,
            Self::Protobuf => PROTOBUF_TYPE,
        }
    }

    /// Adds a family's samples to those of the same family that are encoded already.
    ///
    /// # Errors
    /// The encoder's own.
    pub(super) fn append(self, family: &MetricFamily, encoded: &mut Vec<u8>) -> prometheus::Result<()> {
        let start = encoded.len();
        match self {
            Self::Text => {
                TextEncoder::new().encode(slice::from_ref(family), encoded)?;
                if start > 0 {
                    // The lines of help and type stand once, before the first sample.
                    let comments = encoded[start..].split_inclusive(|byte| *byte == b'\n');
                    let comments = comments.take_while(|line| line.starts_with(b"#"));
                    let length: usize = comments.map(<[u8]>::len).sum();
                    encoded.drain(start..start + length);
                }
                Ok(())
            }
            // Encodings of one message after each other are the encoding of a message with all their repeated fields.
            Self::Protobuf => Ok(family.write_to_vec(encoded)?),
        }
    }

    /// What stands before a whole family.
    ///
    /// # Errors
    /// The encoder's own.
    pub(super) fn frame(self, family: &[u8]) -> prometheus::Result<Vec<u8>> {
        let mut frame = Vec::new();
        if self == Self::Protobuf {
            let mut length = CodedOutputStream::vec(&mut frame);
            length.write_raw_varint64(family.len() as u64)?;
            length.flush()?;
        }
        Ok(frame)
    }
}

/// A weight between 0 and 1, in thousandths; one that cannot be read counts as 0.
fn thousandths(weight: &str) -> u32 {
    let weight = weight.trim().parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
    let thousandths = (weight * 1000.0) as u32;
    thousandths
}

#[cfg(test)]
mod tests {
    use super::Exposition;

    #[test]
    fn the_weightiest_of_ours_wins() {
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accepts, wanted) in [
            (vec![], Exposition::Text),
            (vec!["*/*".to_owned()], Exposition::Text),
            (vec!["application/json".to_owned()], Exposition::Text),
            (vec![protobuf.to_owned()], Exposition::Protobuf),
            (vec![format!("{protobuf};q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2")], Exposition::Protobuf),
            (vec![format!("{protobuf};q=0.2,text/plain;version=0.0.4;q=0.3")], Exposition::Text),
            (vec!["text/plain;q=0.1".to_owned(), protobuf.to_owned()], Exposition::Protobuf),
            (vec!["application/vnd.google.protobuf;encoding=text;q=1".to_owned()], Exposition::Text),
            (vec![format!("{protobuf};q=much")], Exposition::Text),
            (vec!["application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1".to_owned()], Exposition::Text),
        ] {
            assert_eq!(Exposition::of(accepts.iter().map(String::as_str)), wanted, "{accepts:?}");
        }
    }
}
