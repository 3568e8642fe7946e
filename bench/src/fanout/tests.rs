//! The proof of "once and in order", and the stamp that it rests on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ledger::{Faults, Ledger};
use super::stamp::Stamp;

fn publish(ledger: &mut Ledger, count: u64) {
    for _ in 0..count {
        ledger.publish();
    }
}

#[test]
fn a_stamp_survives_base64_whatever_follows() {
    let stamp = Stamp { run: 65_000, number: 1 << 40, started_ns: u64::MAX - 7 };
    for padding in 0..4 {
        let mut payload = stamp.to_bytes().to_vec();
        payload.resize(payload.len() + padding, b'x');
        let text = STANDARD.encode(&payload);
        assert_eq!(Stamp::of_base64(&text.as_bytes()[..24]), Some(stamp));
    }
}

#[test]
fn what_is_no_stamp_is_none() {
    assert_eq!(Stamp::of_base64(b"********************!!!!"), None);
    assert_eq!(Stamp::of_base64(b"QUJD"), None);
}

#[test]
fn deliveries_once_and_in_order_leave_no_fault() {
    let mut ledger = Ledger::new(2);
    for number in 0..5 {
        assert_eq!(ledger.publish(), number);
    }
    for number in 0..5 {
        ledger.deliver(0, number, 100 + number);
    }
    assert_eq!(ledger.delivered(), 0);
    for number in 0..5 {
        ledger.deliver(1, number, 100 + number);
        assert_eq!(ledger.delivered(), number + 1);
    }
    assert_eq!(ledger.faults_at_end(), Faults::default());
}

#[test]
fn a_delivery_that_never_comes_is_missing_at_the_end() {
    let mut ledger = Ledger::new(3);
    ledger.publish();
    ledger.deliver(1, 0, 0);
    assert_eq!(ledger.faults_at_end(), Faults { missing: 2, ..Faults::default() });
}

#[test]
fn a_hole_is_missing_once_and_does_not_hold_up_the_rest() {
    let mut ledger = Ledger::new(1);
    publish(&mut ledger, 4);
    ledger.deliver(0, 0, 0);
    ledger.deliver(0, 3, 3);
    assert_eq!(ledger.delivered(), 4);
    assert_eq!(ledger.faults_at_end(), Faults { missing: 2, repeated: 0, misplaced: 1 });
}

#[test]
fn repeated_late_and_invented_deliveries_are_faults() {
    let mut ledger = Ledger::new(1);
    publish(&mut ledger, 3);
    ledger.deliver(0, 0, 7);
    ledger.deliver(0, 0, 7);
    ledger.deliver(0, 2, 8);
    ledger.deliver(0, 1, 9);
    ledger.deliver(0, 50, 10);
    assert_eq!(ledger.faults_at_end(), Faults { missing: 1, repeated: 3, misplaced: 0 });
}

#[test]
fn nobody_waits_for_a_refused_message() {
    let mut ledger = Ledger::new(2);
    publish(&mut ledger, 3);
    ledger.refuse(1);
    for subscriber in 0..2 {
        ledger.deliver(subscriber, 0, 20);
        ledger.deliver(subscriber, 2, 21);
    }
    assert_eq!(ledger.delivered(), 3);
    assert_eq!(ledger.faults_at_end(), Faults::default());
}
