//! The style checker.
