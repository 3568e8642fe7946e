//! Promise: `ringmain publish --batch` publishes each line of standard input, many with one request, says how many, and after
//! a failure from which line on nothing was stored.

use crate::broker::{Folder, Setup, program};
use crate::subcommands::{run, run_with};
use serde_json::Value;
use std::fs;

#[test]
fn lines_are_published_in_batches() {
    let broker = Setup::new().flag("--retention", 100_000).start();
    broker.create_topic("t");
    let input: String = (0..2500).map(|number| format!("{number}\n")).collect();
    let outcome = run_with(broker.address(), &["publish", "t", "--batch"], input.as_bytes()).expect(0);
    assert_eq!(outcome.out, "published 2500 messages in 3 batches, offsets 0 to 2499\n");
    assert!(outcome.words.is_empty(), "no progress where nobody looks: {outcome:?}");
    let outcome = run_with(broker.address(), &["publish", "t", "--batch", "2", "--json"], b"a\r\n\nb\xff").expect(0);
    let told: Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!(told, serde_json::json!({ "count": 3, "batches": 2, "first_offset": 2500, "last_offset": 2502 }));
    let large = "x".repeat(600_000);
    let input = format!("{large}\n{large}\nsmall\n");
    let arguments = ["publish", "t", "--batch", "--key", "k", "--header", "Kind=line"];
    let outcome = run_with(broker.address(), &arguments, input.as_bytes()).expect(0);
    assert!(outcome.out.starts_with("published 3 messages in 2 batches"), "{outcome:?}");
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    (0..2500).for_each(|number: u32| assert_eq!(stream.message().payload, number.to_string().as_bytes()));
    [&b"a\r"[..], b"", b"b\xff"].iter().for_each(|line| assert_eq!(stream.message().payload, *line));
    for line in [&large, &large, "small"] {
        let message = stream.message();
        assert!(message.payload == line.as_bytes());
        assert_eq!((&message.value["key"], &message.value["headers"]["kind"]), (&"k".into(), &"line".into()));
    }
    assert!(run(&broker, &["publish", "t", "--batch"]).expect(0).out.starts_with("published 0 messages"));
    run(&broker, &["publish", "t", "x", "--batch"]).expect(2);
    run(&broker, &["publish", "t", "--batch", "0"]).expect(2);
}

#[test]
fn a_person_who_waits_is_told_how_far_it_is() {
    let broker = Setup::new().start();
    broker.create_topic("t");
    let folder = Folder::new();
    fs::write(folder.path().join("lines"), "x\n".repeat(250)).unwrap();
    let publish = "publish t --batch 100 --server \"$SERVER\" <lines >out";
    // `script` gives the command a terminal, and tells what was written to it.
    let script = r#"export COMMAND="'$0' $1"; exec script --quiet --return --command 'eval "$COMMAND"' /dev/null"#;
    let mut command = program(&folder, &["sh", "-c", script]);
    let output = command.arg(publish).env("SERVER", format!("http://{}", broker.address())).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(told, "\r100 messages\r200 messages\r250 messages\r\n", "each in the place of the one before");
    let out = fs::read_to_string(folder.path().join("out")).unwrap();
    assert_eq!(out, "published 250 messages in 3 batches, offsets 0 to 249\n", "data goes to standard output alone");
}

#[test]
fn a_busy_log_is_waited_for() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    let broker = Setup::new().variable("STORAGE_MODE", "wal").variable("WAL_DIR", data.display()).start();
    broker.create_topic("t");
    // More than a log that has just begun has room for, sent faster than it makes room.
    let input = format!("{}\n", "x".repeat(999)).repeat(64_000);
    let outcome = run_with(broker.address(), &["publish", "t", "--batch"], input.as_bytes()).expect(0);
    assert_eq!(outcome.out, "published 64000 messages in 64 batches, offsets 0 to 63999\n");
}

#[test]
fn a_failure_says_from_which_line_on_nothing_was_stored() {
    let broker = Setup::new().flag("--max-message-bytes", 100).start();
    broker.create_topic("t");
    let input = format!("{}{}\nlast\n", "short\n".repeat(7), "x".repeat(101));
    let outcome = run_with(broker.address(), &["publish", "t", "--batch", "3"], input.as_bytes()).expect(1);
    assert!(outcome.words.contains("payload_too_large") && outcome.words.contains("from line 7 on"), "{outcome:?}");
    assert!(outcome.out.is_empty(), "{outcome:?}");
    assert_eq!(broker.stats("t")["message_count"], 6);
    let outcome = run_with(broker.address(), &["publish", "nothing", "--batch"], b"x\n").expect(1);
    assert!(outcome.words.contains("topic_not_found") && outcome.words.contains("from line 1 on"), "{outcome:?}");
}
