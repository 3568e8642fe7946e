//! The commit log, its checkpoint slots and topic segments on a pretend disk: writing, opening, damage, and crashes everywhere.
#![allow(missing_docs, unreachable_pub, reason = "tests have no callers")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod cases;
mod chance;
mod damage;
mod disk;
mod golden;
mod simulation;
mod slots;
mod stage;
mod topics;
mod writing;
