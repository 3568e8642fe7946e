//! Origins, routes and encodings keep their rules; runs on the test thread.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use ringmain_model::Message;
use ringmain_wire::http::{Method, Target};

use super::identity::IdName;
use super::origin::OriginPolicy;
use super::route::{Place, Verb};

#[test]
fn a_broker_on_loopback_answers_its_own_names_and_pages_only() {
    let policy = OriginPolicy::parse("https://app.example.org", true).unwrap();
    for host in ["localhost:8080", "127.0.0.1", "127.8.8.8:1", "[::1]:8080", "LOCALHOST", "app.example.org"] {
        assert!(policy.admit(Some(host), None).is_ok(), "{host}");
    }
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8080",
        "[::2]",
        "10.0.0.1",
        "[::1].evil.example",
        "[::1]evil.example",
        "[::1",
        "localhost:80.evil.example",
    ] {
        assert_eq!(policy.admit(Some(host), None).unwrap_err().code, "forbidden_origin", "{host}");
    }
    for origin in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:1", "https://APP.example.org"] {
        assert_eq!(policy.admit(Some("localhost"), Some(origin)), Ok(true), "{origin}");
    }
    for origin in ["null", "https://evil.example", "http://app.example.org", "http://localhost.evil.example", "file://"]
    {
        assert_eq!(policy.admit(Some("localhost"), Some(origin)).unwrap_err().status, 403, "{origin}");
    }
}

#[test]
fn an_open_broker_serves_all_hosts_and_lets_only_known_pages_read() {
    let policy = OriginPolicy::parse("https://app.example.org", false).unwrap();
    assert_eq!(policy.admit(Some("broker.example"), Some("https://evil.example")), Ok(false));
    assert_eq!(policy.admit(Some("broker.example"), Some("https://app.example.org")), Ok(true));
    assert_eq!(OriginPolicy::parse("*", false).unwrap().admit(None, Some("null")), Ok(true));
    assert!(OriginPolicy::parse("app.example.org", false).is_err());
    assert!(OriginPolicy::parse("https://app.example.org/path", false).is_err());
}

#[test]
fn each_place_allows_its_methods_and_names_them() {
    let cases = [
        ("/topics", "GET, HEAD, POST, OPTIONS"),
        ("/topics/a%2Fb", "GET, HEAD, PATCH, DELETE, OPTIONS"),
        ("/topics/a/publish", "POST, OPTIONS"),
        ("/topics/a/messages/", "GET, HEAD, OPTIONS"),
        ("/topics/a/subscribe/sse", "GET, HEAD, OPTIONS"),
        ("/health", "GET, HEAD, OPTIONS"),
        ("/health/ready", "GET, HEAD, OPTIONS"),
        ("/metrics", "GET, HEAD, OPTIONS"),
    ];
    for (path, allow) in cases {
        let place = Place::find(&Target::parse(path).unwrap()).unwrap();
        assert_eq!(place.allow(), allow, "{path}");
        assert_eq!(place.check(Method::Options, "OPTIONS"), Ok(Verb::Options));
        let refused = place.check(Method::Put, "PUT").unwrap_err();
        assert_eq!((refused.status, refused.allow), (405, Some(allow)));
        assert_eq!(place.check(Method::Other, "BREW").unwrap_err().status, 501);
    }
    for (path, status) in [
        ("/", 404),
        ("/topics/a/b", 404),
        ("/topics/..", 400),
        ("/topics//publish", 400),
        ("/topics/%2e%2e/publish", 400),
    ] {
        assert_eq!(Place::find(&Target::parse(path).unwrap()).unwrap_err().status, status, "{path}");
    }
}

#[test]
fn ids_and_contents_are_hashed_as_they_always_were() {
    let of = |bytes: &'static [u8]| bytes.into();
    let headers = vec![(of(b"a"), of(b"1")), (of(b"a"), of(b"2"))];
    let mut message = Message { payload: of(b"body"), key: Some(of(b"key")), headers, id: None };
    IdName::new(b"order-7").unwrap().give(&mut message);
    let id = message.id.unwrap();
    assert_eq!(u128::from_be_bytes(id.name), 0xdf8c_f802_27ec_3237_922d_f0ec_d883_85c5);
    assert_eq!(id.content, 0x8271_13fc_798a_95c6);
    let mut message = Message::default();
    IdName::new(b"order-7").unwrap().give(&mut message);
    assert_eq!(message.id.unwrap().content, 0x828a_20b7_0d17_5d94);
}
