//! What can go wrong with a ring, said so that an operator knows what to do. Lives on any core.

use std::io;

/// Why a ring could not be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The administrator has switched io_uring off.
    #[error(
        "io_uring is switched off here: kernel.io_uring_disabled is {value}{}; allow it with `sysctl -w kernel.io_uring_disabled=0`",
        if *.value == 1 { " (only root and members of kernel.io_uring_group may use it)" } else { "" }
    )]
    Disabled {
        /// The setting: 1 for unprivileged processes, 2 for all.
        value: u32,
    },
    /// Something between the process and the kernel forbids io_uring.
    #[error(
        "io_uring is forbidden to this process, most likely by the container's seccomp profile: \
         run the container with a profile that allows io_uring_setup, io_uring_enter and io_uring_register, \
         or with `--security-opt seccomp=unconfined`"
    )]
    Forbidden,
    /// The kernel does not know io_uring, or pretends not to.
    #[error(
        "this kernel ({release}) offers no io_uring: Linux 6.1 or newer is needed, built with CONFIG_IO_URING; \
         in a container the seccomp profile may hide it: `--security-opt seccomp=unconfined`"
    )]
    Missing {
        /// As `uname -r` tells it.
        release: String,
    },
    /// The kernel knows io_uring, but not all that is needed of it.
    #[error("this kernel ({release}) is too old: Linux 6.1 or newer is needed")]
    TooOld {
        /// As `uname -r` tells it.
        release: String,
    },
    /// The ring's memory cannot be had.
    #[error(
        "no memory for io_uring: the limit of locked memory is {}; raise it with `ulimit -l unlimited` \
         or `LimitMEMLOCK=infinity`, or make the rings smaller",
        match .locked_bytes_max { Some(bytes) => format!("{bytes} bytes"), None => "none, so the machine is short of memory".to_owned() }
    )]
    Memory {
        /// RLIMIT_MEMLOCK in bytes; none when there is no limit.
        locked_bytes_max: Option<u64>,
    },
    /// No descriptor is left for the ring.
    #[error("no descriptor is left for io_uring: raise the limit with `ulimit -n`")]
    Descriptors,
    /// Sizes that cannot be.
    #[error("these sizes cannot be: {reason}")]
    Config {
        /// What is wrong with them.
        reason: &'static str,
    },
    /// The table is full.
    #[error("the ring has no room for more {what}")]
    Full {
        /// Of what.
        what: &'static str,
    },
    /// The kernel ran out of memory and dropped completions, so nothing is known any more.
    #[error("the kernel has lost completions of io_uring for lack of memory")]
    CompletionsLost,
    /// Any other failure of a system call.
    #[error("{what} failed: {source}")]
    System {
        /// The system call.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}
