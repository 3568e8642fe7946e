//! Settings keep their order of precedence and their ranges; runs on the test thread.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use ringmain_driver::SyncChoice;
use ringmain_model::Storage;

use super::*;

fn resolve(flags: &ServeFlags, variables: &[(&str, &str)]) -> Result<ServeSettings, ConfigError> {
    let environment =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Sources { environment: &environment, file: None, known: RefCell::default() }.resolve(flags)
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_default() {
    let flags = ServeFlags { port: Some("7000".to_owned()), ..ServeFlags::default() };
    let variables = [("SERVER_PORT", "7001"), ("MAX_MESSAGE_RETENTION", "7")];
    let settings = resolve(&flags, &variables).unwrap();
    assert_eq!((settings.driver.address.port(), settings.front.retention_messages), (7000, 7));
    assert_eq!(settings.front.message_bytes_max, 1 << 20);
    assert!(settings.driver.cores >= 1 && settings.driver.shards == settings.driver.cores);
}

#[test]
fn a_bad_value_is_told_with_its_name_and_the_cure() {
    for (variable, value) in [
        ("SERVER_PORT", "65536"),
        ("SERVER_PORT", "http"),
        ("RINGMAIN_BIND", "example.org"),
        ("RINGMAIN_SHARDS", "0"),
        ("MAX_MESSAGE_RETENTION", "-1"),
        ("LOG_LEVEL", "loud"),
        ("STORAGE_MODE", "disk"),
        ("WAL_SEGMENT_SIZE", "1048575"),
        ("WAL_SEGMENT_SIZE", "1073741825"),
        ("WAL_MAX_SEGMENTS", "0"),
        ("WAL_MAX_SEGMENTS", "65537"),
        ("RINGMAIN_SYNC", "fsync"),
        ("RINGMAIN_DIRECT_IO", "maybe"),
        ("RINGMAIN_CORS_ORIGINS", "example.org"),
        ("RINGMAIN_HEARTBEAT_MS", "0"),
    ] {
        let error = resolve(&ServeFlags::default(), &[(variable, value)]).unwrap_err();
        assert_eq!((error.key.as_str(), error.value.as_str()), (variable, value));
        assert!(!error.fix.is_empty());
    }
}

#[test]
fn a_broker_on_loopback_is_guarded_and_an_open_one_is_not() {
    assert!(resolve(&ServeFlags::default(), &[]).unwrap().front.origins.guarded);
    assert!(!resolve(&ServeFlags::default(), &[("RINGMAIN_BIND", "0.0.0.0")]).unwrap().front.origins.guarded);
}

#[test]
fn a_data_directory_is_opened_when_topics_are_logged_or_one_is_named() {
    let storage = |variables: &[(&str, &str)]| {
        let settings = resolve(&ServeFlags::default(), variables).unwrap();
        assert_eq!(settings.front.has_directory, settings.driver.storage.is_some());
        (settings.front.storage, settings.driver.storage)
    };
    assert_eq!(storage(&[]), (Storage::Memory, None));
    assert_eq!(storage(&[("STORAGE_MODE", "memory"), ("WAL_MAX_SEGMENTS", "3")]), (Storage::Memory, None));
    let (default, config) = storage(&[("STORAGE_MODE", "wal")]);
    let wanted = StorageConfig {
        directory: "./data".into(),
        shards_given: false,
        topic_segment_bytes: 64 << 20,
        message_bytes_max: 1 << 20,
        topic_segments_max: 10,
        direct: true,
        sync: None,
    };
    assert_eq!((default, config), (Storage::Wal, Some(wanted)));
    let variables = [
        ("WAL_DIR", "/var/lib/ringmain"),
        ("RINGMAIN_SHARDS", "4"),
        ("WAL_SEGMENT_SIZE", "1048576"),
        ("WAL_MAX_SEGMENTS", "65536"),
        ("RINGMAIN_SYNC", "fdatasync"),
        ("RINGMAIN_DIRECT_IO", "false"),
    ];
    let chosen = StorageConfig {
        directory: "/var/lib/ringmain".into(),
        shards_given: true,
        topic_segment_bytes: 1 << 20,
        message_bytes_max: 1 << 20,
        topic_segments_max: 65_536,
        direct: false,
        sync: Some(SyncChoice::WriteThenSync),
    };
    assert_eq!(storage(&variables), (Storage::Memory, Some(chosen)));
}

#[test]
fn a_message_that_no_log_could_hold_is_not_allowed_where_there_is_one() {
    let large = ("RINGMAIN_MAX_MESSAGE_BYTES", "33554433");
    assert_eq!(resolve(&ServeFlags::default(), &[large]).unwrap().front.message_bytes_max, 33_554_433);
    let error = resolve(&ServeFlags::default(), &[large, ("STORAGE_MODE", "wal")]).unwrap_err();
    assert_eq!((error.key.as_str(), error.value.as_str()), large);
    let fits = ("RINGMAIN_MAX_MESSAGE_BYTES", "33554432");
    assert!(resolve(&ServeFlags::default(), &[fits, ("STORAGE_MODE", "wal")]).is_ok());
}
