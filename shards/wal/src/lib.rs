//! Storage as bytes and decisions: the record batch.
