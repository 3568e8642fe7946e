//! Ages: whatever came when, each record goes when it is too old, not before, and little later; runs on the test thread.

use proptest::prelude::*;
use ringmain_model::{Offset, Retention};

use super::Bench;
use crate::ages::{AgeClock, Ages};
use crate::{Event, Now};

const MAX_AGE_MS: u64 = 6_400;
/// By how much a record may stay too long: a sixty-fourth of the retention, and at least a tenth of a second.
const LATE_MS: u64 = 100;

/// What came: milliseconds since the batch before, and records.
fn batches() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let pause = prop_oneof![4 => 0..20_u64, 2 => 20..400_u64, 1 => 400..9_000_u64];
    prop::collection::vec((pause, 1..4_u64), 1..300)
}

proptest! {
    #[test]
    fn records_go_in_time_and_not_before(batches in batches(), looks in prop::collection::vec(0..20_000_u64, 1..20)) {
        let mut ages = Ages::default();
        let (mut came, mut now_ms) = (Vec::new(), 1_000);
        for (pause_ms, records) in batches {
            now_ms += pause_ms;
            let base = came.len() as u64;
            came.extend((0..records).map(|_| now_ms));
            ages.note(Offset(base), Offset(base + records), now_ms, MAX_AGE_MS);
        }
        let start_ms = came[0];
        for look_ms in looks.into_iter().map(|after_ms| start_ms + after_ms).chain([now_ms, now_ms + MAX_AGE_MS]) {
            let start = ages.start_at(look_ms, MAX_AGE_MS).0 as usize;
            prop_assert!(came[..start].iter().all(|came_ms| came_ms + MAX_AGE_MS <= look_ms), "gone too early");
            let late = came[start..].iter().filter(|came_ms| **came_ms + MAX_AGE_MS + LATE_MS <= look_ms);
            prop_assert_eq!(late.count(), 0, "kept too long at {} from {}: {:?}", look_ms, start, ages);
        }
        prop_assert!(ages.samples.len() as u64 <= 2 * (now_ms - start_ms) / LATE_MS + 2, "a pause costs one sample more");
    }
}

const DAY_US: i64 = 86_400_000_000;
const START: Now = Now { unix_us: 1_700_000_000_000_000, monotonic_ms: 50 };

/// Lets time pass, and the wall clock jump.
fn pass(now: &mut Now, ms: u64, jump_us: i64) {
    now.monotonic_ms += ms;
    now.unix_us += i64::try_from(ms).unwrap() * 1000 + jump_us;
}

#[test]
fn a_wall_clock_that_jumps_a_day_takes_nothing_and_keeps_nothing() {
    for day_us in [DAY_US, -DAY_US] {
        let retention = Retention { max_age_ms: Some(MAX_AGE_MS), ..Retention::default() };
        let mut bench = Bench::new(retention, 1 << 20);
        bench.now = START;
        // When each came, and what the wall clock does after it.
        for jump_us in [0, day_us, -2 * day_us, day_us] {
            bench.publish(vec![7; 100]);
            bench.end_turn();
            pass(&mut bench.now, 1_000, jump_us);
            bench.give(Event::TimePassed);
            assert_eq!(bench.log_start(), 0, "{day_us}: gone in the jump");
        }
        let came_ms = |offset: u64| START.monotonic_ms + 1_000 * offset;
        for gone in 1..=4 {
            let due_ms = came_ms(gone - 1) + MAX_AGE_MS;
            let to_due_ms = due_ms - 1 - bench.now.monotonic_ms;
            pass(&mut bench.now, to_due_ms, day_us);
            bench.give(Event::TimePassed);
            assert_eq!(bench.log_start(), gone - 1, "{day_us}: gone too early");
            pass(&mut bench.now, 1 + LATE_MS, -day_us);
            bench.give(Event::TimePassed);
            assert_eq!(bench.log_start(), gone, "{day_us}: kept too long");
        }
    }
}

#[test]
fn a_start_after_a_jump_goes_on_where_the_clock_stood() {
    for day_us in [DAY_US, -DAY_US] {
        let (mut clock, mut now) = (AgeClock::default(), START);
        clock.tick(now);
        assert_eq!(clock.anchor_to_log(now, false), None, "nothing else is logged");
        let first = clock.anchor_to_log(now, true).expect("the first anchor");
        clock.note_logged(first);
        pass(&mut now, 5_000, 0);
        clock.tick(now);
        assert_eq!(clock.anchor_to_log(now, true), None, "both clocks went on alike");
        // Nothing is logged, and nothing happens until the clocks are compared.
        assert!(clock.next_comparison_ms() > now.monotonic_ms + 10);
        let to_comparison_ms = clock.next_comparison_ms() - now.monotonic_ms;
        pass(&mut now, to_comparison_ms, day_us);
        clock.tick(now);
        let anchor = clock.anchor_to_log(now, false).expect("the log learns of the jump");
        assert!(clock.next_comparison_ms() > now.monotonic_ms);
        assert_eq!(anchor.age_ms, clock.now_ms());
        let start_after = |down_us: i64| {
            let mut next = AgeClock::default();
            next.restore(anchor);
            let mut then = Now { unix_us: now.unix_us + down_us, monotonic_ms: 3 };
            next.tick(then);
            let age_ms = next.now_ms();
            // It knows the anchor that it began with: another jump is told.
            pass(&mut then, 1_000, 2 * day_us);
            next.tick(then);
            assert!(next.anchor_to_log(then, false).is_some(), "{day_us}: the next jump");
            age_ms
        };
        assert_eq!(start_after(3_000_000), clock.now_ms() + 3_000, "{day_us}: the time that it was down");
        assert_eq!(start_after(-DAY_US), clock.now_ms(), "{day_us}: set back while it was down, and never younger");
    }
}
