//! A data directory and its files, on a real disk with a real ring; on the test thread.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests fail by panicking")]

mod directory;
mod names;
mod performing;
mod stage;
mod syncing;
mod waiting;
