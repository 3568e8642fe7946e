//! Promise: streamq's Rust client lives through a broker that is killed and started again on the same port and folder.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use ringmain_client_tests::{Broker, message, offsets, options, publish};
use streamq::Protocol;

#[tokio::test]
async fn topics_and_messages_are_there() {
    let mut broker = Broker::start_logged().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    let payloads = [Vec::new(), (0..=255).collect(), vec![7; 1 << 20]];
    let mut times = Vec::new();
    for payload in &payloads {
        times.push(client.publish("t", payload).await.unwrap().timestamp);
    }
    for _ in 0..2 {
        broker.kill_and_restart().await;
        let topic = client.get_topic("t").await.unwrap();
        assert_eq!((topic.message_count, topic.latest_offset), (3, 2));
        for protocol in [Protocol::WebSocket, Protocol::Sse] {
            let mut consumer = client.subscribe("t", options(protocol, "", 0));
            for (payload, time) in payloads.iter().zip(&times) {
                let got = message(&mut consumer).await;
                assert!(got.payload == *payload && got.timestamp == *time, "offset {}", got.offset);
            }
            consumer.close();
        }
    }
    assert_eq!(client.publish("t", b"next").await.unwrap().offset, 3);
}

#[tokio::test]
async fn a_subscriber_comes_back_to_where_it_asks() {
    let mut broker = Broker::start_logged().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    publish(&client, "t", 0..10).await;
    for protocol in [Protocol::WebSocket, Protocol::Sse] {
        let mut consumer = client.subscribe("t", options(protocol, "", 5));
        assert_eq!(offsets(&mut consumer, 5).await, [5, 6, 7, 8, 9]);
        broker.kill_and_restart().await;
        // The client brings no cursor back: it repeats its query, and so sees all of it again.
        assert_eq!(offsets(&mut consumer, 5).await, [5, 6, 7, 8, 9]);
        consumer.close();
    }
}

#[tokio::test]
async fn a_group_goes_on_where_it_was() {
    let mut broker = Broker::start_logged().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    publish(&client, "t", 0..10).await;
    let mut consumer = client.subscribe("t", options(Protocol::WebSocket, "g", 0));
    assert_eq!(offsets(&mut consumer, 10).await, (0..10).collect::<Vec<_>>());
    (0..10).step_by(2).for_each(|even| consumer.ack(even));
    broker.wait_for_group("t", "g", "pending", 5).await;
    broker.wait_for_stored("t", "g").await;
    broker.kill_and_restart().await;
    assert_eq!(offsets(&mut consumer, 5).await, [1, 3, 5, 7, 9]);
    (1..10).step_by(2).for_each(|odd| consumer.ack(odd));
    broker.wait_for_group("t", "g", "committed_offset", 10).await;
    broker.wait_for_stored("t", "g").await;
    // Nothing comes again, though the query still says 0.
    broker.kill_and_restart().await;
    broker.wait_for_subscribers("t", 1).await;
    publish(&client, "t", 10..13).await;
    assert_eq!(offsets(&mut consumer, 3).await, [10, 11, 12]);
}
