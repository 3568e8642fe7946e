//! Bytes to events and back for each protocol, without sockets or clocks.
