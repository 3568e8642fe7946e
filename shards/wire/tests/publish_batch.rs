//! Batches decode to what was put into them however they are cut on their way, and a wrong one is told where it is wrong as
//! soon as that is known; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use proptest::prelude::*;
use ringmain_wire::batch::{BatchDecoder, encode_batch_payload};
use ringmain_wire::http::Refusal;
use ringmain_wire::json::{PublishBody, PublishLines};

/// Longer than any line of the tests that are not about long lines.
const LINE_BYTES_MAX: usize = 250;

type Decoded<T> = (Vec<T>, Option<Refusal>);

/// The payloads of a body of which always `piece` bytes more have come, up to the first fault.
fn payloads(body: &[u8], body_bytes_max: usize, piece: usize) -> Decoded<Vec<u8>> {
    let (mut decoder, mut ranges) = (BatchDecoder::new(body_bytes_max), Vec::new());
    for end in (0..body.len()).step_by(piece).chain([body.len()]) {
        loop {
            match decoder.decode(&body[..end]) {
                Ok(Some(range)) => ranges.push(range),
                Ok(None) => break,
                Err(refusal) => return (Vec::new(), Some(refusal)),
            }
        }
    }
    assert_eq!(decoder.count(), ranges.len() as u64);
    (ranges.into_iter().map(|range| body[range].to_vec()).collect(), None)
}

/// The publishes of a body that comes in such pieces, and the numbers of their lines, up to the first fault.
fn lines(body: &[u8], line_bytes_max: usize, piece: usize) -> Decoded<(u64, PublishBody)> {
    let (mut decoder, mut publishes) = (PublishLines::new(line_bytes_max), Vec::new());
    let mut held = Vec::new();
    let pieces = body.chunks(piece).map(|piece| (piece, false)).chain([(&[][..], true)]);
    for (piece, is_last) in pieces {
        held.extend_from_slice(piece);
        let mut rest = &held[..];
        while let Some((line, publish)) = decoder.decode(&mut rest, is_last) {
            match publish {
                Ok(publish) => publishes.push((line, publish)),
                Err(refusal) => return (publishes, Some(refusal)),
            }
        }
        assert!(rest.len() <= line_bytes_max && !rest.contains(&b'\n'));
        assert!(rest.is_empty() || !is_last);
        held = rest.to_vec();
    }
    (publishes, None)
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        r#"{"payload":"YQ=="}"#,
        r#"{"payload":"","key":"k","id":"i"}"#,
        r#"{"payload":"","headers":{"a":["b","c"]}}"#,
        "",
        "\r",
        " \t",
        "{",
        r#"{"payload":"-"}"#,
    ];
    prop_oneof![
        12 => proptest::sample::select(known[..6].to_vec()).prop_map(|line| line.as_bytes().to_vec()),
        1 => proptest::sample::select(known[6..].to_vec()).prop_map(|line| line.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (30_usize..60).prop_map(|length| vec![b' '; length]),
    ]
}

proptest! {
    #[test]
    fn what_is_put_in_comes_out(
        given in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
        piece in 1_usize..200,
        beyond in 0_usize..100,
    ) {
        let mut body = Vec::new();
        given.iter().for_each(|payload| encode_batch_payload(&mut body, payload));
        prop_assert_eq!(payloads(&body, body.len() + beyond, piece), (given, None));
    }

    #[test]
    fn cuts_do_not_change_payloads(body in proptest::collection::vec(0_u8..4, 0..200), piece in 1_usize..60) {
        prop_assert_eq!(payloads(&body, body.len(), piece), payloads(&body, body.len(), 200));
    }

    #[test]
    fn cuts_do_not_change_lines(given in proptest::collection::vec(line(), 0..12), piece in 1_usize..60) {
        let body = given.join(&b'\n');
        for line_bytes_max in [40, LINE_BYTES_MAX] {
            prop_assert_eq!(lines(&body, line_bytes_max, piece), lines(&body, line_bytes_max, body.len().max(1)));
        }
    }

    #[test]
    fn any_bytes_end(body in proptest::collection::vec(any::<u8>(), 0..200), piece in 1_usize..60) {
        prop_assert_eq!(payloads(&body, body.len(), piece), payloads(&body, body.len(), 200));
        prop_assert_eq!(lines(&body, LINE_BYTES_MAX, piece), lines(&body, LINE_BYTES_MAX, 200));
    }
}

#[test]
fn a_batch_that_is_cut_is_told_where() {
    let mut body = Vec::new();
    encode_batch_payload(&mut body, b"one");
    encode_batch_payload(&mut body, b"second");
    assert_eq!(body, b"\x03\0\0\0one\x06\0\0\0second");
    for end in 0..=body.len() {
        let (found, refusal) = payloads(&body[..end], end, 1);
        let is_whole = matches!(end, 0 | 7 | 17);
        assert_eq!(refusal.is_none(), is_whole, "{end}: {found:?}");
        if let Some(refusal) = refusal {
            let number = if end < 7 { "message 1 " } else { "message 2 " };
            assert_eq!((refusal.status, refusal.code), (400, "invalid_batch"));
            assert!(refusal.message.contains(number), "{end}: {refusal}");
        }
    }
}

#[test]
fn a_length_is_judged_before_its_payload_comes() {
    let mut decoder = BatchDecoder::new(100);
    assert_eq!(decoder.decode(b"\x60\0\0").unwrap(), None);
    assert_eq!(decoder.decode(b"\x60\0\0\0").unwrap(), Some(4..100), "as much as the body may have");
    assert_eq!(decoder.decode(b"\x60\0\0\0").unwrap(), None);
    let refusal = BatchDecoder::new(100).decode(b"\x61\0\0\0").unwrap_err();
    assert!(refusal.message.contains("only 96 bytes are left for its 97 bytes"), "{refusal}");
    let refusal = BatchDecoder::new(5).decode(b"\xff\xff\xff\xff").unwrap_err();
    assert!(refusal.message.contains("only 1 bytes are left for its 4294967295 bytes"), "{refusal}");
    assert!(BatchDecoder::new(3).decode(b"\0").is_err(), "no room for a length");
    // A body may end with less room left than a length takes.
    let mut decoder = BatchDecoder::new(7);
    assert_eq!(decoder.decode(b"\0\0\0\0").unwrap(), Some(4..4));
    assert_eq!(decoder.decode(b"\0\0\0\0").unwrap(), None);
}

#[test]
fn lines_are_counted_and_empty_ones_passed_over() {
    let body = b"{\"payload\":\"YQ==\"}\r\n\r\n \t\n{\"payload\":\"Yg==\",\"id\":\"i\"}\n\n\n{\"payload\":\"Yw==\"}";
    let (publishes, refusal) = lines(body, LINE_BYTES_MAX, 1);
    let found: Vec<_> = publishes.into_iter().map(|(line, publish)| (line, publish.payload)).collect();
    assert_eq!((found, refusal), (vec![(1, b"a".to_vec()), (4, b"b".to_vec()), (7, b"c".to_vec())], None));
    assert_eq!(lines(b"", LINE_BYTES_MAX, 1), (Vec::new(), None));
    assert_eq!(lines(b"\r\n\n \n", LINE_BYTES_MAX, 2), (Vec::new(), None));
}

#[test]
fn a_wrong_line_is_named_and_those_after_it_can_be_read() {
    let good = r#"{"payload":"YQ=="}"#;
    for (bad, code) in [("{", "invalid_json"), ("[]", "invalid_body"), (r#"{"payload":"-"}"#, "invalid_base64")] {
        let body = format!("{good}\n\n{bad}\n{good}\n");
        let (mut decoder, mut rest) = (PublishLines::new(LINE_BYTES_MAX), body.as_bytes());
        let outcomes: Vec<_> = std::iter::from_fn(|| decoder.decode(&mut rest, false)).collect();
        assert_eq!(outcomes.len(), 3);
        let (line, refusal) = (outcomes[1].0, outcomes[1].1.clone().unwrap_err());
        assert_eq!((line, refusal.status, refusal.code), (3, 400, code));
        assert!(refusal.message.starts_with("In line 3 "), "{refusal}");
        assert!(outcomes[2].1.is_ok());
    }
}

#[test]
fn a_line_that_is_too_long_is_refused_before_it_ends() {
    let line = br#"{"payload":"YQ=="}"#;
    assert!(lines(line, line.len(), 1).1.is_none());
    for (body, number) in
        [(&line[..], "line 1 "), (b"\n \n                                                  ", "line 3 ")]
    {
        let mut decoder = PublishLines::new(line.len() - 1);
        let (told, refusal) = decoder.decode(&mut &body[..], false).unwrap();
        let refusal = refusal.unwrap_err();
        assert_eq!((refusal.status, refusal.code), (413, "payload_too_large"));
        assert!(refusal.message.contains(number) && number.contains(&told.to_string()), "{refusal}");
    }
}
