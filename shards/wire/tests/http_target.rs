//! A target is split first and decoded once, and what cannot be decoded is refused; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use std::borrow::Cow;

use proptest::prelude::*;
use ringmain_wire::http::{Target, percent_encode_segment};

#[test]
fn paths_become_segments() {
    let table: &[(&str, &[&str])] = &[
        ("/", &[]),
        ("/topics", &["topics"]),
        ("/topics/", &["topics"]),
        ("/topics/a/publish?x=/y/", &["topics", "a", "publish"]),
        ("/topics/a%2Fb%2fc", &["topics", "a/b/c"]),
        ("/a+b%2B%20c", &["a+b+ c"]),
        ("/%25%32%46", &["%2F"]),
        ("/%c5%bc/ż", &["ż", "ż"]),
        ("/../%2e%2e/.", &["..", "..", "."]),
        ("//", &[""]),
        ("//a//", &["", "a", ""]),
        ("/a//b", &["a", "", "b"]),
        ("/%20", &[" "]),
        ("/a;b=c,d:e@f", &["a;b=c,d:e@f"]),
        ("http://b/topics/a", &["topics", "a"]),
        ("HTTPS://b:1/topics?q", &["topics"]),
        ("http://b", &[]),
        ("http://b?q=1", &[]),
        ("*", &[]),
    ];
    for (text, segments) in table {
        let target = Target::parse(text).expect(text);
        assert_eq!(target.segments.as_slice(), segments.iter().map(|&s| Cow::from(s)).collect::<Vec<_>>(), "{text}");
        assert_eq!(target.is_asterisk(), *text == "*");
    }
}

#[test]
fn queries_become_pairs() {
    let table: &[(&str, &[(&str, &str)])] = &[
        ("/", &[]),
        ("/?", &[]),
        ("/?&&", &[]),
        ("/?a=1&b=2", &[("a", "1"), ("b", "2")]),
        ("/?a", &[("a", "")]),
        ("/?=1", &[("", "1")]),
        ("/?a=b=c", &[("a", "b=c")]),
        ("/?a=1&&a=2&", &[("a", "1"), ("a", "2")]),
        ("/?a=b+c%20d%2Be", &[("a", "b c d+e")]),
        ("/?a%3Db=%26&c=%C5%BC", &[("a=b", "&"), ("c", "ż")]),
        ("/?a=?/", &[("a", "?/")]),
        ("http://b?a=1", &[("a", "1")]),
    ];
    for (text, pairs) in table {
        let target = Target::parse(text).expect(text);
        let found: Vec<_> = target.query().collect();
        let expected: Vec<_> = pairs.iter().map(|&(name, value)| (Cow::from(name), Cow::from(value))).collect();
        assert_eq!(found, expected, "{text}");
    }
    let target = Target::parse("/?topic=a&topic=b&x=%31").unwrap();
    assert_eq!(target.query_value("topic").as_deref(), Some("a"));
    assert_eq!(target.query_value("x").as_deref(), Some("1"));
    assert_eq!(target.query_value("y"), None);
}

#[test]
fn what_cannot_be_decoded_is_refused() {
    let segments = "/a".repeat(33);
    for text in [
        "",
        "a",
        "a/b",
        "b:443",
        "ftp://b/",
        "**",
        "/a#b",
        "/%",
        "/%4",
        "/%4/1",
        "/%zz",
        "/%g1",
        "/%+1",
        "/%00",
        "/a%00b",
        "/\0",
        "/%ff",
        "/%c5",
        "/%c5/%bc",
        "/%C0%AF",
        "/%E0%80%AF",
        "/%ED%A0%80",
        "/%F5%80%80%80",
        "/?a=%",
        "/?%zz=1",
        "/?a=%00",
        "/?a=%ff",
        "/?a=%C0%AF",
        "/?a=%c5&b=%bc",
        &segments,
    ] {
        let refusal = Target::parse(text).expect_err(text);
        assert_eq!((refusal.status, refusal.code), (400, "invalid_target"), "{text:?}");
    }
    assert_eq!(Target::parse(&"/a".repeat(32)).unwrap().segments.len(), 32);
}

proptest! {
    #[test]
    fn encoded_segments_come_back(segments in proptest::collection::vec("[^\0]{1,12}", 1..8)) {
        let path: String = segments.iter().map(|segment| format!("/{}", percent_encode_segment(segment))).collect();
        prop_assert!(path.is_ascii());
        let target = Target::parse(&path).unwrap();
        prop_assert_eq!(target.segments.as_slice(), segments.as_slice());
    }
}
