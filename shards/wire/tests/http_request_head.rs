//! A well-formed request head decodes to what it says, and a malformed first line or host is refused; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use ringmain_wire::http::{Framing, HeadLimits, Method, Refusal, RequestHead, Version, decode_request_head};

fn decode(text: &str) -> Result<Option<(RequestHead<'_>, usize)>, Refusal> {
    decode_request_head(text.as_bytes(), &HeadLimits::default())
}

fn head(text: &str) -> RequestHead<'_> {
    decode(text).expect(text).expect(text).0
}

#[test]
fn a_publish_decodes() {
    let text = "POST /topics/payments/publish?ack=none HTTP/1.1\r\nHost: broker:8080\r\nContent-Type: application/json\r\n\
                content-length: 21\r\nX-Key:  k 1 \r\nX-Bin: \u{e9}\r\nExpect: 100-CONTINUE\r\n\r\n{\"payload\":\"aGVsbG8=\"}";
    let (head, used) = decode(text).unwrap().unwrap();
    assert_eq!(&text[used..used + 3], "{\"p");
    assert_eq!((head.method, head.method_text), (Method::Post, "POST"));
    assert_eq!(head.target, "/topics/payments/publish?ack=none");
    assert_eq!((head.version, head.framing), (Version::Http11, Framing::Length(21)));
    assert!(head.keep_alive && head.expect_continue);
    assert_eq!(head.host, Some("broker:8080"));
    assert_eq!(head.headers.text("CONTENT-TYPE"), Some("application/json"));
    assert_eq!(head.headers.get("x-key"), Some(&b"k 1"[..]));
    assert_eq!(head.headers.text("x-bin"), Some("\u{e9}"));
    assert_eq!(head.headers.get("x-missing"), None);
    let names: Vec<&str> = head.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Host", "Content-Type", "content-length", "X-Key", "X-Bin", "Expect"]);
    assert_eq!((head.headers.len(), head.headers.is_empty()), (6, false));
}

#[test]
fn methods_are_recognised_in_upper_case_only() {
    let table = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("PATCH", Method::Patch),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("CONNECT", Method::Connect),
        ("TRACE", Method::Trace),
        ("get", Method::Other),
        ("PROPFIND", Method::Other),
        ("GETS", Method::Other),
    ];
    for (text, method) in table {
        let text = format!("{text} / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(head(&text).method, method, "{text}");
    }
}

#[test]
fn pipelined_bytes_are_left() {
    let one = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let text = format!("\r\n{one}{one}");
    let (_, used) = decode(&text).unwrap().unwrap();
    assert_eq!(used, 2 + one.len());
    assert_eq!(decode(&text[used..]).unwrap().unwrap().1, one.len());
}

#[test]
fn connections_stay_open_as_the_client_asks() {
    let table = [
        ("1.1", "X: y", true),
        ("1.1", "Connection: close", false),
        ("1.1", "connection: keep-alive, CLOSE", false),
        ("1.1", "Connection: Upgrade\r\nConnection: close", false),
        ("1.1", "Connection: closed", true),
        ("1.0", "X: y", false),
        ("1.0", "Connection: Keep-Alive", true),
        ("1.0", "Connection: keep-alive, close", false),
    ];
    for (version, line, keep_alive) in table {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{line}\r\n\r\n");
        assert_eq!(head(&text).keep_alive, keep_alive, "{text}");
    }
}

#[test]
fn tokens_in_lists_are_found() {
    let text = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
    let head = head(text);
    assert!(head.headers.lists("connection", "upgrade") && head.headers.lists("Upgrade", "websocket"));
    assert!(!head.headers.lists("connection", "up"));
}

#[test]
fn a_client_is_asked_to_continue_only_if_a_body_comes() {
    let expect = |lines: &str| {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{lines}\r\n");
        head(&text).expect_continue
    };
    assert!(expect("Content-Length: 1\r\n") && expect("Transfer-Encoding: chunked\r\n"));
    assert!(!expect("") && !expect("Content-Length: 0\r\n"));
}

#[test]
fn first_lines_are_refused_with_the_right_status() {
    let table = [
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/1.2", 505),
        ("GET / HTTP/1.10", 400),
        ("GET / HTTP/0.9", 505),
        ("GET / HTTP/11.1", 505),
        ("PRI * HTTP/2.0", 505),
        ("GET / http/1.1", 400),
        ("GET / HTTP/1.x", 400),
        ("GET / HTTP/1", 400),
        ("GET / HTTPS/1.1", 400),
        ("GET /", 400),
        ("GET", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET /  HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        ("GET /a b HTTP/1.1", 400),
        ("GET\t/ HTTP/1.1", 400),
        (" GET / HTTP/1.1", 400),
        ("G@T / HTTP/1.1", 400),
        ("GET /\u{7f} HTTP/1.1", 400),
        ("GET /\0 HTTP/1.1", 400),
        ("GET * HTTP/1.1", 400),
        ("\u{16}\u{3}\u{1}", 400),
    ];
    for (line, status) in table {
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        let refusal = decode(&text).expect_err(&text);
        assert_eq!(refusal.status, status, "{line:?}: {refusal}");
    }
    assert!(decode("\x16\x03\x01").unwrap_err().message.contains("TLS"));
    assert!(decode("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_err().message.contains("HTTP/2"));
    assert_eq!(decode_request_head(b"GET /\xff HTTP/1.1\r\n", &HeadLimits::default()).unwrap_err().status, 400);
}

#[test]
fn raw_utf8_and_asterisk_targets_are_taken() {
    assert_eq!(head("GET /topics/zażółć HTTP/1.1\r\nHost: a\r\n\r\n").target, "/topics/zażółć");
    assert_eq!(head("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").target, "*");
    assert_eq!(head("CONNECT b:443 HTTP/1.1\r\nHost: a\r\n\r\n").host, Some("a"));
}

#[test]
fn hosts_must_be_well_formed() {
    let good = [
        "a",
        "a.b-c_d~e",
        "A:8080",
        "a:",
        "127.0.0.1:65535",
        "[::1]",
        "[::1]:80",
        "[::ffff:1.2.3.4]:1",
        "a%2Fb",
        "a,b",
        "xn--bcher-kva.example",
    ];
    for host in good {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(head(&text).host, Some(host));
    }
    let bad = [
        "",
        " ",
        "a b",
        "a/b",
        "a?b",
        "a#b",
        "a@b",
        "a:b",
        "a:65536",
        "a:+1",
        "a:1:2",
        ":80",
        "::1",
        "[::1",
        "[::1]a",
        "[::1]80",
        "[a]",
        "[]",
        "[fe80::1%25eth0]",
        "a%2",
        "a%zz",
        "a\\b",
        "a\"b",
        "<a>",
        "\u{e9}",
        "a\tb",
    ];
    for host in bad {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let refusal = decode(&text).expect_err(&text);
        assert_eq!((refusal.status, refusal.code), (400, "invalid_host"), "{host:?}");
    }
}

#[test]
fn exactly_one_host_is_wanted() {
    for (text, status) in [
        ("GET / HTTP/1.1\r\n\r\n", Some(400)),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Some(400)),
        ("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", Some(400)),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", Some(400)),
        ("GET http://b/ HTTP/1.1\r\n\r\n", Some(400)),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Some(400)),
        ("GET / HTTP/1.0\r\n\r\n", None),
    ] {
        assert_eq!(decode(text).err().map(|refusal| refusal.status), status, "{text:?}");
    }
    assert_eq!(head("GET / HTTP/1.0\r\n\r\n").host, None);
}

#[test]
fn the_authority_of_an_absolute_target_wins() {
    for (target, host) in [
        ("http://b.example:81/x", "b.example:81"),
        ("HTTP://b?x", "b"),
        ("https://b", "b"),
        ("http://[::1]:8/x", "[::1]:8"),
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(head(&text).host, Some(host), "{target}");
    }
    for target in ["http:///x", "http://me@b/", "http://b:x/", "https://?x"] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(decode(&text).expect_err(target).code, "invalid_host");
    }
}
