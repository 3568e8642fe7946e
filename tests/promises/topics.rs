//! Promise: a topic that was created is listed, can be looked at, and is gone once it is deleted.

use crate::broker::{Broker, topic_path};
use crate::http::Response;

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn create(broker: &Broker, body: &str) -> Response {
    broker.request("POST", "/topics", &[JSON], body.as_bytes())
}

#[test]
fn a_topic_is_created_listed_and_deleted() {
    let broker = Broker::start();
    assert_eq!(broker.get("/topics").expect(200).data(), serde_json::json!([]));

    let created = create(&broker, r#"{"name":"payments"}"#).expect(201).data();
    assert_eq!(created["name"], "payments");
    assert_eq!(created["storage"], "memory");

    let stats = broker.stats("payments");
    assert_eq!(stats["name"], "payments");
    assert_eq!(stats["message_count"], 0);
    assert_eq!(stats["subscriber_count"], 0);
    assert_eq!(stats["latest_offset"], -1, "an empty topic has no latest offset");

    broker.publish("payments", b"one");
    let stats = broker.stats("payments");
    assert_eq!((&stats["message_count"], &stats["latest_offset"]), (&1.into(), &0.into()));
    assert_eq!(stats["earliest_offset"], 0);

    broker.delete_topic("payments");
    broker.get("/topics/payments").expect_error(404, "topic_not_found");
    assert_eq!(broker.get("/topics").expect(200).data(), serde_json::json!([]));
}

#[test]
fn topics_of_all_cores_are_listed_by_name() {
    let broker = Broker::start();
    let mut names: Vec<String> = (0..40).map(|number| format!("topic-{}", number * 7 % 40)).collect();
    names.push("Ünïcode".to_owned());
    names.iter().for_each(|name| broker.create_topic(name));
    let listed = broker.get("/topics").expect(200).data();
    let listed: Vec<&str> = listed.as_array().unwrap().iter().map(|stats| stats["name"].as_str().unwrap()).collect();
    names.sort();
    assert_eq!(listed, names);
}

#[test]
fn a_created_topic_is_known_on_every_connection_at_once() {
    let broker = Broker::start();
    let mut connections: Vec<_> = (0..16).map(|_| broker.connect()).collect();
    for number in 0..20 {
        let name = format!("t{number}");
        broker.create_topic(&name);
        for connection in &mut connections {
            connection.send_request("GET", &topic_path(&name, ""), &[], b"");
            connection.response_to("GET").expect(200);
        }
        broker.delete_topic(&name);
        for connection in &mut connections {
            connection.send_request("GET", &topic_path(&name, ""), &[], b"");
            connection.response_to("GET").expect_error(404, "topic_not_found");
        }
    }
}

#[test]
fn creating_twice_is_a_conflict_and_keeps_the_first() {
    let broker = Broker::start();
    broker.create_topic("orders");
    broker.publish("orders", b"kept");
    create(&broker, r#"{"name":"orders"}"#).expect_error(409, "topic_exists");
    assert_eq!(broker.stats("orders")["message_count"], 1);
}

#[test]
fn one_of_many_who_create_the_same_topic_at_once_succeeds() {
    let broker = Broker::start();
    for round in 0..10 {
        let body = serde_json::json!({ "name": format!("race-{round}") }).to_string();
        let mut connections: Vec<_> = (0..12).map(|_| broker.connect()).collect();
        connections
            .iter_mut()
            .for_each(|connection| connection.send_request("POST", "/topics", &[JSON], body.as_bytes()));
        let answers = connections.iter_mut().map(|connection| connection.response_to("POST").status);
        let mut answers: Vec<u16> = answers.collect();
        answers.sort_unstable();
        assert_eq!(answers[0], 201, "{answers:?}");
        assert!(answers[1..].iter().all(|status| *status == 409), "{answers:?}");
    }
}

#[test]
fn a_deleted_topic_leaves_nothing_to_its_successor() {
    let broker = Broker::start();
    broker.create_topic("again");
    broker.publish_numbers("again", 0..5);
    broker.delete_topic("again");
    broker.create_topic("again");
    assert_eq!(broker.stats("again")["message_count"], 0);
    assert_eq!(broker.publish("again", b"first"), 0, "offsets begin again");
    let page = broker.get("/topics/again/messages?from_offset=0").expect(200).data();
    assert_eq!(page["messages"].as_array().unwrap().len(), 1);
}

#[test]
fn what_does_not_exist_is_not_found() {
    let broker = Broker::start();
    broker.get("/topics/nothing").expect_error(404, "topic_not_found");
    broker.request("DELETE", "/topics/nothing", &[], b"").expect_error(404, "topic_not_found");
    broker.request("POST", "/topics/nothing/publish", &[], b"x").expect_error(404, "topic_not_found");
    broker.get("/topics/nothing/messages").expect_error(404, "topic_not_found");
    broker.get("/topics/nothing/subscribe/sse").expect_error(404, "topic_not_found");
    for target in ["/", "/nothing", "/topics/a/b", "/topics/a/subscribe", "/topics/a/publish/b", "/topics/nothing/"] {
        broker.get(target).expect(404).expect_envelope_of_error();
    }
}

#[test]
fn bad_bodies_are_refused_with_the_reason() {
    let broker = Broker::start();
    let bad =
        ["", "{", "[]", "null", "\"a\"", "{}", r#"{"name":7}"#, r#"{"name":null}"#, r#"{"name":"a"} x"#, "\u{feff}{"];
    for body in bad {
        create(&broker, body).expect(400).expect_envelope_of_error();
    }
    let response = broker.request("POST", "/topics", &[JSON], b"{\"name\":\"\xff\"}");
    response.expect(400).expect_envelope_of_error();
    let deep = format!("{{\"name\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    create(&broker, &deep).expect(400).expect_envelope_of_error();
    let bad_settings = [r#""storage":"cloud""#, r#""storage":7"#, r#""partitions":0"#, r#""partitions":-1"#];
    for setting in bad_settings {
        create(&broker, &format!(r#"{{"name":"a",{setting}}}"#)).expect_error(400, "invalid_config");
    }
    assert_eq!(broker.get("/topics").expect(200).data(), serde_json::json!([]), "nothing was created");
}

#[test]
fn unknown_fields_are_ignored_as_streamq_ignored_them() {
    let broker = Broker::start();
    create(&broker, r#"{"colour":"blue","name":"later","nested":{"a":[1,2]}}"#).expect(201);
    broker.stats("later");
}
