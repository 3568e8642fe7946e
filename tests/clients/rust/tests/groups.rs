//! Promise: streamq's Rust client shares a topic in groups, acknowledges, and gets again what it did not acknowledge.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use ringmain_client_tests::{Broker, Proxy, message, offsets, options, publish};
use streamq::{Consumer, Protocol};

async fn acknowledge(consumer: &mut Consumer, count: usize) -> Vec<i64> {
    let mut got = Vec::new();
    while got.len() < count {
        let offset = message(consumer).await.offset;
        consumer.ack(offset);
        got.push(offset);
    }
    got
}

#[tokio::test]
async fn members_share_and_groups_do_not() {
    let broker = Broker::start().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    let mut members: Vec<_> = (0..2).map(|_| client.subscribe("t", options(Protocol::WebSocket, "g", 0))).collect();
    let mut other = client.subscribe("t", options(Protocol::WebSocket, "h", 0));
    broker.wait_for_subscribers("t", 3).await;
    publish(&client, "t", 0..40).await;
    // Members take turns as long as both have credit.
    let mut shared = Vec::new();
    for member in &mut members {
        shared.extend(acknowledge(member, 20).await);
    }
    shared.sort_unstable();
    assert_eq!(shared, (0..40).collect::<Vec<_>>());
    assert_eq!(acknowledge(&mut other, 40).await, (0..40).collect::<Vec<_>>());
    broker.wait_for_group("t", "g", "committed_offset", 40).await;
    broker.wait_for_group("t", "h", "committed_offset", 40).await;
}

#[tokio::test]
async fn what_was_not_acknowledged_comes_again_and_what_was_does_not() {
    let broker = Broker::start().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    publish(&client, "t", 0..10).await;
    let proxy = Proxy::start(&broker).await;
    let mut consumer = proxy.client().subscribe("t", options(Protocol::WebSocket, "g", 0));
    assert_eq!(offsets(&mut consumer, 10).await, (0..10).collect::<Vec<_>>());
    (0..10).step_by(2).for_each(|even| consumer.ack(even));
    broker.wait_for_group("t", "g", "pending", 5).await;
    assert_eq!(broker.group("t", "g").await["committed_offset"], 1);
    proxy.cut_alone(&broker, "t").await;
    assert_eq!(acknowledge(&mut consumer, 5).await, [1, 3, 5, 7, 9]);
    broker.wait_for_group("t", "g", "committed_offset", 10).await;
    // Nothing comes again after one more cut, though the query still says 0.
    proxy.cut_alone(&broker, "t").await;
    publish(&client, "t", 10..13).await;
    assert_eq!(acknowledge(&mut consumer, 3).await, [10, 11, 12]);
    broker.wait_for_group("t", "g", "committed_offset", 13).await;
}

#[tokio::test]
async fn another_member_gets_what_the_first_left() {
    let broker = Broker::start().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    publish(&client, "t", 0..6).await;
    let mut first = client.subscribe("t", options(Protocol::WebSocket, "g", 0));
    assert_eq!(offsets(&mut first, 6).await, [0, 1, 2, 3, 4, 5]);
    first.close();
    let mut second = client.subscribe("t", options(Protocol::WebSocket, "g", 0));
    assert_eq!(acknowledge(&mut second, 6).await, [0, 1, 2, 3, 4, 5]);
    broker.wait_for_group("t", "g", "committed_offset", 6).await;
}

#[tokio::test]
async fn over_sse_a_sent_message_counts_as_acknowledged() {
    let broker = Broker::start().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    publish(&client, "t", 0..6).await;
    let proxy = Proxy::start(&broker).await;
    let mut consumer = proxy.client().subscribe("t", options(Protocol::Sse, "g", 0));
    assert_eq!(offsets(&mut consumer, 6).await, [0, 1, 2, 3, 4, 5]);
    broker.wait_for_group("t", "g", "committed_offset", 6).await;
    proxy.cut_alone(&broker, "t").await;
    publish(&client, "t", 6..9).await;
    assert_eq!(offsets(&mut consumer, 3).await, [6, 7, 8]);
    broker.wait_for_group("t", "g", "committed_offset", 9).await;
}
