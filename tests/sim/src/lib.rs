//! A second driver: it carries out a shard's effects on a pretend disk and clock, so that the code that can lose data is driven
//! from a seed. No threads of its own, no files, no clock: one seed is one run, always the same.
//!
//! A [`World`] lives several processes' lives with one [`Disk`]: random commands, operations that complete in any order, fail or
//! find no room, then a crash of the process or of the power, and a start from what is left. A [`model::Model`] knows what clients
//! were told and checks every answer, page, push and start against it.
//!
//! What is checked, in short: what was answered or visible is there with its bytes after a crash; what was refused or lost is never
//! seen; offsets are dense; nothing is there twice; topics and groups that were made stay, and those that were deleted stay away;
//! acknowledged messages are not given out again and progress is never ahead; a poisoned shard reads and refuses to write; in the
//! end, on a good disk, everything is answered, everything admitted is durable, and every topic takes messages again.
//!
//! Runs of [`Plan::DAMAGED`] end with damage to one shard's files, and what is checked then is weaker: no panic, no changed or moved record,
//! nothing missing that is not told of, all that damage cannot have touched is served, and no start deletes what an earlier one kept.
//!
//! `cargo test -p ringmain-sim` runs the seeds of every build. For long runs by hand:
//!
//! ```text
//! SIMULATION_SEEDS=100000 cargo test -p ringmain-sim --release --test long as_many -- --ignored --nocapture
//! SIMULATION_SEEDS=3000 cargo test -p ringmain-sim --test long kinds -- --ignored --nocapture
//! SIMULATION_FIRST=4711 SIMULATION_SEEDS=1 SIMULATION_LINES=100000 cargo test -p ringmain-sim --test simulation nothing
//! ```
//!
//! `SIMULATION_FIRST` is the first seed, `SIMULATION_SEEDS` their number, `SIMULATION_LINES` how many of a failed run's last lines
//! are shown. The second line does not stop at the first failed run and sums up the kinds of faults.
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes of a simulation are small, and a test may fail by a wrong one"
)]

mod chance;
mod disk;
pub mod model;
mod plain;
mod run;
mod sabotage;
mod trace;
mod world;

pub use chance::Chance;
pub use disk::{Disk, SECTOR_BYTES};
pub use plain::{NotOpened, Plain};
pub use run::{Failed, first_failure, run_all, run_one, setting};
pub use sabotage::Sabotage;
pub use trace::Trace;
pub use world::{Plan, Sums, World};
