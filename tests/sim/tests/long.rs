//! Long runs by hand; see the crate's documentation for how.
#![allow(clippy::print_stdout, reason = "what happened is for a person to read")]

use std::collections::BTreeMap;

use ringmain_sim::{Plan, run_all, setting};

/// Words that differ from run to run.
const NAMES: [&str; 9] = ["", "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "one", "two"];

#[test]
#[ignore = "runs as long as it is asked to"]
fn as_many_seeds_as_asked_for() {
    let first = setting("SIMULATION_FIRST", 1_000_000);
    let (sums, failed) = run_all(first..first + setting("SIMULATION_SEEDS", 20_000), Plan::ALL, true);
    println!("{sums:#?}");
    if let Some(failed) = failed.first() {
        panic!("{failed}");
    }
}

/// Does not stop at the first failed run, and tells how often each fault was met.
#[test]
#[ignore = "for looking for the causes of many faults at once"]
fn kinds_of_faults() {
    let first = setting("SIMULATION_FIRST", 0);
    let (sums, failed) = run_all(first..first + setting("SIMULATION_SEEDS", 2_000), Plan::ALL, false);
    println!("{sums:#?}");
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for failed in &failed {
        let words =
            failed.fault.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| !NAMES.contains(word));
        let is_hexadecimal = |word: &&str| word.bytes().all(|letter| letter.is_ascii_hexdigit());
        let kind = words.filter(|word| !is_hexadecimal(word)).collect::<Vec<_>>().join(" ");
        kinds.entry(kind).or_default().push(failed.seed);
    }
    for (kind, seeds) in &kinds {
        println!("{} times, seeds {:?}…: {kind}", seeds.len(), &seeds[..seeds.len().min(6)]);
    }
    assert!(kinds.is_empty(), "{} runs failed", failed.len());
}
