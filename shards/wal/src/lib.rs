//! Storage as bytes and decisions, without files: for now the record batch. Pure, for any core.
//!
//! `FORMAT.md` beside this crate draws every byte; golden files under `tests/data/` hold every version to it.

mod batch;
mod builder;
mod record;

#[cfg(test)]
mod tests;

pub use batch::{Damage, HEADER_BYTES, RecordBatch, RecordsFrom};
pub use builder::{BatchBuilder, BatchSpace};
pub use record::{Record, RecordHeaders};
