//! Promise: streamq's Rust client creates, lists, describes and deletes topics, and publishes any bytes, unchanged.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use ringmain_client_tests::{Broker, publish};
use streamq::{Error, TopicInfo};

#[tokio::test]
async fn a_topic_lives_and_dies() {
    let broker = Broker::start().await;
    let client = broker.client();
    assert_eq!(client.list_topics().await.unwrap(), []);
    client.create_topic("payments").await.unwrap();
    let empty = TopicInfo { name: "payments".to_owned(), message_count: 0, subscriber_count: 0, latest_offset: -1 };
    assert_eq!(client.get_topic("payments").await.unwrap(), empty);
    client.create_topic("orders").await.unwrap();
    publish(&client, "payments", 0..3).await;
    let topics = client.list_topics().await.unwrap();
    assert_eq!(topics.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["orders", "payments"]);
    assert_eq!((topics[1].message_count, topics[1].latest_offset), (3, 2));
    client.delete_topic("payments").await.unwrap();
    assert_eq!(client.list_topics().await.unwrap().len(), 1);
}

#[tokio::test]
async fn faults_become_the_clients_own_errors() {
    let broker = Broker::start().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    assert!(matches!(client.create_topic("t").await, Err(Error::Conflict(message)) if message.contains('t')));
    assert!(matches!(client.get_topic("none").await, Err(Error::NotFound(_))));
    assert!(matches!(client.delete_topic("none").await, Err(Error::NotFound(_))));
    assert!(matches!(client.publish("none", b"x").await, Err(Error::NotFound(_))));
    assert!(matches!(client.create_topic("").await, Err(Error::Api { status: 400, .. })));
    assert!(matches!(client.publish("t", &vec![0; 2 << 20]).await, Err(Error::Api { status: 413, .. })));
}

#[tokio::test]
async fn a_publish_says_where_and_when() {
    let broker = Broker::start().await;
    let client = broker.client();
    client.create_topic("t").await.unwrap();
    let first = client.publish("t", b"\0\xff").await.unwrap();
    let second = client.publish("t", b"").await.unwrap();
    assert_eq!((first.offset, first.topic.as_str(), second.offset), (0, "t", 1));
    assert!(first.timestamp <= second.timestamp);
}
