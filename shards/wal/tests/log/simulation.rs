//! Many lives of one log on a disk that crashes, tears, reorders, fails and fills up: nothing reported durable is lost or changed.
//!
//! Every run follows from its seed. `SIMULATION_SEEDS` asks for more of them, `SIMULATION_FIRST` for others.

mod model;
mod world;

use world::{Sabotage, World};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn nothing_reported_durable_is_lost_or_changed() {
    let first = number("SIMULATION_FIRST", 0);
    let mut sums = world::Sums::default();
    for seed in first..first + number("SIMULATION_SEEDS", 1500) {
        match World::new(seed, None).run() {
            Ok(of_run) => sums.add(&of_run),
            Err(fault) => panic!("seed {seed}: {fault}"),
        }
    }
    // A simulation in which nothing happens finds nothing.
    let counts = [sums.crashes, sums.durable, sums.checkpoints, sums.poisons, sums.cuts, sums.fulls, sums.recycled];
    assert!(counts.iter().all(|count| *count > 0), "{sums:?}");
}

#[test]
fn a_crash_at_every_effect_loses_nothing() {
    for seed in 0..8 {
        for effects in 0..300 {
            let run = World::new(seed, None).crashing_at(effects).run();
            assert!(run.is_ok(), "seed {seed}, crash before effect {effects}: {run:?}");
        }
    }
}

fn finds(sabotage: Sabotage) {
    let found = (0..20_000).find(|seed| World::new(*seed, Some(sabotage)).run().is_err());
    assert!(found.is_some(), "the simulation does not see {sabotage:?}");
}

#[test]
fn it_finds_an_answer_before_the_sync() {
    finds(Sabotage::LogSyncSkipped);
}

#[test]
fn it_finds_a_skipped_sync_of_the_directory() {
    finds(Sabotage::DirectorySyncSkipped);
}

#[test]
fn it_finds_recycling_below_the_newer_slot() {
    finds(Sabotage::ReleasedBelowNewer);
}

#[test]
fn it_finds_a_skipped_sync_of_a_new_segment() {
    finds(Sabotage::PrepareSyncSkipped);
}

#[test]
fn it_finds_a_start_that_does_not_sync_what_it_read() {
    finds(Sabotage::OpenSyncSkipped);
}

#[test]
fn it_finds_a_slot_that_was_trusted_before_it_was_synced() {
    finds(Sabotage::SlotsNotConfirmed);
}
