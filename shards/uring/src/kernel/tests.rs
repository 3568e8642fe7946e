//! Each way in which the kernel refuses a ring is explained with the command that helps.

use std::io;

use super::{Facts, explain, version};
use crate::error::Error;

fn facts() -> Facts {
    Facts { disabled: Some(0), release: "6.1.0-13-amd64".to_owned(), locked_bytes_max: Some(65_536), root: false }
}

fn why(number: i32, facts: &Facts) -> Error {
    explain(io::Error::from_raw_os_error(number), "io_uring_setup", facts)
}

#[test]
fn a_sysctl_is_named_with_its_value() {
    for value in [1, 2] {
        let error = why(libc::EPERM, &Facts { disabled: Some(value), ..facts() });
        let text = error.to_string();
        assert!(matches!(error, Error::Disabled { .. }));
        assert!(text.contains(&format!("kernel.io_uring_disabled is {value}")));
        assert!(text.contains("`sysctl -w kernel.io_uring_disabled=0`"));
        assert_eq!(text.contains("kernel.io_uring_group"), value == 1);
    }
}

#[test]
fn without_a_sysctl_in_the_way_it_is_seccomp() {
    for (disabled, root) in [(None, false), (Some(0), false), (Some(1), true)] {
        let error = why(libc::EPERM, &Facts { disabled, root, ..facts() });
        assert!(matches!(error, Error::Forbidden), "{disabled:?}");
        assert!(error.to_string().contains("--security-opt seccomp="));
    }
}

#[test]
fn an_old_kernel_is_named_with_the_needed_one() {
    let error = why(libc::EINVAL, &Facts { release: "5.15.0-91-generic".to_owned(), ..facts() });
    let text = error.to_string();
    assert!(matches!(error, Error::TooOld { .. }));
    assert!(text.contains("5.15.0-91-generic") && text.contains("6.1"));
    assert!(matches!(why(libc::EINVAL, &facts()), Error::System { .. }));
}

#[test]
fn a_kernel_without_it_is_named() {
    let text = why(libc::ENOSYS, &facts()).to_string();
    assert!(text.contains("6.1.0-13-amd64") && text.contains("CONFIG_IO_URING"));
}

#[test]
fn the_limit_of_locked_memory_is_named() {
    let text = why(libc::ENOMEM, &facts()).to_string();
    assert!(text.contains("65536 bytes") && text.contains("`ulimit -l unlimited`"));
    let unlimited = Facts { locked_bytes_max: None, ..facts() };
    assert!(why(libc::ENOMEM, &unlimited).to_string().contains("short of memory"));
}

#[test]
fn the_limit_of_descriptors_is_named() {
    let text = why(libc::EMFILE, &facts()).to_string();
    assert!(text.contains("`ulimit -n`"));
}

#[test]
fn release_names_of_all_sorts_are_read() {
    assert_eq!(version("6.1.0-13-amd64"), Some((6, 1)));
    assert_eq!(version("5.15"), Some((5, 15)));
    assert_eq!(version("6.18.44+"), Some((6, 18)));
    assert_eq!(version("next"), None);
}
