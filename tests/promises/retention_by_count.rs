//! Promise: a memory topic keeps the newest messages up to its cap, and offsets go on counting.

use crate::broker::{Broker, Setup};

#[test]
fn the_newest_messages_are_kept() {
    let broker = Setup::new().flag("--retention", 10).start();
    broker.create_topic("t");
    for end in [9_u64, 10, 11, 35] {
        let before = broker.stats("t")["latest_offset"].as_i64().unwrap();
        broker.publish_numbers("t", u64::try_from(before + 1).unwrap()..end);
        let stats = broker.stats("t");
        assert_eq!(stats["message_count"], end.min(10), "{stats}");
        assert_eq!(stats["earliest_offset"], end.saturating_sub(10), "{stats}");
        assert_eq!(stats["latest_offset"], end - 1, "{stats}");
    }
    let page = broker.get("/topics/t/messages?from_offset=25&limit=100").expect(200).data();
    let payloads: Vec<&str> =
        page["messages"].as_array().unwrap().iter().map(|message| message["payload"].as_str().unwrap()).collect();
    assert_eq!(payloads.len(), 10);
    assert_eq!(payloads[0], "MjU=", "the payload of offset 25 is 25");
}

#[test]
fn a_cap_of_one_keeps_the_last_message() {
    let broker = Setup::new().variable("MAX_MESSAGE_RETENTION", 1).start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..5);
    let mut stream = broker.subscribe("t", "?from_offset=4", &[]);
    assert_eq!(stream.message().offset, 4);
    assert_eq!(broker.stats("t")["message_count"], 1);
}

#[test]
fn a_thousand_messages_are_kept_by_default() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..1010);
    let stats = broker.stats("t");
    assert_eq!((&stats["message_count"], &stats["earliest_offset"]), (&1000.into(), &10.into()), "{stats}");
}

#[test]
fn a_small_cap_does_not_cut_off_a_connected_reader() {
    let broker = Setup::new().flag("--retention", 2).start();
    broker.create_topic("t");
    let mut stream = broker.subscribe("t", "", &[]);
    broker.wait_for_subscribers("t", 1);
    broker.publish_numbers("t", 0..500);
    let offsets: Vec<u64> = stream.messages(500).iter().map(|message| message.offset).collect();
    assert_eq!(offsets, (0..500).collect::<Vec<u64>>());
}
