//! WebSocket handshakes and frames: what is taken, what is refused, and that no cut of the bytes changes it; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod bytes;
mod faults;
mod fragments;
mod handshake;
mod interop;
mod limits;
mod split;
mod stream;
