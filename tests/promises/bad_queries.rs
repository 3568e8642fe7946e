//! Promise: a query that cannot be understood is refused with the reason and never guessed at.

use crate::broker::Broker;

fn broker_with_topic() -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..3);
    broker
}

#[test]
fn numbers_that_are_none_are_refused() {
    let broker = broker_with_topic();
    let bad = [
        "",
        "x",
        "-1",
        "+1",
        "1.0",
        "1e3",
        "0x1",
        "%20",
        "1%20",
        "1,2",
        "18446744073709551616",
        "%zz",
        "%ff",
        "٣",
        "null",
    ];
    for value in bad {
        for name in ["from_offset", "limit", "wait_ms"] {
            let answer = broker.get(&format!("/topics/t/messages?{name}={}", value.replace('٣', "%D9%A3")));
            let answer = answer.expect(400);
            answer.expect_envelope_of_error();
            let message = answer.json()["message"].as_str().unwrap().to_owned();
            assert!(message.contains(name) || value.contains('%'), "{name}={value} is not named: {message}");
        }
        let answer = broker.get(&format!("/topics/t/subscribe/sse?from_offset={}", value.replace('٣', "%D9%A3")));
        answer.expect(400).expect_envelope_of_error();
    }
}

#[test]
fn unknown_formats_are_refused() {
    let broker = broker_with_topic();
    for value in ["xml", "", "JSON", "json,ndjson", "raw"] {
        broker.get(&format!("/topics/t/messages?format={value}")).expect(400).expect_envelope_of_error();
    }
}

#[test]
fn what_the_broker_does_not_know_is_passed_over() {
    let broker = broker_with_topic();
    for query in ["?_=1700000000", "?", "?&&", "?from_offset=0&cache=no", "?utm%5Bx%5D=%F0%9F%9A%80", "?flag", "?=1"] {
        broker.get(&format!("/topics/t/messages{query}")).expect(200);
        broker.get(&format!("/topics{query}")).expect(200);
        broker.get(&format!("/health{query}")).expect(200);
    }
    let mut stream = broker.subscribe("t", "?_=17&from_offset=1", &[]);
    assert_eq!(stream.message().offset, 1);
}

#[test]
fn names_and_values_are_decoded() {
    let broker = broker_with_topic();
    let page = broker.get("/topics/t/messages?from%5Foffset=%31&limit=%31").expect(200).data();
    assert_eq!((&page["messages"][0]["offset"], &page["next_offset"]), (&1.into(), &2.into()));
}

#[test]
fn values_out_of_range_are_refused_with_the_range() {
    let broker = broker_with_topic();
    let bad = [
        ("limit=0", "1 to 10000"),
        ("limit=10001", "1 to 10000"),
        ("limit=18446744073709551615", "1 to 10000"),
        ("wait_ms=60001", "0 to 60000"),
        ("wait_ms=18446744073709551615", "0 to 60000"),
    ];
    for (query, range) in bad {
        let answer = broker.get(&format!("/topics/t/messages?from_offset=0&{query}"));
        let told = answer.expect_error(400, "invalid_request").json()["message"].to_string();
        assert!(told.contains(query) && told.contains(range), "{told}");
    }
    let page = broker.get("/topics/t/messages?from_offset=18446744073709551615").expect(200).data();
    assert_eq!(page["gap"]["resumed"], 3, "any offset is one: {page}");
    for end in ["18446744073709551615", "9223372036854775808", "4294967296"] {
        let mut stream = broker.subscribe("t", &format!("?from_offset={end}"), &[]);
        assert_eq!(stream.control("gap")["resumed"], 3, "a start beyond the end starts at the end");
    }
}

#[test]
fn different_values_of_one_name_are_refused_whatever_comes_first() {
    let broker = broker_with_topic();
    broker.create_topic_with(serde_json::json!({ "partitions": 2 }), "p");
    for (method, target) in [
        ("GET", "/topics/t/messages?from_offset=0&from_offset=2"),
        ("GET", "/topics/t/messages?limit=1&format=json&limit=2"),
        ("GET", "/topics/p/subscribe/sse?partition=0&partition=1"),
        ("GET", "/topics/t/subscribe/sse?group=a&group=b"),
        ("GET", "/topics/p/subscribe/sse?group=&group=b"),
        ("GET", "/subscribe/sse?topic=t&topic=p&group=&group=b"),
        ("GET", "/topics/t/subscribe/sse?last_event_id=1&last_event_id=2"),
        ("GET", "/topics?limit=1&cursor=a&cursor=b"),
        ("POST", "/topics/t/publish?ack=durable&ack=none"),
        ("POST", "/topics/p/publish?partition=0&partition=1"),
    ] {
        broker.request(method, target, &[], b"").expect_error(400, "invalid_request");
    }
    let keys = [("X-Key", "a"), ("X-Key", "b")];
    broker.request("POST", "/topics/t/publish", &keys, b"x").expect_error(400, "invalid_request");
    assert_eq!((&broker.stats("t")["message_count"], &broker.stats("p")["message_count"]), (&3.into(), &0.into()));
    // The same twice is no riddle.
    broker.get("/topics/t/messages?from_offset=1&from_offset=1").expect(200);
    broker.request("POST", "/topics/t/publish", &[("X-Key", "a"), ("X-Key", "a")], b"x").expect(202);
}
