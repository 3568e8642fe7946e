//! The system's words about a process, read from examples and from this process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use super::{Process, kibibytes_of, running_ns_of_schedstat, ticks_of_stat};

#[test]
fn times_are_found_behind_a_name_with_parentheses_and_spaces() {
    let line = "4711 (a) b (c)) S 1 4711 4711 0 -1 4194560 100 0 0 0 250 75 3 4 20 0 1 0 12345 1000 200\n";
    assert_eq!(ticks_of_stat(line), Some(325));
}

#[test]
fn a_line_that_is_cut_short_has_no_times() {
    assert_eq!(ticks_of_stat("4711 (a) S 1 2 3"), None);
    assert_eq!(ticks_of_stat(""), None);
}

#[test]
fn the_first_number_of_schedstat_is_the_running_time() {
    assert_eq!(running_ns_of_schedstat("123456789 42 7\n"), Some(123_456_789));
    assert_eq!(running_ns_of_schedstat(""), None);
}

#[test]
fn memory_is_read_from_either_file() {
    assert_eq!(kibibytes_of("Name:\tx\nVmRSS:\t    5120 kB\n", "VmRSS:"), Some(5120));
    assert_eq!(kibibytes_of("55-7f [rollup]\nRss:                 884 kB\nPss: 1 kB\n", "Rss:"), Some(884));
    assert_eq!(kibibytes_of("Pss: 1 kB\n", "Rss:"), None);
}

#[test]
fn this_process_can_be_looked_at() {
    let process = Process::own();
    assert!(process.resident_bytes().unwrap() > 0);
    // Other tests are threads of this process that come and go, so two looks cannot be compared.
    process.cpu_ns().unwrap();
}

#[test]
fn a_process_that_does_not_exist_is_named() {
    let failure = Process::new(u32::MAX).cpu_ns().unwrap_err();
    assert!(failure.to_string().contains("4294967295"), "{failure}");
}
