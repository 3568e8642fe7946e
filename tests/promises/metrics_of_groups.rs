//! Promise: `/metrics` counts subscribers and deliveries by protocol, members as well as broadcast subscribers, and tells each
//! group's lag.

use crate::broker::Broker;
use crate::deadline::wait_until;
use crate::metrics::Exposition;
use crate::reader::{Kind, Reader};
use serde_json::json;

fn wait_for(broker: &Broker, name: &str, labels: &[(&str, &str)], wanted: f64) {
    let what = format!("{name} of {labels:?} is {wanted}");
    wait_until(&what, || Exposition::read(broker).value(name, labels) == Some(wanted));
}

#[test]
fn subscribers_and_deliveries_are_counted_by_protocol() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut broadcast = [Kind::Sse, Kind::Plain, Kind::Own].map(|kind| Reader::open(&broker, "t", "", kind));
    let mut members =
        [Kind::Sse, Kind::Plain].map(|kind| Reader::open(&broker, "t", &format!("?group={kind:?}"), kind));
    let (sse, ws) = ([("topic", "t"), ("protocol", "sse")], [("topic", "t"), ("protocol", "ws")]);
    wait_for(&broker, "streamq_active_subscribers", &sse, 2.0);
    wait_for(&broker, "streamq_active_subscribers", &ws, 3.0);
    assert_eq!(broker.stats("t")["subscriber_count"], 5);
    broker.publish_numbers("t", 0..10);
    for reader in broadcast.iter_mut().chain(&mut members) {
        (0..10).for_each(|offset| assert_eq!(reader.offset(), offset));
    }
    wait_for(&broker, "streamq_messages_delivered_total", &sse, 20.0);
    wait_for(&broker, "streamq_messages_delivered_total", &ws, 30.0);
    let [stream, plain, own] = broadcast;
    drop((stream, own));
    wait_for(&broker, "streamq_active_subscribers", &sse, 1.0);
    wait_for(&broker, "streamq_active_subscribers", &ws, 2.0);
    drop((plain, members));
    let exposition = || Exposition::read(&broker);
    wait_until("nobody is counted", || {
        [sse, ws]
            .iter()
            .all(|labels| exposition().value("streamq_active_subscribers", labels).is_none_or(|count| count == 0.0))
    });
    // What was delivered stays counted when those who got it are gone.
    wait_for(&broker, "streamq_messages_delivered_total", &sse, 20.0);
    wait_for(&broker, "streamq_messages_delivered_total", &ws, 30.0);
}

#[test]
fn redeliveries_count_as_deliveries() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut member = broker.websocket("t", "?group=g", &[]);
    broker.publish("t", b"x");
    member.message();
    for _ in 0..3 {
        member.say(json!({ "nack": 0 }));
        member.message();
    }
    wait_for(&broker, "streamq_messages_delivered_total", &[("topic", "t"), ("protocol", "ws")], 4.0);
}

#[test]
fn each_groups_lag_is_told() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..10);
    let lag = |group: &str| {
        Exposition::read(&broker).value("streamq_consumer_group_lag", &[("topic", "t"), ("group", group)])
    };
    assert_eq!(lag("g"), None, "there is no such group");
    let mut member = broker.websocket("t", "?group=g&from_offset=0", &[]);
    let tail = broker.websocket("t", "?group=%22odd%5Cname", &[]);
    assert_eq!((lag("g"), lag("\"odd\\name")), (Some(10.0), Some(0.0)));
    member.offsets(10);
    member.acknowledge(&[0, 1, 2, 5]);
    assert_eq!(lag("g"), Some(7.0));
    broker.publish("t", b"x");
    assert_eq!((lag("g"), lag("\"odd\\name")), (Some(8.0), Some(1.0)));
    // A group whose members are gone goes on to lag.
    drop((member, tail));
    broker.wait_for_group("t", "g", "members", 0);
    broker.publish("t", b"x");
    assert_eq!(lag("g"), Some(9.0));
    broker.request("DELETE", "/topics/t/groups/g", &[], b"").expect(200);
    assert_eq!(lag("g"), None);
    broker.delete_topic("t");
    let exposition = Exposition::read(&broker);
    let labels = [("topic", "t"), ("group", "\"odd\\name")];
    assert_eq!(exposition.value("streamq_consumer_group_lag", &labels), None);
}
