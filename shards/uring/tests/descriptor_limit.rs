//! At the limit of descriptors accepting ends with the reason, does not spin, and can be resumed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::process::Command;
use std::time::Duration;

use ringmain_uring::{Error, Ring};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use stage::{Seen, Stage, connect, listener, small};

/// The limit is one of the whole process, so each test runs in a process of its own.
fn alone(test: &str) -> bool {
    if std::env::var("RINGMAIN_ALONE").is_ok_and(|name| name == test) {
        return true;
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("RINGMAIN_ALONE", test)
        .status()
        .unwrap();
    assert!(status.success());
    false
}

/// Leaves exactly this many descriptors to be opened.
fn leave_descriptors(count: usize) {
    let listed: Vec<u64> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse())
        .map(Result::unwrap)
        .collect();
    // The descriptor that read the directory is in the list and closed by now.
    let taken: Vec<u64> =
        listed.into_iter().filter(|number| std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok()).collect();
    let limit = (0..).filter(|number| !taken.contains(number)).nth(count).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: Some(limit), maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Accepts until the listener gives up; gives the number accepted and the reason.
fn accept_all(stage: &mut Stage) -> (usize, i32) {
    let number = stage.until("accept ended", |seen| match seen {
        Seen::AcceptEnded(_, error) => error.raw_os_error(),
        _ => None,
    });
    // It must not be told again, however long the loop turns.
    for _ in 0..20 {
        stage.turn(Duration::from_millis(2));
    }
    let accepted = stage.seen.len();
    let sockets = stage.seen.iter().all(|seen| matches!(seen, Seen::Accepted(_)));
    assert!(sockets, "{:?}", stage.seen);
    (accepted, number)
}

#[test]
fn accepting_ends_with_the_reason_and_resumes() {
    if !alone("accepting_ends_with_the_reason_and_resumes") {
        return;
    }
    let (listener, address) = listener();
    let _peers: Vec<_> = (0..8).map(|_| connect(address)).collect();
    let mut ring = Ring::new(&small()).unwrap();
    leave_descriptors(3);
    let mut stage = Stage { listener: ring.listen(listener).unwrap(), ring, address, seen: Default::default() };
    assert_eq!(accept_all(&mut stage), (3, libc::EMFILE));

    let Some(Seen::Accepted(first)) = stage.seen.pop_front() else {
        panic!("{:?}", stage.seen);
    };
    stage.ring.close(first);
    stage.closed(first);
    stage.ring.resume_accept(stage.listener);
    assert_eq!(accept_all(&mut stage), (3, libc::EMFILE));

    ringmain_uring::descriptors::raise_limit().unwrap();
    stage.ring.resume_accept(stage.listener);
    while stage.seen.len() < 7 {
        stage.turn(stage::PATIENCE);
    }
    assert!(stage.seen.iter().all(|seen| matches!(seen, Seen::Accepted(_))));
}

#[test]
fn a_ring_without_a_descriptor_says_so() {
    if !alone("a_ring_without_a_descriptor_says_so") {
        return;
    }
    leave_descriptors(0);
    let error = Ring::new(&small()).unwrap_err();
    ringmain_uring::descriptors::raise_limit().unwrap();
    assert!(matches!(error, Error::Descriptors), "{error}");
    assert!(error.to_string().contains("ulimit -n"));
}
