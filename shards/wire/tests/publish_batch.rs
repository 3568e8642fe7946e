//! Batches decode to what was put into them, and a wrong one is told where it is wrong; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use proptest::prelude::*;
use ringmain_wire::batch::{batch_ranges, encode_batch_payload};
use ringmain_wire::json::decode_publish_lines;

fn payloads(body: &[u8]) -> Vec<Vec<u8>> {
    batch_ranges(body).map(|range| body[range.unwrap()].to_vec()).collect()
}

proptest! {
    #[test]
    fn what_is_put_in_comes_out(given in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20)) {
        let mut body = Vec::new();
        given.iter().for_each(|payload| encode_batch_payload(&mut body, payload));
        prop_assert_eq!(payloads(&body), given);
    }

    #[test]
    fn any_bytes_end(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let faults = batch_ranges(&body).filter(Result::is_err).count();
        prop_assert!(faults <= 1);
        prop_assert!(decode_publish_lines(&body).count() <= body.len());
    }
}

#[test]
fn a_batch_that_is_cut_is_told_where() {
    let mut body = Vec::new();
    encode_batch_payload(&mut body, b"one");
    encode_batch_payload(&mut body, b"second");
    assert_eq!(body, b"\x03\0\0\0one\x06\0\0\0second");
    for end in 0..body.len() {
        let outcomes: Vec<_> = batch_ranges(&body[..end]).collect();
        let is_whole = end == 0 || end == 7;
        assert_eq!(outcomes.iter().all(Result::is_ok), is_whole, "{end}");
        if let Some(Err(refusal)) = outcomes.last() {
            let number = if end < 7 { "message 1 " } else { "message 2 " };
            assert_eq!((refusal.status, refusal.code), (400, "invalid_batch"));
            assert!(refusal.message.contains(number), "{end}: {refusal}");
        }
    }
    let refusal = batch_ranges(b"\xff\xff\xff\xffx").next().unwrap().unwrap_err();
    assert!(refusal.message.contains("4294967295"), "{refusal}");
}

#[test]
fn lines_are_counted_and_empty_ones_passed_over() {
    let body = b"{\"payload\":\"YQ==\"}\r\n\r\n \t\n{\"payload\":\"Yg==\",\"id\":\"i\"}\n\n\n{\"payload\":\"Yw==\"}";
    let lines: Vec<_> = decode_publish_lines(body).map(|(line, publish)| (line, publish.unwrap().payload)).collect();
    assert_eq!(lines, [(1, b"a".to_vec()), (4, b"b".to_vec()), (7, b"c".to_vec())]);
    assert_eq!(decode_publish_lines(b"").count() + decode_publish_lines(b"\r\n\n \n").count(), 0);
}

#[test]
fn a_wrong_line_is_named() {
    let good = r#"{"payload":"YQ=="}"#;
    for (bad, code) in [("{", "invalid_json"), ("[]", "invalid_body"), (r#"{"payload":"-"}"#, "invalid_base64")] {
        let body = format!("{good}\n\n{bad}\n{good}\n");
        let outcomes: Vec<_> = decode_publish_lines(body.as_bytes()).collect();
        assert_eq!(outcomes.len(), 3);
        let (line, refusal) = (outcomes[1].0, outcomes[1].1.clone().unwrap_err());
        assert_eq!((line, refusal.status, refusal.code), (3, 400, code));
        assert!(refusal.message.starts_with("In line 3 "), "{refusal}");
        assert!(outcomes[2].1.is_ok());
    }
}
