//! Ages: whatever came when, each record goes when it is too old, not before, and little later; runs on the test thread.

use proptest::prelude::*;
use ringmain_model::Offset;

use crate::ages::Ages;

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
