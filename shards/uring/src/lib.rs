//! The kernel: one io_uring per core, sockets, wake-ups, processor placement.
