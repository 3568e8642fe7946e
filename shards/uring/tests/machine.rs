//! What the machine tells about itself: processors, descriptors, memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use std::thread;

use ringmain_uring::{descriptors, memory, processor};

#[test]
fn a_thread_can_be_kept_on_each_allowed_processor() {
    let allowed = processor::allowed();
    assert!(!allowed.is_empty());
    assert!(allowed.is_sorted());
    for cpu in allowed {
        thread::spawn(move || {
            processor::pin(cpu).unwrap();
            assert_eq!(processor::allowed(), [cpu]);
        })
        .join()
        .unwrap();
    }
    assert!(processor::pin(usize::MAX).is_err());
}

#[test]
fn the_limit_of_descriptors_is_raised_once() {
    let limit = descriptors::raise_limit().unwrap();
    assert!(limit > 0);
    assert_eq!(descriptors::raise_limit().unwrap(), limit);
}

#[test]
fn resident_memory_is_at_least_what_the_test_holds() {
    let held = vec![1_u8; 4 << 20];
    let resident = memory::resident_bytes().unwrap();
    assert!(resident >= held.iter().map(|byte| u64::from(*byte)).sum());
}
