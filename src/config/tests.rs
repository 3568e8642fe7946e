//! Settings keep their order of precedence and their ranges; runs on the test thread.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

fn resolve(flags: &ServeFlags, variables: &[(&str, &str)]) -> Result<ServeSettings, ConfigError> {
    let environment =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Sources { environment: &environment }.resolve(flags)
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
        ("STORAGE_MODE", "wal"),
        ("STORAGE_MODE", "disk"),
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
