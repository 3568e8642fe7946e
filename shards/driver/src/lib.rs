//! One core's loop: lanes, placement table, windows, connections.
