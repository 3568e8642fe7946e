//! Promise: a topic's retention, dead letters and patience can be changed while it is used; the change is told by its stats,
//! holds at once, and for logged topics survives a kill. What cannot be changed is refused, and nothing changes.

use crate::broker::{Broker, Folder, Setup};
use crate::http::Response;
use crate::subcommands::run;
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn logged(folder: &Folder) -> Broker {
    Setup::new().variable("STORAGE_MODE", "wal").variable("WAL_DIR", folder.path().join("data").display()).start()
}

fn change(broker: &Broker, body: &Value) -> Response {
    let headers = [("Content-Type", "application/merge-patch+json")];
    broker.request("PATCH", "/topics/t", &headers, body.to_string().as_bytes())
}

fn create(broker: &Broker, body: &Value) -> Response {
    broker.request("POST", "/topics", &[JSON], body.to_string().as_bytes())
}

/// The settings among a topic's stats.
fn settings(stats: &Value) -> Value {
    let mut settings = stats.clone();
    let all = settings.as_object_mut().unwrap();
    all.retain(|name, _| ["retention", "ack_wait_ms", "dead_letter"].contains(&name.as_str()));
    settings
}

#[test]
fn settings_are_given_changed_and_kept_over_a_kill() {
    let folder = Folder::new();
    let mut broker = logged(&folder);
    let made = json!({
        "name": "t", "ack_wait_ms": 5000, "retention": { "max_messages": 100, "max_bytes": 100_000, "max_age_ms": 60_000_000 },
        "dead_letter": { "topic": "failed", "max_deliver": 5 },
    });
    let told = create(&broker, &made).expect(201).data();
    let mut expected = made;
    expected.as_object_mut().unwrap().remove("name");
    assert_eq!(settings(&told), expected);
    let changes = [
        (json!({ "retention": { "max_messages": 50 } }), json!({ "retention": { "max_messages": 50 } })),
        (json!({ "retention": { "max_age_ms": null } }), json!({ "retention": { "max_age_ms": null } })),
        (
            json!({ "ack_wait_ms": 100, "dead_letter": { "max_deliver": 7 } }),
            json!({ "ack_wait_ms": 100, "dead_letter": { "max_deliver": 7 } }),
        ),
        (json!({}), json!({})),
        (json!({ "dead_letter": { "topic": "elsewhere" } }), json!({ "dead_letter": { "topic": "elsewhere" } })),
        (json!({ "dead_letter": null }), json!({ "dead_letter": null })),
        (
            json!({ "retention": { "max_messages": null, "max_bytes": null, "max_age_ms": 1_000_000 } }),
            json!({ "retention": { "max_messages": null, "max_bytes": null, "max_age_ms": 1_000_000 } }),
        ),
        (
            json!({ "dead_letter": { "topic": "t2", "max_deliver": 1 } }),
            json!({ "dead_letter": { "topic": "t2", "max_deliver": 1 } }),
        ),
    ];
    for (wanted, merged) in changes {
        merge(&mut expected, &merged);
        let told = change(&broker, &wanted).expect(200).data();
        assert_eq!((settings(&told), &told["name"]), (expected.clone(), &"t".into()), "after {wanted}");
        drop(broker);
        broker = logged(&folder);
        assert_eq!(settings(&broker.stats("t")), expected, "after {wanted} and a kill");
    }
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

#[test]
fn less_retention_holds_at_once() {
    let folder = Folder::new();
    for broker in [Broker::start(), logged(&folder)] {
        broker.create_topic("t");
        broker.publish_numbers("t", 0..20);
        let told = change(&broker, &json!({ "retention": { "max_messages": 5 } })).expect(200).data();
        assert_eq!((&told["message_count"], &told["earliest_offset"]), (&5.into(), &15.into()));
        change(&broker, &json!({ "retention": { "max_messages": 8 } })).expect(200);
        broker.publish_numbers("t", 20..40);
        assert_eq!(broker.stats("t")["earliest_offset"], 32);
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let broker = Broker::start();
    broker.create_topic("t");
    let before = broker.stats("t");
    let bad = [
        json!({ "name": "u" }),
        json!({ "storage": "wal" }),
        json!({ "partitions": 2 }),
        json!({ "retention": null }),
        json!({ "retention": [5] }),
        json!({ "retention": { "max_messages": 0 } }),
        json!({ "retention": { "max_messages": -1 } }),
        json!({ "retention": { "max_messages": 1.5 } }),
        json!({ "retention": { "max_messages": "5" } }),
        json!({ "retention": { "max_bytes": 0 } }),
        json!({ "retention": { "max_age_ms": 1 } }),
        json!({ "retention": { "max_messages": 5, "max_age_ms": true } }),
        json!({ "ack_wait_ms": null }),
        json!({ "ack_wait_ms": 1 }),
        json!({ "dead_letter": "failed" }),
        json!({ "dead_letter": { "topic": "t", "max_deliver": 5 } }),
        json!({ "dead_letter": { "topic": "..", "max_deliver": 5 } }),
        json!({ "dead_letter": { "topic": 7 } }),
        json!({ "dead_letter": { "topic": "failed", "max_deliver": 0 } }),
        json!({ "dead_letter": { "topic": "failed", "max_deliver": 5_000_000_000_u64 } }),
        json!({ "dead_letter": { "topic": "failed" } }),
        json!([]),
        json!(7),
    ];
    for body in bad {
        let told = change(&broker, &body).expect_error(400, "invalid_config").json();
        assert!(told["message"].as_str().unwrap().len() < 400, "{told}");
    }
    for body in ["", "{", "{} x"] {
        broker.request("PATCH", "/topics/t", &[JSON], body.as_bytes()).expect_error(400, "invalid_json");
    }
    broker
        .request("PATCH", "/topics/nothing", &[JSON], br#"{"ack_wait_ms":1000}"#)
        .expect_error(404, "topic_not_found");
    broker.request("PATCH", "/topics/nothing", &[JSON], b"{}").expect_error(404, "topic_not_found");
    assert_eq!(broker.stats("t"), before);
    let bad = [
        json!({ "name": "u", "dead_letter": { "topic": "u", "max_deliver": 5 } }),
        json!({ "name": "u", "dead_letter": { "topic": "failed" } }),
        json!({ "name": "u", "dead_letter": "failed" }),
        json!({ "name": "u", "dead_letter": { "topic": "$a", "max_deliver": 5 } }),
        json!({ "name": "u", "retention": { "max_age_ms": 1 } }),
        json!({ "name": "u", "retention": 5 }),
    ];
    for body in bad {
        create(&broker, &body).expect_error(400, "invalid_config");
    }
    // What says nothing, and what is unknown, is passed over where streamq passed it over.
    let body = json!({ "name": "u", "retention": { "max_age_ms": null, "colour": 1 }, "dead_letter": null });
    let told = create(&broker, &body).expect(201).data();
    assert_eq!(settings(&told), settings(&before));
    let unknown = [
        json!({ "colour": "blue" }),
        json!({ "retention": { "max_message": 5 } }),
        json!({ "dead_letter": { "colour": "blue" } }),
    ];
    for body in unknown {
        change(&broker, &body).expect(200);
    }
    assert_eq!(broker.stats("t"), before);
    // Whatever a client calls it: curl has a type of its own for what it is given.
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    broker.request("PATCH", "/topics/t", &form, br#"{"ack_wait_ms":1234}"#).expect(200);
    assert_eq!(broker.stats("t")["ack_wait_ms"], 1234);
}

#[test]
fn settings_are_changed_by_hand() {
    let broker = Broker::start();
    let made = [
        "topic",
        "create",
        "t",
        "--max-age",
        "12h",
        "--ack-wait",
        "90s",
        "--dead-letter",
        "failed",
        "--max-deliver",
        "3",
    ];
    run(&broker, &made).expect(0);
    let told = broker.stats("t");
    assert_eq!(told["retention"]["max_age_ms"], 43_200_000);
    assert_eq!(
        (&told["ack_wait_ms"], &told["dead_letter"]),
        (&90_000.into(), &json!({ "topic": "failed", "max_deliver": 3 }))
    );
    let outcome = run(&broker, &["topic", "change", "t", "--max-messages", "7", "--max-age", "7d"]).expect(0);
    assert_eq!(outcome.out, "changed t\n");
    assert_eq!(broker.stats("t")["retention"], json!({ "max_messages": 7, "max_age_ms": 604_800_000 }));
    let outcome =
        run(&broker, &["topic", "change", "t", "--max-age", "none", "--no-dead-letter", "--max-bytes", "9", "--json"]);
    let told: Value = serde_json::from_str(&outcome.expect(0).out).unwrap();
    assert_eq!(told["retention"], json!({ "max_messages": 7, "max_bytes": 9 }));
    assert!(told.get("dead_letter").is_none(), "{told}");
    for wrong in [
        &["topic", "change", "t"][..],
        &["topic", "change", "t", "--max-age", "7"],
        &["topic", "change", "t", "--max-bytes", "x"],
    ] {
        run(&broker, wrong).expect(2);
    }
    let outcome = run(&broker, &["topic", "change", "t", "--max-messages", "0"]).expect(1);
    assert!(outcome.words.contains("invalid_config"), "{outcome:?}");
    let outcome = run(&broker, &["topic", "change", "nothing", "--max-messages", "5"]).expect(1);
    assert!(outcome.words.contains("topic_not_found"), "{outcome:?}");
}
