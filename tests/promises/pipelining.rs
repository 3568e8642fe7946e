//! Promise: requests that a client sends without waiting are answered in their order, whatever each of them takes.

use crate::broker::{Broker, topic_path};
use crate::http::request_bytes;

fn broker_with_topics(count: usize) -> Broker {
    let broker = Broker::start();
    (0..count).for_each(|number| broker.create_topic(&format!("t{number}")));
    broker
}

#[test]
fn sixty_four_publishes_in_flight_are_answered_in_order() {
    let broker = broker_with_topics(1);
    let mut connection = broker.connect();
    let host = broker.address().to_string();
    for round in 0..5 {
        let bytes: Vec<u8> = (0..64)
            .flat_map(|number| request_bytes(&host, "POST", "/topics/t0/publish", &[], format!("{number}").as_bytes()))
            .collect();
        connection.send(&bytes);
        for number in 0..64 {
            let answer = connection.response_to("POST").expect(202);
            assert_eq!(answer.data()["offset"], round * 64 + number, "one client's publishes keep their order");
        }
    }
}

#[test]
fn answers_of_different_routes_and_cores_keep_their_order() {
    let broker = broker_with_topics(8);
    let host = broker.address().to_string();
    let mut connection = broker.connect();
    let mut bytes = Vec::new();
    for round in 0..8 {
        for number in 0..8 {
            let name = format!("t{number}");
            let payload = format!("{round}");
            bytes.extend(request_bytes(&host, "POST", &topic_path(&name, "/publish"), &[], payload.as_bytes()));
        }
    }
    let mut expected = Vec::new();
    let last = [
        ("GET", "/topics/t3".to_owned(), 200),
        ("GET", "/nothing".to_owned(), 404),
        ("HEAD", "/topics/t5".to_owned(), 200),
        ("GET", "/topics/t1/messages?from_offset=7&limit=1".to_owned(), 200),
        ("PUT", "/topics".to_owned(), 405),
        ("GET", "/topics/missing".to_owned(), 404),
        ("DELETE", "/topics/t7".to_owned(), 200),
        ("GET", "/topics/t7".to_owned(), 404),
        ("OPTIONS", "/topics".to_owned(), 204),
        ("GET", "/health".to_owned(), 200),
        ("GET", "/metrics".to_owned(), 200),
        ("GET", "/topics".to_owned(), 200),
    ];
    for (method, target, status) in &last {
        bytes.extend(request_bytes(&host, method, target, &[], b""));
        expected.push((*method, target, *status));
    }
    connection.send(&bytes);
    for round in 0..8 {
        for number in 0..8 {
            let told = connection.response_to("POST").expect(202).data();
            assert_eq!((&told["topic"], &told["offset"]), (&format!("t{number}").into(), &round.into()));
        }
    }
    for (method, target, status) in expected {
        let answer = connection.response_to(method);
        assert!(answer.status == status, "{method} {target}: {answer:?}");
        match target.as_str() {
            "/topics/t3" => assert_eq!(answer.data()["message_count"], 8),
            "/topics" if method == "GET" => assert_eq!(answer.data().as_array().unwrap().len(), 7, "t7 is deleted"),
            _ => {}
        }
    }
}

#[test]
fn a_request_behind_one_that_waits_is_answered_after_it() {
    let broker = broker_with_topics(2);
    let mut connection = broker.connect();
    connection.send_request("GET", "/topics/t0/messages?from_offset=0&wait_ms=25000", &[], b"");
    connection.send_request("GET", "/topics/t1", &[], b"");
    broker.publish("t0", b"news");
    assert_eq!(connection.response_to("GET").expect(200).data()["next_offset"], 1);
    assert_eq!(connection.response_to("GET").expect(200).data()["name"], "t1");
}

#[test]
fn far_more_requests_than_are_kept_in_hand_are_all_answered() {
    let broker = broker_with_topics(3);
    let host = broker.address().to_string();
    let mut connection = broker.connect();
    let count = 3000;
    let bytes: Vec<u8> = (0..count)
        .flat_map(|number| request_bytes(&host, "POST", &format!("/topics/t{}/publish", number % 3), &[], b"x"))
        .collect();
    let mut sender = connection.sender();
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &bytes).unwrap());
    for number in 0..count {
        let told = connection.response_to("POST").expect(202).data();
        assert_eq!((&told["topic"], &told["offset"]), (&format!("t{}", number % 3).into(), &(number / 3).into()));
    }
    sending.join().unwrap();
}

#[test]
fn requests_cut_at_any_byte_are_read_the_same() {
    let broker = broker_with_topics(1);
    let host = broker.address().to_string();
    let mut bytes = request_bytes(&host, "POST", "/topics/t0/publish", &[("X-Key", "k")], b"first");
    bytes.extend(b"POST /topics/t0/publish HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nsec\r\n3\r\nond\r\n0\r\n\r\n");
    for cut in 1..bytes.len() {
        let mut connection = broker.connect();
        connection.send(&bytes[..cut]);
        connection.send(&bytes[cut..]);
        let first = connection.response_to("POST").expect(202).data()["offset"].as_u64();
        let second = connection.response_to("POST").expect(202).data()["offset"].as_u64();
        assert_eq!(second, first.map(|offset| offset + 1), "cut at {cut}");
    }
}

#[test]
fn the_client_says_when_the_connection_ends() {
    let broker = broker_with_topics(1);
    let mut connection = broker.connect();
    connection.send_request("GET", "/health", &[("Connection", "close")], b"");
    connection.send_request("POST", "/topics/t0/publish", &[], b"behind the end");
    let answer = connection.response_to("GET").expect(200);
    assert!(answer.lists("connection", "close"), "{answer:?}");
    connection.expect_closed();
    assert_eq!(broker.stats("t0")["message_count"], 0, "a request after the last one was obeyed");
}

#[test]
fn a_client_that_has_finished_sending_gets_its_answers() {
    let broker = broker_with_topics(1);
    let mut connection = broker.connect();
    for _ in 0..5 {
        connection.send_request("POST", "/topics/t0/publish", &[], b"x");
    }
    connection.finish_sending();
    for offset in 0..5 {
        assert_eq!(connection.response_to("POST").expect(202).data()["offset"], offset);
    }
    connection.expect_closed();
}
