//! Promise: streamq's Rust client reads topics over WebSocket and SSE, live and replayed, and comes back after a cut.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use ringmain_client_tests::{Broker, LIMIT, Proxy, message, offsets, options, publish};
use streamq::Protocol;
use tokio::time::timeout;

const PROTOCOLS: [Protocol; 2] = [Protocol::WebSocket, Protocol::Sse];

#[tokio::test]
async fn live_messages_arrive_whole() {
    let broker = Broker::start().await;
    let client = broker.client();
    let every_byte: Vec<u8> = (0..=255).collect();
    for protocol in PROTOCOLS {
        let topic = format!("live-{protocol:?}");
        client.create_topic(&topic).await.unwrap();
        publish(&client, &topic, 0..3).await;
        let mut consumer = client.subscribe(&topic, options(protocol, "", -1));
        broker.wait_for_subscribers(&topic, 1).await;
        let published = client.publish(&topic, &every_byte).await.unwrap();
        let got = message(&mut consumer).await;
        assert_eq!((got.offset, &got.topic, &got.payload), (3, &topic, &every_byte));
        assert_eq!(got.timestamp, published.timestamp);
        publish(&client, &topic, 4..30).await;
        assert_eq!(offsets(&mut consumer, 26).await, (4..30).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_replay_goes_over_into_live() {
    let broker = Broker::start().await;
    let client = broker.client();
    for protocol in PROTOCOLS {
        let topic = format!("replay-{protocol:?}");
        client.create_topic(&topic).await.unwrap();
        publish(&client, &topic, 0..50).await;
        let mut whole = client.subscribe(&topic, options(protocol, "", 0));
        let mut part = client.subscribe(&topic, options(protocol, "", 40));
        publish(&client, &topic, 50..100).await;
        for number in 0..100 {
            let got = message(&mut whole).await;
            assert_eq!((got.offset, got.payload), (number, number.to_string().into_bytes()));
        }
        assert_eq!(offsets(&mut part, 60).await, (40..100).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn after_a_cut_it_comes_back_to_where_it_asks() {
    // The client brings no cursor back: it repeats its query, and so sees all of it again.
    let broker = Broker::start().await;
    let client = broker.client();
    for protocol in PROTOCOLS {
        let topic = format!("cut-{protocol:?}");
        client.create_topic(&topic).await.unwrap();
        publish(&client, &topic, 0..10).await;
        let proxy = Proxy::start(&broker).await;
        let mut consumer = proxy.client().subscribe(&topic, options(protocol, "", 5));
        assert_eq!(offsets(&mut consumer, 5).await, [5, 6, 7, 8, 9]);
        proxy.cut();
        assert_eq!(offsets(&mut consumer, 5).await, [5, 6, 7, 8, 9]);
        publish(&client, &topic, 10..12).await;
        assert_eq!(offsets(&mut consumer, 2).await, [10, 11]);
    }
}

#[tokio::test]
async fn a_deleted_topic_ends_the_consumer() {
    let broker = Broker::start().await;
    let client = broker.client();
    for protocol in PROTOCOLS {
        let topic = format!("gone-{protocol:?}");
        client.create_topic(&topic).await.unwrap();
        publish(&client, &topic, 0..2).await;
        let mut consumer = client.subscribe(&topic, options(protocol, "", 0));
        assert_eq!(offsets(&mut consumer, 2).await, [0, 1]);
        client.delete_topic(&topic).await.unwrap();
        // A close frame, or the end of the response, is the end for this client: no message and no error.
        assert!(timeout(LIMIT, consumer.next()).await.unwrap().unwrap().is_none());
    }
}

#[tokio::test]
async fn a_gap_is_not_taken_for_a_message() {
    let broker = Broker::start().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    publish(&client, "t", 0..1010).await;
    for protocol in PROTOCOLS {
        let mut consumer = client.subscribe("t", options(protocol, "", 3));
        assert_eq!(offsets(&mut consumer, 1000).await, (10..1010).collect::<Vec<_>>());
    }
}
