//! Each fault that is put in on purpose is found, on seeds on which a correct shard has none.
#![allow(clippy::print_stdout, reason = "what happened is for a person to read")]

use ringmain_sim::{Plan, Sabotage, first_failure};

/// Seeds among which each fault must be found; `nothing_answered_or_visible_is_lost_or_changed` runs more of them without one.
const SEEDS: u64 = 1000;

fn finds(sabotage: Sabotage) {
    finds_in(Plan { sabotage: Some(sabotage), ..Plan::ALL }, sabotage);
}

fn finds_in(plan: Plan, sabotage: Sabotage) {
    let found = first_failure(0..SEEDS, plan);
    let found = found.unwrap_or_else(|| panic!("the simulation does not see {sabotage:?}"));
    println!("{sabotage:?}: seed {}: {}", found.seed, found.fault);
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
fn it_finds_that_a_stale_batch_is_accepted() {
    finds(Sabotage::StaleAccepted);
}

#[test]
fn it_finds_an_unlink_before_the_delete_is_durable() {
    finds(Sabotage::UnlinkedEarly);
}

#[test]
fn it_finds_a_checkpoint_that_trusts_an_unsynced_topic_segment() {
    finds(Sabotage::TopicSyncSkipped);
}

#[test]
fn it_finds_a_checkpoint_that_was_not_synced() {
    finds(Sabotage::SlotSyncSkipped);
}

#[test]
fn it_finds_a_failed_sync_taken_for_a_good_one() {
    finds(Sabotage::SyncFailureHidden);
}

#[test]
fn it_finds_partitions_that_are_left_of_a_half_done_create_or_delete() {
    finds(Sabotage::OrphansKept);
}

#[test]
fn it_finds_files_of_a_deleted_topic_that_are_never_unlinked() {
    finds(Sabotage::UnlinkForgotten);
}

#[test]
fn it_finds_that_a_later_start_deletes_what_an_earlier_one_kept_for_damage() {
    let sabotage = Sabotage::DoubtForgotten;
    finds_in(Plan { sabotage: Some(sabotage), ..Plan::DAMAGED }, sabotage);
}
