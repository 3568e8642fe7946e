//! A publish body decodes as streamq's server decodes it, and a wrong one is told what is wrong; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use ringmain_wire::json::{HEADERS_MAX, PublishBody, decode_publish};

fn payload(bytes: &[u8]) -> PublishBody {
    PublishBody { payload: bytes.to_vec(), ..PublishBody::default() }
}

#[test]
fn payloads_decode() {
    let table: &[(&str, &[u8])] = &[
        (r#"{"payload":"aGVsbG8="}"#, b"hello"),
        (r#" { "payload" : "aGVsbG8=" } "#, b"hello"),
        (r#"{"payload":""}"#, b""),
        (r#"{"payload":null}"#, b""),
        (r#"{"payload":"\/\/8="}"#, b"\xff\xff"),
        (r#"{"payload":"//8\u003d"}"#, b"\xff\xff"),
        (r#"{"pay\u006coad":"YQ=="}"#, b"a"),
        (r#"{"payload":"aGVs\r\nbG8=\n"}"#, b"hello"),
        (r#"{"payload":"\n"}"#, b""),
        (r#"{"payload":"YR=="}"#, b"a"),
        (r#"{"payload":"YQ==","payload":"Yg=="}"#, b"b"),
        (r#"{"payload":"YQ==","key":null,"headers":null,"id":null}"#, b"a"),
        (r#"{"x":{"payload":[1,{"y":null}]},"payload":"YQ==","Payload":5,"z":-1e-9}"#, b"a"),
    ];
    for (body, bytes) in table {
        assert_eq!(decode_publish(body.as_bytes()), Ok(payload(bytes)), "{body}");
    }
}

#[test]
fn key_headers_and_id_are_taken() {
    let body = r#"{"id":"7","headers":{"b":"2","a":["1","3"],"b":"ż\n","c":[]},"key":"k","payload":"YQ=="}"#;
    let headers = [("b", "2"), ("a", "1"), ("a", "3"), ("b", "ż\n")];
    let expected = PublishBody {
        key: Some("k".to_owned()),
        id: Some("7".to_owned()),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        ..payload(b"a")
    };
    assert_eq!(decode_publish(body.as_bytes()), Ok(expected));
}

#[test]
fn faults_are_named() {
    let table = [
        ("", "invalid_json", "line 1, column 0"),
        ("{", "invalid_json", "line 1"),
        ("{\n\"payload\":\"YQ==\",}", "invalid_json", "line 2, column 18"),
        (r#"{"payload":"YQ=="} x"#, "invalid_json", "column 20"),
        (r#"{"payload":"YQ=="#, "invalid_json", "line 1"),
        (r#"{payload:"YQ=="}"#, "invalid_json", "column 2"),
        (r#"{'payload':'YQ=='}"#, "invalid_json", "column 2"),
        ("{\"payload\":\"YQ\n==\"}", "invalid_json", "line 2"),
        (r#"{"payload":"YQ==","key":"\ud800"}"#, "invalid_json", "column"),
        ("\u{feff}{\"payload\":\"YQ==\"}", "invalid_json", "column 1"),
        ("null", "invalid_body", "object"),
        ("[]", "invalid_body", "object"),
        ("5", "invalid_body", "object"),
        (r#""payload""#, "invalid_body", "object"),
        ("{}", "invalid_body", "payload"),
        (r#"{"Payload":"YQ=="}"#, "invalid_body", "payload"),
        (r#"{"payload":5}"#, "invalid_body", "string"),
        (r#"{"payload":["YQ=="]}"#, "invalid_body", "string"),
        (r#"{"payload":"YQ==","key":5}"#, "invalid_body", "string"),
        (r#"{"payload":"YQ==","headers":["a"]}"#, "invalid_body", "headers"),
        (r#"{"payload":"YQ==","headers":{"a":1}}"#, "invalid_body", "header value"),
        (r#"{"payload":"YQ==","headers":{"a":["b",1]}}"#, "invalid_body", "string"),
        (r#"{"payload":"YQ"}"#, "invalid_base64", "padding with = is missing"),
        (r#"{"payload":"YQ="}"#, "invalid_base64", "padding"),
        (r#"{"payload":"YQ==="}"#, "invalid_base64", "padding"),
        (r#"{"payload":"Y"}"#, "invalid_base64", "length"),
        (r#"{"payload":"YQ==YQ=="}"#, "invalid_base64", "position 2"),
        (r#"{"payload":"a-_b"}"#, "invalid_base64", "URL-safe"),
        (r#"{"payload":"hello world!"}"#, "invalid_base64", "position 5"),
        (r#"{"payload":"żółw"}"#, "invalid_base64", "position 0"),
        (r#"{"payload":"YQ= ="}"#, "invalid_base64", "position"),
    ];
    for (body, code, said) in table {
        let refusal = decode_publish(body.as_bytes()).expect_err(body);
        assert_eq!((refusal.status, refusal.code), (400, code), "{body}: {refusal}");
        assert!(refusal.message.contains(said), "{body}: {refusal}");
    }
    assert_eq!(decode_publish(b"{\"payload\":\"\xff\"}").unwrap_err().code, "invalid_json");
}

#[test]
fn nesting_and_headers_cannot_exhaust_anything() {
    let deep = format!(r#"{{"x":{}{},"payload":"YQ=="}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(decode_publish(deep.as_bytes()), Ok(payload(b"a")));
    assert_eq!(decode_publish("[".repeat(100_000).as_bytes()).unwrap_err().status, 400);
    assert_eq!(decode_publish("{\"payload\":".repeat(100_000).as_bytes()).unwrap_err().status, 400);

    let with = |count: usize| {
        let headers: Vec<String> = (0..count).map(|at| format!(r#""{at}":"v""#)).collect();
        format!(r#"{{"payload":"","headers":{{{}}}}}"#, headers.join(","))
    };
    assert_eq!(decode_publish(with(HEADERS_MAX).as_bytes()).unwrap().headers.len(), HEADERS_MAX);
    assert_eq!(decode_publish(with(HEADERS_MAX + 1).as_bytes()).unwrap_err().code, "invalid_body");
    let array = format!(r#"{{"payload":"","headers":{{"a":[{}"b"]}}}}"#, r#""b","#.repeat(HEADERS_MAX));
    assert_eq!(decode_publish(array.as_bytes()).unwrap_err().code, "invalid_body");

    let shared =
        |name: usize, values: &str| format!(r#"{{"payload":"","headers":{{"{}":{values}}}}}"#, "n".repeat(name));
    assert_eq!(decode_publish(shared(65_535, r#"["",""]"#).as_bytes()).unwrap().headers.len(), 2);
    assert_eq!(decode_publish(shared(65_536, r#"["",""]"#).as_bytes()).unwrap_err().code, "invalid_body");
    assert_eq!(decode_publish(shared(65_536, r#"[""]"#).as_bytes()).unwrap().headers.len(), 1);

    let long = format!(r#"{{"payload":"YQ==","key":{{"{}":1}}}}"#, "x".repeat(100_000));
    assert!(decode_publish(long.as_bytes()).unwrap_err().message.len() < 1000, "messages stay short");
    let long = format!(r#"{{"payload":"YQ==","headers":"{}"}}"#, "x".repeat(100_000));
    assert!(decode_publish(long.as_bytes()).unwrap_err().message.len() < 1000, "messages stay short");
}
