//! Promise: `ringmain topic`, `publish` and `subscribe` do by hand what HTTP does: data on standard output, words on
//! standard error, and exit codes that a script can use.

use crate::broker::{Broker, Folder, Setup, program};
use crate::deadline::{wait_for, wait_until};
use crate::proxy::Proxy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) words: String,
}

impl Outcome {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// Runs a command to its end, its standard input given.
pub(crate) fn run_with(address: SocketAddr, arguments: &[&str], input: &[u8]) -> Outcome {
    let folder = Folder::new();
    let mut command = program(&folder, &["timeout", "--signal=KILL", "30"]);
    command.args(arguments).args(["--server", &format!("http://{address}")]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that needs no input may end without reading it.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome { code: output.status.code(), out: text(output.stdout), words: text(output.stderr) }
}

pub(crate) fn run(broker: &Broker, arguments: &[&str]) -> Outcome {
    run_with(broker.address(), arguments, b"")
}

/// A subscriber that runs on while the test looks at its lines.
pub(crate) struct Subscriber {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
    _folder: Folder,
}

impl Subscriber {
    pub(crate) fn start(address: SocketAddr, arguments: &[&str]) -> Self {
        let folder = Folder::new();
        let mut command = program(&folder, &[]);
        command.arg("subscribe").args(arguments).args(["--server", &format!("http://{address}")]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        Self { child, lines, _folder: folder }
    }

    pub(crate) fn line(&mut self) -> String {
        let (mut line, lines) = (String::new(), self.lines.as_mut().unwrap());
        wait_until("the subscriber prints a line", || {
            let mut out = [PollFd::new(lines.get_ref(), PollFlags::IN)];
            !lines.buffer().is_empty() || poll(&mut out, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        });
        assert!(lines.read_line(&mut line).unwrap() > 0, "the subscriber ended");
        line.trim_end_matches('\n').to_owned()
    }

    fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for("the subscriber ends", || self.child.try_wait().unwrap())
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn topics_are_made_listed_shown_and_deleted() {
    let broker = Broker::start();
    run(&broker, &["topic", "create", "by hand/ü"]).expect(0);
    run(&broker, &["topic", "create", "small", "--max-messages", "2"]).expect(0);
    broker.publish_numbers("small", 0..5);
    let listed = run(&broker, &["topic", "list"]).expect(0);
    assert_eq!(listed.out.lines().count(), 2, "one topic a line: {listed:?}");
    assert!(listed.out.contains("by hand/ü") && listed.words.is_empty(), "{listed:?}");
    let shown = run(&broker, &["topic", "show", "small", "--json"]).expect(0);
    let stats: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(
        (&stats["name"], &stats["message_count"], &stats["latest_offset"]),
        (&"small".into(), &2.into(), &4.into())
    );
    let listed = run(&broker, &["topic", "list", "--json"]).expect(0);
    let list: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 2);
    run(&broker, &["topic", "delete", "by hand/ü"]).expect(0);
    broker.get("/topics/by%20hand%2F%C3%BC").expect(404);
}

#[test]
fn partitions_are_made_shown_and_worked_off() {
    let broker = Broker::start();
    run(&broker, &["topic", "create", "t", "--partitions", "3"]).expect(0);
    for partition in [1, 2] {
        broker.publish_in("t", (partition, 3), 2);
    }
    let shown = run(&broker, &["topic", "show", "t"]).expect(0).out;
    assert!(shown.contains("3 partitions") && shown.contains("  partition 2\t2 messages\toffsets 0 to 1\n"), "{shown}");
    assert_eq!(run(&broker, &["topic", "list"]).expect(0).out.lines().count(), 1);
    let worked = run(&broker, &["subscribe", "t", "--group", "g", "--from", "0", "--count", "4"]).expect(0);
    assert_eq!(worked.out.lines().count(), 4, "{worked:?}");
    let group = run(&broker, &["group", "show", "t", "g"]).expect(0).out;
    assert!(group.contains("lag 0") && group.contains("  partition 1\tcommitted 2\t"), "{group}");
    let moved = run(&broker, &["group", "seek", "t", "g", "--offset", "1", "--partition", "2"]).expect(0).out;
    assert!(moved.contains("lag 1") && moved.contains("  partition 2\tcommitted 1\t"), "{moved}");
    let refused = run(&broker, &["group", "seek", "t", "g", "--offset", "1"]).expect(1);
    assert!(refused.words.contains("partition"), "{refused:?}");
}

#[test]
fn refusals_are_told_in_the_brokers_words() {
    let broker = Broker::start();
    broker.create_topic("there");
    let cases: [(&[&str], &str); 6] = [
        (&["topic", "create", "there"], "topic_exists"),
        (&["topic", "create", ".."], "invalid_name"),
        (&["topic", "show", "nothing"], "topic_not_found"),
        (&["topic", "delete", "nothing"], "topic_not_found"),
        (&["publish", "nothing", "x"], "topic_not_found"),
        (&["subscribe", "nothing"], "topic_not_found"),
    ];
    for (arguments, code) in cases {
        let outcome = run(&broker, arguments).expect(1);
        assert!(outcome.words.contains(code) && outcome.out.is_empty(), "{arguments:?}: {outcome:?}");
        assert!(!outcome.words.contains("panicked"), "{outcome:?}");
    }
}

#[test]
fn a_broker_that_is_not_there_is_named() {
    // A port that is kept, and on which nobody listens.
    let kept = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&kept, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(getsockname(&kept).unwrap()).unwrap();
    for arguments in [&["topic", "list"][..], &["publish", "t", "x"], &["subscribe", "t"]] {
        let outcome = run_with(address, arguments, b"").expect(1);
        assert!(outcome.words.contains(&address.to_string()), "{outcome:?}");
        assert!(outcome.words.contains("ringmain serve"), "what to do about it: {outcome:?}");
    }
}

#[test]
fn messages_are_published_from_the_line_or_from_standard_input() {
    let broker = Broker::start();
    broker.create_topic("t");
    assert_eq!(run(&broker, &["publish", "t", "from the line"]).expect(0).out, "0\n");
    let bytes: Vec<u8> = (0..=255).collect();
    let outcome =
        run_with(broker.address(), &["publish", "t", "--key", "k", "--header", "trace=a=b"], &bytes).expect(0);
    assert_eq!(outcome.out, "1\n");
    let outcome = run(&broker, &["publish", "t", "", "--json"]).expect(0);
    let told: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!((&told["offset"], &told["topic"]), (&2.into(), &"t".into()));
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    assert_eq!(stream.message().payload, b"from the line");
    let second = stream.message();
    assert_eq!(second.payload, bytes);
    assert_eq!((&second.value["key"], &second.value["headers"]["trace"]), (&"k".into(), &"a=b".into()));
    assert!(stream.message().payload.is_empty());
    let outcome = run(&broker, &["publish", "t", "x", "--header", "no value"]).expect(2);
    assert!(outcome.words.contains("no value"), "{outcome:?}");
}

#[test]
fn messages_are_printed_replayed_and_live() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..5);
    let outcome = run(&broker, &["subscribe", "t", "--from", "2", "--count", "3"]).expect(0);
    assert_eq!(outcome.out, "2\n3\n4\n");
    let outcome = run(&broker, &["subscribe", "t", "--from", "4", "--count", "1", "--json"]).expect(0);
    let message: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!((&message["offset"], &message["payload"]), (&4.into(), &"NA==".into()));

    // Those before may still be counted.
    broker.wait_for_subscribers("t", 0);
    let mut live = Subscriber::start(broker.address(), &["t"]);
    broker.wait_for_subscribers("t", 1);
    broker.publish_numbers("t", 5..8);
    assert_eq!([live.line(), live.line(), live.line()], ["5", "6", "7"]);
    broker.delete_topic("t");
    assert!(live.wait_for_exit().code().is_some(), "the end of the topic is the end of the command");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..3);
    let mut subscriber = Subscriber::start(broker.address(), &["t", "--from", "0"]);
    assert_eq!(subscriber.line(), "0");
    drop(subscriber.lines.take());
    wait_until("the closed pipe was noticed", || {
        broker.publish("t", b"more");
        subscriber.child.try_wait().unwrap().is_some()
    });
    assert_eq!(subscriber.wait_for_exit().code(), Some(0));
}

#[test]
fn a_subscriber_that_is_cut_resumes_where_it_was() {
    let broker = Setup::new().flag("--retry-ms", 100).start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..10);
    let proxy = Proxy::start(broker.address());
    let mut subscriber = Subscriber::start(proxy.address(), &["t", "--from", "0"]);
    for round in 0..4 {
        for number in round * 10..(round + 1) * 10 {
            assert_eq!(subscriber.line(), number.to_string());
        }
        assert_eq!(proxy.cut(), 1, "the connection was there");
        broker.publish_numbers("t", (round + 1) * 10..(round + 2) * 10);
    }
}
