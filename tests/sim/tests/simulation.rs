//! Many seeds: nothing answered or visible is lost or changed, and in the end everything goes on.
#![allow(clippy::print_stdout, reason = "what happened is for a person to read")]

use ringmain_sim::{Plan, Sums, run_all, run_one, setting};

fn all_seeds(plan: Plan, count: u64) -> Sums {
    let first = setting("SIMULATION_FIRST", 0);
    let (sums, failed) = run_all(first..first + setting("SIMULATION_SEEDS", count), plan, true);
    if let Some(failed) = failed.first() {
        panic!("{failed}");
    }
    sums
}

#[test]
fn nothing_answered_or_visible_is_lost_or_changed() {
    let sums = all_seeds(Plan::ALL, 1200);
    println!("{sums:?}");
    if sums.runs < 1000 {
        return;
    }
    // A simulation in which nothing happens finds nothing.
    let counts = [
        sums.crashes,
        sums.power_losses,
        sums.crashes_while_opening,
        sums.damaged_slots,
        sums.cuts,
        sums.durable,
        sums.refused,
        sums.unknown,
        sums.acknowledged,
        sums.given,
        sums.read,
        sums.poisons,
        sums.fulls,
        sums.failures,
        sums.given_up,
        sums.commits,
        sums.checkpoints,
        sums.segment_bytes,
        sums.segment_read_bytes,
        sums.unlinks,
        sums.letters,
        sums.repeats,
        sums.batches,
        sums.changes,
        sums.orders,
        sums.orphans,
    ];
    assert!(counts.iter().all(|count| *count > 0), "{sums:?}");
}

#[test]
fn without_failures_everything_goes_on_by_itself() {
    all_seeds(Plan { has_failures: false, has_crashes: false, ..Plan::ALL }, 200);
}

#[test]
fn memory_topics_go_with_the_process_and_nothing_else_does() {
    all_seeds(Plan { has_wal: false, ..Plan::ALL }, 200);
}

#[test]
fn after_damage_nothing_is_changed_and_what_is_missing_is_told() {
    let sums = all_seeds(Plan::DAMAGED, 1500);
    println!("{sums:?}");
    if sums.runs < 1000 {
        return;
    }
    let counts = [sums.damages, sums.damage_refused, sums.damage_told, sums.damage_kept, sums.damage_gaps];
    assert!(counts.iter().all(|count| *count > 0), "{sums:?}");
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..20 {
        let lines = 200_000;
        let (one, first) = run_one(seed, Plan::ALL, lines);
        let (other, second) = run_one(seed, Plan::ALL, lines);
        let differing = first.lines().zip(second.lines()).enumerate().find(|(_, (one, other))| one != other);
        assert_eq!(differing, None, "seed {seed}");
        assert_eq!(first.sum(), second.sum(), "seed {seed}");
        assert_eq!(one.is_ok(), other.is_ok(), "seed {seed}");
    }
}
