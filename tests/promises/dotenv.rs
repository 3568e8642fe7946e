//! Promise: settings come from flags, then the environment, then a file `.env` in the working directory, then defaults.

use crate::broker::{Broker, Setup};

/// How many messages of ten the broker keeps: its retention, seen from outside.
fn kept(broker: &Broker) -> u64 {
    broker.create_topic("t");
    broker.publish_numbers("t", 0..10);
    broker.stats("t")["message_count"].as_u64().unwrap()
}

const FILE: &str =
    "# settings of this folder\nMAX_MESSAGE_RETENTION=3\nexport LOG_LEVEL=\"debug\"\n\nUNKNOWN_TO_US=1\n";

#[test]
fn the_file_is_read() {
    assert_eq!(kept(&Setup::new().settings_file(FILE).start()), 3);
}

#[test]
fn the_environment_wins_over_the_file() {
    let setup = Setup::new().settings_file(FILE).variable("MAX_MESSAGE_RETENTION", 5);
    assert_eq!(kept(&setup.start()), 5);
}

#[test]
fn an_empty_variable_hides_nothing() {
    let setup = Setup::new().settings_file(FILE).variable("MAX_MESSAGE_RETENTION", "");
    assert_eq!(kept(&setup.start()), 3);
}

#[test]
fn a_flag_wins_over_both() {
    let setup = Setup::new().settings_file(FILE).variable("MAX_MESSAGE_RETENTION", 5).flag("--retention", 7);
    assert_eq!(kept(&setup.start()), 7);
}

#[test]
fn without_any_of_them_the_default_counts() {
    assert_eq!(kept(&Broker::start()), 10);
}
