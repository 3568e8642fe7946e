//! Promise: when a topic is deleted its streams end, and a client that comes back learns that the topic is gone.

use crate::broker::Broker;
use crate::deadline::LIMIT;
use crate::events::{End, EventStream, Step, message_of};

#[test]
fn streams_end_when_their_topic_is_deleted() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.create_topic("other");
    broker.publish_numbers("t", 0..3);
    let mut streams: Vec<EventStream> = (0..12).map(|_| broker.subscribe("t", "?from_offset=0", &[])).collect();
    let mut other = broker.subscribe("other", "", &[]);
    broker.wait_for_subscribers("t", 12);
    broker.wait_for_subscribers("other", 1);
    let token = streams[0].messages(3).pop().unwrap().last_id;
    broker.delete_topic("t");
    for stream in &mut streams {
        stream.wait_for_end();
    }
    let again = broker.request("GET", "/topics/t/subscribe/sse", &[("Last-Event-ID", &token)], b"");
    again.expect_error(404, "topic_not_found");
    broker.publish("other", b"still here");
    assert_eq!(other.message().payload, b"still here");
}

#[test]
fn what_was_published_before_the_deletion_is_delivered_first_or_not_at_all() {
    let broker = Broker::start();
    for round in 0..10 {
        let name = format!("t{round}");
        broker.create_topic(&name);
        let mut stream = broker.subscribe(&name, "?from_offset=0", &[]);
        broker.publish_numbers(&name, 0..10);
        broker.delete_topic(&name);
        let mut expected = 0;
        loop {
            match stream.step(LIMIT) {
                Step::Event(event) if event.name == "message" => {
                    assert_eq!(message_of(&event).offset, expected, "in order and without holes");
                    expected += 1;
                }
                Step::Event(event) => assert_eq!(event.name, "end", "{event:?}"),
                Step::Ended(end) => break assert_eq!(end, End::Whole),
                Step::Quiet => panic!("the stream did not end"),
            }
        }
    }
}
