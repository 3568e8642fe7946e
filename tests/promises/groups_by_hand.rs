//! Promise: `ringmain subscribe --group` works as a member of a group, and `ringmain group` lists, shows, moves and deletes
//! groups, as HTTP does.

use crate::broker::Broker;
use crate::subcommands::{Subscriber, run};
use serde_json::Value;

fn started(messages: u64) -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..messages);
    broker
}

#[test]
fn a_subscriber_of_a_group_takes_what_it_prints_and_no_more() {
    let broker = started(10);
    let outcome = run(&broker, &["subscribe", "t", "--group", "by hand/ü", "--from", "0", "--count", "4"]).expect(0);
    assert_eq!(outcome.out, "0\n1\n2\n3\n");
    let group = crate::http::path_segment("by hand/ü");
    let stats = broker.group("t", &group);
    assert!(stats["committed_offset"] == 4 && stats["pending"] == 0, "{stats}");
    // The place is the group's own from then on.
    let outcome =
        run(&broker, &["subscribe", "t", "--group", "by hand/ü", "--from", "0", "--count", "2", "--json"]).expect(0);
    let messages: Vec<Value> = outcome.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(messages.len() == 2 && messages[0]["offset"] == 4 && messages[1]["payload"] == "NQ==", "{messages:?}");
    broker.wait_for_group("t", &group, "committed_offset", 6);
}

#[test]
fn a_subscriber_of_a_group_waits_for_news() {
    let broker = started(1);
    let mut subscriber = Subscriber::start(broker.address(), &["t", "--group", "g", "--from", "0"]);
    assert_eq!(subscriber.line(), "0");
    broker.wait_for_group("t", "g", "committed_offset", 1);
    broker.publish_numbers("t", 1..4);
    assert_eq!([subscriber.line(), subscriber.line(), subscriber.line()], ["1", "2", "3"]);
    broker.wait_for_group("t", "g", "committed_offset", 4);
}

#[test]
fn groups_are_listed_shown_moved_and_deleted() {
    let broker = started(10);
    assert_eq!(run(&broker, &["group", "list", "t"]).expect(0).out, "");
    for group in ["b", "a"] {
        run(&broker, &["subscribe", "t", "--group", group, "--from", "0", "--count", "3"]).expect(0);
    }
    let listed = run(&broker, &["group", "list", "t"]).expect(0);
    let names: Vec<&str> = listed.out.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert!(names == ["a", "b"] && listed.words.is_empty(), "{listed:?}");
    let shown = run(&broker, &["group", "show", "t", "a", "--json"]).expect(0);
    let stats: Value = serde_json::from_str(&shown.out).unwrap();
    assert!(stats["name"] == "a" && stats["committed_offset"] == 3 && stats["lag"] == 7, "{stats}");
    for (target, committed) in [
        (&["--offset", "5"][..], 5),
        (&["--earliest"], 0),
        (&["--latest"], 10),
        (&["--time", "2001-01-01T00:00:00Z"], 0),
    ] {
        run(&broker, &[&["group", "seek", "t", "a"], target].concat()).expect(0);
        assert_eq!(broker.group("t", "a")["committed_offset"], committed, "{target:?}");
    }
    assert_eq!(broker.group("t", "b")["committed_offset"], 3, "the other group stays where it was");
    run(&broker, &["group", "delete", "t", "a"]).expect(0);
    broker.get("/topics/t/groups/a").expect(404);
}

#[test]
fn refusals_are_told_in_the_brokers_words() {
    let broker = started(0);
    let cases: [(&[&str], i32, &str); 6] = [
        (&["group", "list", "none"], 1, "topic_not_found"),
        (&["group", "show", "t", "none"], 1, "group_not_found"),
        (&["group", "delete", "t", "none"], 1, "group_not_found"),
        (&["group", "seek", "t", "none", "--latest"], 1, "group_not_found"),
        (&["subscribe", "none", "--group", "g"], 1, "topic_not_found"),
        (&["group", "seek", "t", "none"], 2, "--earliest"),
    ];
    for (arguments, code, word) in cases {
        let outcome = run(&broker, arguments).expect(code);
        assert!(outcome.words.contains(word) && outcome.out.is_empty(), "{arguments:?}: {outcome:?}");
    }
}
