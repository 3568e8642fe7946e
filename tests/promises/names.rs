//! Promise: a topic may have any name of 1 to 255 bytes of UTF-8 that is safe, one name means one topic on every route,
//! and no name reaches outside the topics.

use crate::broker::{Broker, topic_path};

fn create(broker: &Broker, name: &str) -> crate::http::Response {
    let body = serde_json::json!({ "name": name }).to_string();
    broker.request("POST", "/topics", &[("Content-Type", "application/json; charset=utf-8")], body.as_bytes())
}

#[test]
fn every_safe_name_works_on_every_route() {
    let broker = Broker::start();
    let longest = "n".repeat(255);
    let longest_in_umlauts = "ü".repeat(127);
    let names = [
        "a",
        "A",
        "payments.eu",
        "with space",
        "with/slash",
        "100%",
        "%2F",
        "a+b",
        "a?b#c",
        "a&b=c",
        "...",
        ".hidden",
        "a$x",
        "übergröße",
        "日本語",
        "🚀",
        "e\u{301}",
        "quote\"back\\slash",
        "<b>",
        "it's",
        "a:b;c,d",
        "~",
        "a\u{a0}b",
        &longest,
        &longest_in_umlauts,
    ];
    for name in names {
        let created = create(&broker, name).expect(201).data();
        assert_eq!(created["name"], name);
        assert_eq!(broker.stats(name)["name"], name);
        let answer = broker.request("POST", &topic_path(name, "/publish"), &[], b"hello").expect(202).data();
        assert_eq!((&answer["topic"], &answer["offset"]), (&name.into(), &0.into()));
        let page = broker.get(&topic_path(name, "/messages?from_offset=0")).expect(200).data();
        assert_eq!(page["messages"][0]["topic"], name);
        let mut stream = broker.subscribe(name, "?from_offset=0", &[]);
        assert_eq!(stream.message().value["topic"], name);
    }
    let listed = broker.get("/topics").expect(200).data();
    assert_eq!(listed.as_array().unwrap().len(), names.len(), "each name is a topic of its own");
    names.iter().for_each(|name| broker.delete_topic(name));
}

#[test]
fn unsafe_names_are_refused() {
    let broker = Broker::start();
    let too_long = "n".repeat(256);
    let too_long_in_umlauts = "ü".repeat(128);
    let names = [
        "",
        ".",
        "..",
        "$sys",
        "$",
        "a\nb",
        "a\rb",
        "a\0b",
        "\t",
        "a\u{7f}",
        "a\u{85}b",
        "\u{1b}[2J",
        &too_long,
        &too_long_in_umlauts,
    ];
    for name in names {
        create(&broker, name).expect_error(400, "invalid_name");
    }
    assert_eq!(broker.get("/topics").expect(200).data(), serde_json::json!([]));
}

#[test]
fn a_slash_in_a_name_is_no_separator() {
    let broker = Broker::start();
    broker.create_topic("a/publish");
    broker.create_topic("a");
    broker.request("POST", "/topics/a%2Fpublish/publish", &[], b"for the long name").expect(202);
    broker.request("POST", "/topics/a%2fpublish/publish", &[], b"in lower case").expect(202);
    assert_eq!(broker.stats("a")["message_count"], 0);
    assert_eq!(broker.stats("a/publish")["message_count"], 2);
}

#[test]
fn a_path_is_decoded_once() {
    let broker = Broker::start();
    broker.create_topic("%41");
    broker.get("/topics/%2541").expect(200);
    broker.get("/topics/%41").expect_error(404, "topic_not_found");
    broker.create_topic("A");
    assert_eq!(broker.get("/topics/%41").expect(200).data()["name"], "A");
    broker.create_topic("a b");
    broker.get("/topics/a+b").expect_error(404, "topic_not_found");
}

#[test]
fn no_path_leads_outside() {
    let broker = Broker::start();
    broker.create_topic("a");
    let targets = [
        "/topics/..",
        "/topics/.",
        "/topics/%2e%2e",
        "/topics/../health",
        "/topics/a/../../health",
        "/topics/%2e%2e/health",
        "/topics/..%2f..%2fetc%2fpasswd",
        "/topics/%2e",
        "//topics",
        "/topics//a",
        "/./topics",
        "/topics/a/./publish",
        "/topics/..%5c..",
        "/../../etc/passwd",
    ];
    for target in targets {
        let answer = broker.get(target);
        assert!(matches!(answer.status, 400 | 404), "{target}: {answer:?}");
        answer.expect_envelope_of_error();
    }
}

#[test]
fn a_path_that_is_no_text_is_refused() {
    let broker = Broker::start();
    let targets = [
        "/topics/%zz",
        "/topics/%",
        "/topics/%4",
        "/topics/%00",
        "/topics/a%00b",
        "/topics/%ff",
        "/topics/%c0%ae%c0%ae",
        "/topics/%c0%af",
        "/topics/%ed%a0%80",
        "/topics/%0d%0aX:%20y",
        "/topics/%e2%82",
    ];
    for target in targets {
        let answer = broker.get(target).expect(400);
        answer.expect_envelope_of_error();
        assert!(answer.header("x").is_none(), "a name became a header: {answer:?}");
    }
}

#[test]
fn two_spellings_of_one_character_are_two_names() {
    let broker = Broker::start();
    broker.create_topic("\u{e9}");
    broker.create_topic("e\u{301}");
    broker.publish("\u{e9}", b"composed");
    assert_eq!(broker.stats("e\u{301}")["message_count"], 0);
}
