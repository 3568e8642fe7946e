//! Seeded chance: each run differs, and a failed run prints the seed that repeats it.

use std::time::{SystemTime, UNIX_EPOCH};

/// A small generator (SplitMix64), plenty for choosing test cases.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// A generator for one test: from `RINGMAIN_TEST_SEED` when it is set, else from the clock. Printed, so that the
    /// output of a failing test shows it.
    pub(crate) fn for_test() -> Self {
        let from_clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = std::env::var("RINGMAIN_TEST_SEED").map_or_else(|_| from_clock(), |seed| seed.parse().unwrap());
        println!("repeat this run with RINGMAIN_TEST_SEED={seed}");
        Self(seed)
    }

    /// A further generator, whose values do not depend on how this one goes on.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is above zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// One of the items.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// How much longer than usual the heavy loops run: `RINGMAIN_TEST_SCALE`, by default 1.
pub(crate) fn scaled(usual: usize) -> usize {
    let scale = std::env::var("RINGMAIN_TEST_SCALE").ok().and_then(|scale| scale.parse::<f64>().ok()).unwrap_or(1.0);
    ((usual as f64 * scale) as usize).max(1)
}
