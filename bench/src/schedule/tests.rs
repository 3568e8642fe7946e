//! Send times: even, exact over long runs, independent of when they are asked for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use super::{Pace, Schedule};

#[test]
fn nothing_is_due_before_its_time() {
    let mut schedule = Schedule::new(1000, 500);
    assert_eq!(schedule.take(499), None);
    assert_eq!(schedule.take(500), Some(500));
    assert_eq!(schedule.take(1_000_499), None);
    assert_eq!(schedule.take(1_000_500), Some(1_000_500));
}

#[test]
fn a_late_caller_gets_the_intended_times_and_not_its_own() {
    let mut schedule = Schedule::new(1_000_000, 0);
    let times: Vec<u64> = std::iter::from_fn(|| schedule.take(3_500)).collect();
    assert_eq!(times, [0, 1000, 2000, 3000]);
}

#[test]
fn a_rate_that_does_not_divide_a_second_does_not_drift() {
    let mut schedule = Schedule::new(3, 0);
    let mut last = 0;
    for _ in 0..=3_000 {
        last = schedule.take(u64::MAX).unwrap();
    }
    assert_eq!(last, 1_000_000_000_000);
}

#[test]
fn behind_counts_what_is_due_and_not_taken() {
    let mut schedule = Schedule::new(1000, 1_000_000);
    assert_eq!(schedule.behind(0), 0);
    assert_eq!(schedule.behind(1_000_000), 1);
    assert_eq!(schedule.behind(11_000_000), 11);
    schedule.take(11_000_000).unwrap();
    assert_eq!(schedule.behind(11_000_000), 10);
}

#[test]
fn the_closed_loop_is_always_ready_and_never_behind() {
    let mut pace = Pace::of(None, 7);
    assert_eq!(pace.take(3), Some(3));
    assert_eq!(pace.next_due_ns(), None);
    assert_eq!(pace.behind(u64::MAX), 0);
    assert!(pace.latency_basis().contains("closed loop"));
}

#[test]
fn the_open_loop_says_that_it_has_no_coordinated_omission() {
    let pace = Pace::of(Some(10), 7);
    assert_eq!(pace.next_due_ns(), Some(7));
    assert!(pace.latency_basis().contains("intended send time"));
}
