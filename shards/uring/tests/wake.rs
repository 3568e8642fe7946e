//! A wake from another thread is never lost.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use ringmain_uring::{Event, Ring};

use stage::{PATIENCE, small};

/// Turns until somebody has woken the ring; a lost wake is a wait that ends without one.
fn sleep_until_woken(ring: &mut Ring) {
    let deadline = Instant::now() + PATIENCE;
    let mut woken = false;
    while !woken {
        assert!(Instant::now() < deadline, "a wake was lost");
        ring.turn(Some(PATIENCE)).unwrap();
        while let Some(event) = ring.next_event() {
            woken |= matches!(event, Event::Woken);
        }
    }
}

#[test]
fn each_of_many_wakes_arrives() {
    const WAKES: u64 = 20_000;
    let mut ring = Ring::new(&small()).unwrap();
    let waker = ring.waker();
    let asked = Arc::new(AtomicU64::new(0));
    let answered = Arc::new(AtomicU64::new(0));
    let thread = {
        let (asked, answered) = (Arc::clone(&asked), Arc::clone(&answered));
        thread::spawn(move || {
            for round in 1..=WAKES {
                // In some rounds the ring has fallen asleep by now, in others it has not.
                for _ in 0..round % 40 {
                    thread::yield_now();
                }
                asked.store(round, Ordering::SeqCst);
                waker.wake();
                let deadline = Instant::now() + PATIENCE;
                while answered.load(Ordering::SeqCst) < round {
                    assert!(Instant::now() < deadline, "no answer to {round}");
                    thread::yield_now();
                }
            }
        })
    };
    while answered.load(Ordering::SeqCst) < WAKES {
        sleep_until_woken(&mut ring);
        answered.store(asked.load(Ordering::SeqCst), Ordering::SeqCst);
    }
    thread.join().unwrap();
}

#[test]
fn what_was_written_before_a_wake_is_seen_after_it() {
    const THREADS: u64 = 4;
    const WAKES: u64 = 10_000;
    let mut ring = Ring::new(&small()).unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (waker, written) = (ring.waker(), Arc::clone(&written));
            thread::spawn(move || {
                for _ in 0..WAKES {
                    written.fetch_add(1, Ordering::SeqCst);
                    waker.wake();
                }
            })
        })
        .collect();
    // The loop sleeps whenever it has seen all, and each sleep must be ended by a later wake.
    while written.load(Ordering::SeqCst) < THREADS * WAKES {
        sleep_until_woken(&mut ring);
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_wake_before_the_first_turn_counts() {
    let mut ring = Ring::new(&small()).unwrap();
    ring.waker().wake();
    sleep_until_woken(&mut ring);
}
