//! Promise: `ringmain subscribe a b` prints the messages of all its topics, each with its topic, and resumes in each of them.

use crate::broker::{Broker, Folder, program};
use crate::proxy::Proxy;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Output, Stdio};

fn run(broker: &Broker, arguments: &[&str]) -> Output {
    let mut command = program(&Folder::new(), &[]);
    command.current_dir(std::env::temp_dir());
    command.arg("subscribe").args(arguments).args(["--server", &format!("http://{}", broker.address())]);
    command.output().unwrap()
}

#[test]
fn each_message_is_printed_with_its_topic() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b & c"]);
    broker.publish_numbers("a", 0..2);
    broker.publish_numbers("b & c", 0..2);
    let outcome = run(&broker, &["a", "b & c", "--from", "0", "--count", "4"]);
    let text = String::from_utf8(outcome.stdout).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a\t0", "a\t1", "b & c\t0", "b & c\t1"]);
    let outcome = run(&broker, &["a", "b & c", "--from", "1", "--count", "2", "--json"]);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert!(text.lines().all(|line| line.contains(r#""topic":""#)), "{text}");
    // One topic is printed as it ever was.
    assert_eq!(run(&broker, &["a", "--from", "1", "--count", "1"]).stdout, b"1\n");
}

#[test]
fn what_cannot_be_read_is_refused() {
    let broker = Broker::start();
    broker.create_topic("a");
    let outcome = run(&broker, &["a", "missing"]);
    assert!(!outcome.status.success());
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("missing"), "{outcome:?}");
    let outcome = run(&broker, &["a", "b", "--group", "g"]);
    assert!(!outcome.status.success());
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("--group"), "{outcome:?}");
    assert!(!run(&broker, &[]).status.success());
}

#[test]
fn one_that_is_cut_resumes_in_every_topic() {
    let broker = crate::broker::Setup::new().flag("--retry-ms", 20).start();
    let proxy = Proxy::start(broker.address());
    broker.create_topics(&["a", "b"]);
    let mut command = program(&Folder::new(), &[]);
    command.current_dir(std::env::temp_dir());
    command.args(["subscribe", "a", "b", "--from", "0", "--server", &format!("http://{}", proxy.address())]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next: HashMap<String, u64> = HashMap::new();
    for round in 0..4 {
        for topic in ["a", "b"] {
            broker.publish_numbers(topic, round * 5..round * 5 + 5);
        }
        for _ in 0..10 {
            let line = lines.next().unwrap().unwrap();
            let (topic, number) = line.split_once('\t').unwrap();
            let next = next.entry(topic.to_owned()).or_default();
            assert_eq!(number, next.to_string(), "{topic}");
            *next += 1;
        }
        proxy.cut();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
