//! Promise: `/metrics?topics=false` tells what all topics amount to, and grows with none of them.

use crate::broker::Broker;
use crate::deadline::wait_until;
use ringmain_model::limit::REPORTED_PARTITIONS_MAX;

/// The samples of a family, summed over their labels.
fn sum(text: &str, family: &str) -> Option<f64> {
    let is_of_it =
        |line: &&str| line.strip_prefix(family).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '));
    let values: Vec<f64> =
        text.lines().filter(is_of_it).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

fn totals(broker: &Broker) -> String {
    broker.get("/metrics?topics=false").expect(200).text()
}

#[test]
fn totals_count_exactly_over_topics_partitions_and_protocols() {
    let broker = Broker::start();
    broker.create_topic("a");
    broker.request("POST", "/topics", &[], br#"{"name":"b","partitions":3}"#).expect(201);
    let mut one = broker.subscribe("a", "?from_offset=0", &[]);
    let mut all = broker.subscribe("b", "?from_offset=0", &[]);
    let mut member = broker.subscribe("a", "?group=g&from_offset=0", &[]);
    broker.publish_numbers("a", 0..20);
    broker.publish_numbers("b", 0..9);
    drop((one.messages(20), all.messages(9), member.messages(20)));

    wait_until("deliveries are counted", || sum(&totals(&broker), "ringmain_messages_delivered_total") == Some(49.0));
    let text = totals(&broker);
    assert_eq!(sum(&text, "ringmain_topics"), Some(2.0));
    assert_eq!(sum(&text, "ringmain_messages_published_total"), Some(29.0));
    // Each reads all partitions, and counts once.
    assert_eq!(sum(&text, "ringmain_subscribers"), Some(3.0), "{text}");
    let bytes: u64 = ["a", "b"].iter().map(|name| broker.stats(name)["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum(&text, "ringmain_memory_bytes"), Some(bytes as f64));
    assert!(!text.contains("topic="), "{text}");

    let whole = broker.get("/metrics").expect(200).text();
    for family in ["ringmain_topics", "ringmain_messages_published_total", "ringmain_subscribers"] {
        assert_eq!(sum(&whole, family), sum(&text, family), "{family}");
    }
    assert!(whole.contains(r#"topic="a""#));
    drop((one, all, member));
    wait_until("subscribers that left are not counted", || sum(&totals(&broker), "ringmain_subscribers") == Some(0.0));
    broker.delete_topic("a");
    assert_eq!(sum(&totals(&broker), "ringmain_topics"), Some(1.0));
}

#[test]
fn many_topics_make_them_no_longer() {
    let broker = Broker::start();
    let before = totals(&broker).lines().count();
    let topics = 2 * u64::from(REPORTED_PARTITIONS_MAX);
    (0..topics).for_each(|number| broker.create_topic(&format!("t{number}")));
    let text = totals(&broker);
    assert_eq!(sum(&text, "ringmain_topics"), Some(topics as f64));
    assert_eq!(text.lines().count(), before, "{text}");
    broker.get("/metrics?topics=true").expect(200);
    broker.get("/metrics?topics=some").expect_error(400, "invalid_request");
}
