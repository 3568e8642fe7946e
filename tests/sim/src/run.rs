//! Runs many seeds on all processors and says which one failed first, with the last lines of what it did.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::trace::Trace;
use crate::world::{Plan, Sums, World};

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Its seed.
    pub seed: u64,
    /// What was wrong.
    pub fault: String,
    /// Its last lines.
    pub trace: String,
    /// It ended in a panic.
    pub is_panic: bool,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}seed {}: {}", self.trace, self.seed, self.fault)
    }
}

/// A number from the environment.
#[must_use]
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs one seed; gives back its trace, too.
///
/// # Errors
/// What was wrong.
pub fn run_one(seed: u64, plan: Plan, lines_max: usize) -> (Result<Sums, Box<Failed>>, Trace) {
    let mut world = World::new(seed, plan, lines_max);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    let (fault, is_panic) = match ended {
        Ok(Ok(())) => {
            let sums = world.sums();
            return (Ok(sums), world.into_trace());
        }
        Ok(Err(fault)) => (fault, false),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of unknown kind");
            (format!("panic: {text}"), true)
        }
    };
    let trace = world.into_trace();
    (Err(Box::new(Failed { seed, fault, trace: trace.text(), is_panic })), trace)
}

/// Runs all `seeds`, or until one fails. Gives what happened in those that did not, and those that did, lowest seed first.
#[must_use]
pub fn run_all(seeds: Range<u64>, plan: Plan, stops: bool) -> (Sums, Vec<Failed>) {
    let next = AtomicU64::new(seeds.start);
    let state = Mutex::new((Sums::default(), Vec::new()));
    let lines_max = setting("SIMULATION_LINES", 60) as usize;
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let ended = run_one(seed, plan, lines_max).0;
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            match ended {
                Ok(sums) => state.0.add(&sums),
                Err(failed) => {
                    state.1.push(*failed);
                    if stops {
                        next.store(seeds.end, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (sums, mut failed) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_by_key(|failed| failed.seed);
    (sums, failed)
}

/// The lowest of `seeds` that fails, nearly: what runs at the same time may be the first to fail.
#[must_use]
pub fn first_failure(seeds: Range<u64>, plan: Plan) -> Option<Failed> {
    run_all(seeds, plan, true).1.into_iter().next()
}
