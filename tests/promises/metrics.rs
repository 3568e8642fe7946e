//! Promise: `/metrics` tells streamq's families with exact values, in a form that Prometheus accepts.

use crate::broker::Broker;
use crate::deadline::wait_until;
use prometheus::proto::MetricFamily;
use protobuf::CodedInputStream;
use ringmain_model::limit::REPORTED_PARTITIONS_MAX;
use std::collections::{BTreeMap, HashMap, HashSet};

/// One line of the exposition.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// An exposition in the text format, version 0.0.4.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    kinds: HashMap<String, String>,
    samples: Vec<Sample>,
}

impl Exposition {
    pub(crate) fn read(broker: &Broker) -> Self {
        let answer = broker.get("/metrics").expect(200);
        let kind = answer.header("content-type").unwrap();
        assert!(kind.starts_with("text/plain") && kind.contains("version="), "{kind}");
        Self::parse(&answer.text())
    }

    /// Reads the format as strictly as Prometheus does: one HELP and one TYPE a family, before its samples, all samples
    /// of a family together, no sample twice, no timestamps, a line feed at the end.
    fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n') && !text.contains('\r'), "{text:?}");
        let mut exposition = Self::default();
        let mut helped = HashSet::new();
        let mut finished = HashSet::new();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# ") {
                let mut words = rest.splitn(3, ' ');
                let (what, family) = (words.next().unwrap(), words.next().unwrap().to_owned());
                let rest = words.next().unwrap_or_default().to_owned();
                match what {
                    "HELP" => assert!(helped.insert(family.clone()) && !rest.is_empty(), "HELP twice or empty: {line}"),
                    "TYPE" => {
                        assert!(
                            ["counter", "gauge", "histogram", "summary", "untyped"].contains(&rest.as_str()),
                            "{line}"
                        );
                        assert!(exposition.kinds.insert(family.clone(), rest).is_none(), "TYPE twice: {line}");
                    }
                    other => panic!("unknown comment {other}: {line}"),
                }
                if family != current {
                    assert!(finished.insert(std::mem::replace(&mut current, family)), "a family in two parts: {line}");
                }
                continue;
            }
            let sample = parse_sample(line);
            let family = exposition.family_of(&sample.name);
            assert_eq!(family, current, "a sample outside its family: {line}");
            let is_new =
                !exposition.samples.iter().any(|known| known.name == sample.name && known.labels == sample.labels);
            assert!(is_new, "a sample twice: {line}");
            exposition.samples.push(sample);
        }
        exposition
    }

    fn family_of(&self, name: &str) -> String {
        let is_histogram =
            |family: &&str| matches!(self.kinds.get(*family).map(String::as_str), Some("histogram" | "summary"));
        let endings = ["_bucket", "_sum", "_count"];
        let family = endings.iter().filter_map(|ending| name.strip_suffix(ending)).find(is_histogram);
        family.unwrap_or(name).to_owned()
    }

    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has_all = |sample: &&Sample| {
            let mut wanted = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            sample.name == name
                && sample.labels.len() == labels.len()
                && wanted.all(|label| sample.labels.contains(&label))
        };
        self.samples.iter().find(has_all).map(|sample| sample.value)
    }
}

fn parse_sample(line: &str) -> Sample {
    let name: String =
        line.chars().take_while(|letter| letter.is_ascii_alphanumeric() || "_:".contains(*letter)).collect();
    let mut rest = &line[name.len()..];
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("label in {line}"));
            let mut value = String::new();
            let mut letters = after.char_indices();
            let end = loop {
                match letters.next().unwrap_or_else(|| panic!("an open label in {line}")) {
                    (at, '"') => break at,
                    (_, '\\') => match letters.next().unwrap().1 {
                        'n' => value.push('\n'),
                        letter @ ('\\' | '"') => value.push(letter),
                        other => panic!("escape \\{other} in {line}"),
                    },
                    (_, letter) => value.push(letter),
                }
            };
            labels.push((label.trim_start_matches(',').to_owned(), value));
            rest = &after[end + 1..];
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no value in {line}"));
    // A second number would be a timestamp, which breaks staleness.
    let value = value.parse().unwrap_or_else(|_| panic!("value {value:?} in {line}"));
    labels.sort();
    Sample { name, labels, value }
}

#[test]
fn streamqs_families_count_exactly() {
    let broker = Broker::start();
    for name in ["a", "b"] {
        broker.create_topic(name);
    }
    let mut streams: Vec<_> = (0..3).map(|_| broker.subscribe("a", "?from_offset=0", &[])).collect();
    let mut late = broker.subscribe("b", "?from_offset=0", &[]);
    broker.publish_numbers("a", 0..20);
    broker.publish_numbers("b", 0..7);
    streams.iter_mut().for_each(|stream| drop(stream.messages(20)));
    drop(late.messages(7));

    let delivered = |topic: &str| {
        Exposition::read(&broker).value("streamq_messages_delivered_total", &[("topic", topic), ("protocol", "sse")])
    };
    wait_until("deliveries are counted", || delivered("a") == Some(60.0) && delivered("b") == Some(7.0));
    let exposition = Exposition::read(&broker);
    for (topic, published, subscribers) in [("a", 20.0, 3.0), ("b", 7.0, 1.0)] {
        let labels = [("topic", topic)];
        let with_protocol = [("topic", topic), ("protocol", "sse")];
        assert_eq!(exposition.value("streamq_messages_published_total", &labels), Some(published));
        assert_eq!(exposition.value("streamq_topic_message_count", &labels), Some(published));
        assert_eq!(exposition.value("streamq_active_subscribers", &with_protocol), Some(subscribers));
        let dropped = exposition.value("streamq_messages_dropped_total", &labels);
        assert!(dropped.is_none_or(|dropped| dropped == 0.0), "{dropped:?}");
    }
    let kinds = [
        ("streamq_messages_published_total", "counter"),
        ("streamq_messages_delivered_total", "counter"),
        ("streamq_messages_dropped_total", "counter"),
        ("streamq_active_subscribers", "gauge"),
        ("streamq_topic_message_count", "gauge"),
    ];
    for (family, kind) in kinds {
        assert_eq!(exposition.kinds.get(family).map(String::as_str), Some(kind), "{family}");
    }

    drop(streams);
    let active =
        || Exposition::read(&broker).value("streamq_active_subscribers", &[("topic", "a"), ("protocol", "sse")]);
    wait_until("subscribers that left are not counted", || active().is_none_or(|count| count == 0.0));
}

#[test]
fn refused_publishes_are_not_counted() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish("t", b"x");
    broker.request("POST", "/topics/t/publish", &[("Content-Type", "application/json")], b"{").expect(400);
    broker.request("POST", "/topics/t/publish", &[], &vec![b'x'; 2 << 20]).expect(413);
    let published = Exposition::read(&broker).value("streamq_messages_published_total", &[("topic", "t")]);
    assert_eq!(published, Some(1.0));
}

#[test]
fn any_topic_name_is_a_label() {
    let broker = Broker::start();
    for name in ["quote\"d", "back\\slash", "comma,brace}", "ünï 🚀", "#", "a=\"b\""] {
        broker.create_topic(name);
        broker.publish(name, b"x");
        let published = Exposition::read(&broker).value("streamq_messages_published_total", &[("topic", name)]);
        assert_eq!(published, Some(1.0), "{name}");
    }
}

#[test]
fn a_deleted_topic_leaves_no_series_behind() {
    let broker = Broker::start();
    broker.create_topic("gone");
    broker.publish("gone", b"x");
    drop(broker.subscribe("gone", "?from_offset=0", &[]).message());
    broker.delete_topic("gone");
    let is_left = || {
        let samples = Exposition::read(&broker).samples;
        samples.iter().any(|sample| sample.labels.contains(&("topic".to_owned(), "gone".to_owned())))
    };
    wait_until("the series are gone", || !is_left());
}

#[test]
fn every_scraper_gets_the_text_that_does_not_prefer_what_we_have() {
    let broker = Broker::start();
    let accepts = [
        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
        "application/json",
        "*/*",
    ];
    for accept in accepts {
        let answer = broker.request("GET", "/metrics", &[("Accept", accept)], b"").expect(200);
        let kind = answer.header("content-type").expect("a type").to_owned();
        assert!(kind.starts_with("text/plain"), "{accept}: {kind}");
        Exposition::parse(&answer.text());
    }
}

#[test]
fn a_scraper_that_prefers_protocol_buffers_gets_them() {
    let broker = Broker::start();
    // More than a core reports at a time: what is encoded in parts comes as one family.
    let topics = 2 * REPORTED_PARTITIONS_MAX as usize;
    (0..topics).for_each(|number| broker.create_topic(&format!("t{number}")));
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,*/*;q=0.1";
    let answer = broker.request("GET", "/metrics", &[("Accept", accept)], b"").expect(200);
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("application/vnd.google.protobuf") && kind.contains("encoding=delimited"), "{kind}");
    let mut families = BTreeMap::new();
    let mut stream = CodedInputStream::from_bytes(&answer.body);
    while !stream.eof().unwrap() {
        let family: MetricFamily = stream.read_message().unwrap();
        assert!(!family.help().is_empty(), "{family}");
        let name = family.name().to_owned();
        assert!(families.insert(name, family.get_metric().len()).is_none(), "each family once");
    }
    assert_eq!((families["streamq_topic_message_count"], families.len() > 10), (topics, true), "{families:?}");
    let text = Exposition::parse(&broker.get("/metrics").expect(200).text());
    let samples = text.samples.iter().filter(|sample| sample.name == "streamq_topic_message_count");
    assert_eq!(samples.count(), topics);
}
