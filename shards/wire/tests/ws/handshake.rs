//! A request becomes a WebSocket exactly if RFC 6455 section 4.2.1 says so; on any core.

use ringmain_wire::http::{HeadLimits, Refusal, decode_request_head};
use ringmain_wire::ws::{accept_key, check_upgrade};

const KNOWN: &[&str] = &["ringmain.v1", "chat"];

const GOOD: &[&str] = &[
    "Host: server.example.com",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
];

fn check(first_line: &str, lines: &[&str]) -> Result<(String, Option<&'static str>), Refusal> {
    let text = format!("{first_line}\r\n{}\r\n\r\n", lines.join("\r\n"));
    let (head, _) = decode_request_head(text.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
    check_upgrade(&head, KNOWN)
}

/// The good request with the lines of this name replaced, or left out if there is nothing instead.
fn with(name: &str, instead: &[&str]) -> Result<(String, Option<&'static str>), Refusal> {
    let prefix = format!("{name}:");
    let mut lines: Vec<&str> = GOOD.iter().filter(|line| !line.starts_with(&prefix)).copied().collect();
    assert!(lines.len() < GOOD.len() || name.starts_with("Also"));
    lines.extend(instead);
    check("GET /topics/a/subscribe/ws HTTP/1.1", &lines)
}

fn refused(answer: Result<(String, Option<&str>), Refusal>) -> (u16, &'static str) {
    let refusal = answer.unwrap_err();
    assert!(refusal.message.ends_with('.'));
    (refusal.status, refusal.code)
}

#[test]
fn the_example_of_the_rfc() {
    assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ==").unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let lines = [GOOD, &["Origin: http://example.com", "Sec-WebSocket-Protocol: chat, superchat"]].concat();
    let answer = check("GET /chat HTTP/1.1", &lines);
    assert_eq!(answer, Ok(("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned(), Some("chat"))));
}

#[test]
fn a_key_stands_for_sixteen_bytes() {
    for key in
        ["AAAAAAAAAAAAAAAAAAAAAA==", "//////////////////////==", "+/+/+/+/+/+/+/+/+/+/+w==", "abcdefghijklmnopqrstuv=="]
    {
        assert_eq!(accept_key(key).unwrap().len(), 28, "{key}");
    }
    let bad = [
        "",
        "=",
        "x",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZQ===",
        "dGhlIHNhbXBsZSBub25j",
        "dGhlIHNhbXBsZSBub25jZWU=",
        "dGhlIHNhbXBsZSBub25jZWVl",
        "dGhlIHNhbXBsZSBub25jZQ== ",
        "dGhl IHNhbXBsZSBub25jZQ==",
        "-_-_-_-_-_-_-_-_-_-_-w==",
        "dGhlIHNhbXBsZSBub25jZQ\u{e9}==",
        &"A".repeat(5000),
    ];
    for key in bad {
        let refusal = accept_key(key).unwrap_err();
        assert_eq!((refusal.status, refusal.code), (400, "invalid_handshake"), "{key:?}");
    }
}

#[test]
fn token_lists_are_read_without_regard_to_case() {
    let connections: [&[&str]; 6] = [
        &["Connection: upgrade"],
        &["connection: UPGRADE"],
        &["Connection: keep-alive, Upgrade"],
        &["Connection: Upgrade,keep-alive"],
        &["Connection: ,, uPgRaDe ,"],
        &["Connection: keep-alive", "Connection: Upgrade"],
    ];
    for lines in connections {
        assert!(with("Connection", lines).is_ok(), "{lines:?}");
    }
    for line in ["upgrade: WebSocket", "Upgrade: h2c, websocket", "UPGRADE: WEBSOCKET"] {
        assert!(with("Upgrade", &[line]).is_ok(), "{line:?}");
    }
}

#[test]
fn what_asks_for_no_websocket_is_told_to() {
    let table: [(&str, &[&str]); 9] = [
        ("Upgrade", &[]),
        ("Upgrade", &["Upgrade: h2c"]),
        ("Upgrade", &["Upgrade: websockets"]),
        ("Upgrade", &["Upgrade: web socket"]),
        ("Upgrade", &["Upgrade: websocket/13"]),
        ("Connection", &[]),
        ("Connection", &["Connection: keep-alive"]),
        ("Connection", &["Connection: close"]),
        ("Connection", &["Connection: upgraded"]),
    ];
    for (name, lines) in table {
        assert_eq!(refused(with(name, lines)), (426, "upgrade_required"), "{lines:?}");
    }
    assert_eq!(refused(check("GET / HTTP/1.0", GOOD)), (426, "upgrade_required"));
    assert_eq!(refused(check("GET / HTTP/1.1", &["Host: a"])), (426, "upgrade_required"));
}

#[test]
fn only_version_thirteen_is_known() {
    let table: [&[&str]; 8] = [
        &[],
        &["Sec-WebSocket-Version: 8"],
        &["Sec-WebSocket-Version: 12"],
        &["Sec-WebSocket-Version: 013"],
        &["Sec-WebSocket-Version: +13"],
        &["Sec-WebSocket-Version: 13, 8"],
        &["Sec-WebSocket-Version:"],
        &["Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8"],
    ];
    for lines in table {
        assert_eq!(refused(with("Sec-WebSocket-Version", lines)), (426, "websocket_version"), "{lines:?}");
    }
}

#[test]
fn other_methods_are_not_allowed() {
    for method in ["POST", "HEAD", "PUT", "OPTIONS", "get", "UPGRADE"] {
        assert_eq!(refused(check(&format!("{method} / HTTP/1.1"), GOOD)), (405, "method_not_allowed"));
    }
}

#[test]
fn a_malformed_handshake_is_refused() {
    let table: [(&str, &[&str]); 6] = [
        ("Sec-WebSocket-Key", &[]),
        ("Sec-WebSocket-Key", &["Sec-WebSocket-Key:"]),
        ("Sec-WebSocket-Key", &["Sec-WebSocket-Key: c2hvcnQ="]),
        ("Sec-WebSocket-Key", &["Sec-WebSocket-Key: \u{e9}"]),
        (
            "Sec-WebSocket-Key",
            &["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="],
        ),
        ("Also", &["Content-Length: 5"]),
    ];
    for (name, lines) in table {
        assert_eq!(refused(with(name, lines)), (400, "invalid_handshake"), "{lines:?}");
    }
    assert_eq!(refused(with("Also", &["Transfer-Encoding: chunked"])), (400, "invalid_handshake"));
    assert!(with("Also", &["Content-Length: 0"]).is_ok(), "an empty body is none");
}

#[test]
fn one_offered_subprotocol_is_chosen_or_none() {
    let table: [(&[&str], Option<&str>); 11] = [
        (&[], None),
        (&["Sec-WebSocket-Protocol: chat"], Some("chat")),
        (&["sec-websocket-protocol: ringmain.v1"], Some("ringmain.v1")),
        (&["Sec-WebSocket-Protocol: chat, ringmain.v1"], Some("chat")),
        (&["Sec-WebSocket-Protocol: ringmain.v1,chat"], Some("ringmain.v1")),
        (&["Sec-WebSocket-Protocol: other, \t ringmain.v1 ,"], Some("ringmain.v1")),
        (&["Sec-WebSocket-Protocol: other", "Sec-WebSocket-Protocol: ringmain.v1"], Some("ringmain.v1")),
        (&["Sec-WebSocket-Protocol: other"], None),
        (&["Sec-WebSocket-Protocol: Chat, ringmain.v10, ringmain"], None),
        (&["Sec-WebSocket-Protocol:"], None),
        (&["Sec-WebSocket-Protocol: \u{e9}, chat"], Some("chat")),
    ];
    for (lines, expected) in table {
        assert_eq!(with("Also", lines).unwrap().1, expected, "{lines:?}");
    }
}
