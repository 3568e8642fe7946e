//! Promise: bodies without a length, clients that ask before they send, and clients of HTTP/1.0 are served as the
//! standard says.

use crate::broker::Broker;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

fn broker_with_topic() -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker
}

fn last_payload(broker: &Broker) -> Vec<u8> {
    let offset = broker.stats("t")["latest_offset"].as_i64().unwrap();
    let page = broker.get(&format!("/topics/t/messages?from_offset={offset}")).expect(200).data();
    STANDARD.decode(page["messages"][0]["payload"].as_str().unwrap()).unwrap()
}

#[test]
fn chunked_bodies_are_published_whole() {
    let broker = broker_with_topic();
    let large = "x".repeat(70_000);
    let cases: [(&str, &[u8]); 8] = [
        ("0\r\n\r\n", b""),
        ("5\r\nhello\r\n0\r\n\r\n", b"hello"),
        ("1\r\nh\r\n1\r\ne\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
        ("0005\r\nhello\r\n000\r\n\r\n", b"hello"),
        ("5;name=value;other=\"quoted\"\r\nhello\r\n0;last\r\n\r\n", b"hello"),
        ("A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        ("5\r\nhello\r\n0\r\nX-Trailer: ignored\r\nX-Other: too\r\n\r\n", b"hello"),
        (&format!("11170\r\n{large}\r\n0\r\n\r\n"), large.as_bytes()),
    ];
    let mut connection = broker.connect();
    for (body, payload) in cases {
        connection.send_request("POST", "/topics/t/publish", &[("Transfer-Encoding", "chunked")], body.as_bytes());
        connection.response_to("POST").expect(202);
        assert!(last_payload(&broker) == payload, "{:.60}", body);
    }
}

#[test]
fn chunked_json_is_understood() {
    let broker = broker_with_topic();
    let headers = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")];
    let body = b"b\r\n{\"payload\":\r\n7\r\n\"aGk=\"}\r\n0\r\n\r\n";
    broker.request("POST", "/topics/t/publish", &headers, body).expect(202);
    assert_eq!(last_payload(&broker), b"hi");
    let body = b"15\r\n{\"name\": \"in chunks\"}\r\n0\r\n\r\n";
    broker.request("POST", "/topics", &headers, body).expect(201);
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on() {
    let broker = broker_with_topic();
    let mut connection = broker.connect();
    for _ in 0..3 {
        let headers = [("Expect", "100-continue"), ("Content-Length", "5")];
        connection.send_request("POST", "/topics/t/publish", &headers, b"");
        assert_eq!(connection.response_to("POST").status, 100);
        connection.send(b"hello");
        connection.response_to("POST").expect(202);
    }
    let headers = [("Expect", "100-Continue"), ("Transfer-Encoding", "chunked")];
    connection.send_request("POST", "/topics/t/publish", &headers, b"");
    assert_eq!(connection.response_to("POST").status, 100, "the expectation has no case");
    connection.send(b"3\r\nabc\r\n0\r\n\r\n");
    connection.response_to("POST").expect(202);
    assert_eq!(last_payload(&broker), b"abc");
}

#[test]
fn a_client_that_does_not_wait_for_the_permission_is_served() {
    let broker = broker_with_topic();
    let mut connection = broker.connect();
    connection.send_request(
        "POST",
        "/topics/t/publish",
        &[("Expect", "100-continue"), ("Content-Length", "5")],
        b"hello",
    );
    let mut answer = connection.response_to("POST");
    if answer.status == 100 {
        answer = connection.response_to("POST");
    }
    answer.expect(202);
    connection.send_request("GET", "/health", &[], b"");
    connection.response_to("GET").expect(200);
}

#[test]
fn a_client_that_asks_first_is_refused_before_it_sends() {
    let broker = broker_with_topic();
    let refused = [
        ("/topics/nothing/publish", "5", 404),
        ("/topics/t/publish", "99999999", 413),
        ("/nothing", "5", 404),
        ("/topics/%zz/publish", "5", 400),
    ];
    for (target, length, status) in refused {
        let mut connection = broker.connect();
        connection.send_request("POST", target, &[("Expect", "100-continue"), ("Content-Length", length)], b"");
        // Neither 100 nor silence: the final answer comes at once.
        connection.response_to("POST").expect(status).expect_envelope_of_error();
    }
}

#[test]
fn an_unknown_expectation_fails() {
    let broker = broker_with_topic();
    let answer = broker.request("POST", "/topics/t/publish", &[("Expect", "miracles")], b"hello");
    answer.expect(417).expect_envelope_of_error();
    assert_eq!(broker.stats("t")["message_count"], 0);
}

#[test]
fn clients_of_http_1_0_are_served_and_let_go() {
    let broker = broker_with_topic();
    let mut connection = broker.connect();
    connection.send(b"GET /health HTTP/1.0\r\n\r\n");
    connection.response_to("GET").expect(200);
    connection.expect_closed();

    let mut connection = broker.connect();
    let request = b"POST /topics/t/publish HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc";
    connection.send(request);
    connection.response_to("POST").expect(202);
    connection.expect_closed();
    assert_eq!(last_payload(&broker), b"abc");

    let mut connection = broker.connect();
    for _ in 0..2 {
        connection.send(b"GET /topics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let answer = connection.response_to("GET").expect(200);
        assert!(answer.header("transfer-encoding").is_none(), "HTTP/1.0 knows no chunks: {answer:?}");
        if !answer.lists("connection", "keep-alive") {
            connection.expect_closed();
            break;
        }
    }
}

#[test]
fn chunks_from_a_client_of_http_1_0_are_refused() {
    let broker = broker_with_topic();
    let mut connection = broker.connect();
    connection.send(b"POST /topics/t/publish HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    connection.response_to("POST").expect_error(400, "invalid_framing");
    connection.expect_closed();
    assert_eq!(broker.stats("t")["message_count"], 0);
}
