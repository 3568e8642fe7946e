//! A kernel that refuses a ring is explained, here by a real seccomp filter, as a container has it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::thread;

use ringmain_uring::{Error, Ring, RingConfig};

use stage::small;

/// Lets io_uring_setup fail with this error number, for the calling thread and for ever.
#[allow(unsafe_code, reason = "there is no safe way to install a filter")]
fn forbid_rings(number: i32) {
    let statement = |code: u32, value: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: value };
    let mut equal = statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_io_uring_setup as u32);
    equal.jf = 1;
    let mut filter = [
        // The number of the system call is the first field of what the filter looks at.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        equal,
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | number as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and the filter it points at live until the calls return; the kernel
    // copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// A filter without TSYNC binds one thread only.
fn refused(number: i32) -> Error {
    thread::spawn(move || {
        forbid_rings(number);
        Ring::new(&small()).map(drop).unwrap_err()
    })
    .join()
    .unwrap()
}

#[test]
fn a_seccomp_filter_is_explained() {
    let error = refused(libc::EPERM);
    assert!(matches!(error, Error::Forbidden), "{error}");
    assert!(error.to_string().contains("--security-opt seccomp="));
    let error = refused(libc::ENOSYS);
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    assert!(error.to_string().contains("6.1"));
    Ring::new(&small()).unwrap();
}

#[test]
fn sizes_that_cannot_be_are_refused_before_the_kernel_is_asked() {
    let wrong = [
        RingConfig { submission_entries: 0, ..small() },
        RingConfig { completion_entries: 1, ..small() },
        RingConfig { buffer_count: 3, ..small() },
        RingConfig { buffer_bytes: 0, ..small() },
        RingConfig { sockets_max: 0, ..small() },
        RingConfig { sockets_max: u32::MAX, ..small() },
    ];
    for config in wrong {
        let error = Ring::new(&config).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{config:?}: {error}");
    }
}
