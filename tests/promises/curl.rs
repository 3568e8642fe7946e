//! Promise: curl, with no more than its usual flags, creates topics, publishes, pages and follows a stream: live, replayed
//! and resumed after it was cut.

use crate::broker::Broker;
use crate::deadline::wait_until;
use crate::events::message_of;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

fn url(broker: &Broker, path: &str) -> String {
    format!("http://{}{path}", broker.address())
}

/// Runs curl to its end; an answer that does not come in time is an error of curl.
fn curl(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "30", "--noproxy", "*"]).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // curl may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// The status and the body of an answer that curl got.
fn answer(arguments: &[&str], input: &[u8]) -> (u16, serde_json::Value) {
    let output = curl(&[&["--write-out", "\n%{http_code}"], arguments].concat(), input);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

/// A stream that curl reads. Dropping it cuts it.
struct Stream {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Stream {
    fn open(url: &str, headers: &[&str]) -> Self {
        let mut command = Command::new("curl");
        command.args(["--silent", "--no-buffer", "--max-time", "60", "--noproxy", "*", url]);
        headers.iter().for_each(|header| {
            command.args(["--header", header]);
        });
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next message: its offset and the id that stood before it.
    fn message(&mut self) -> (u64, String) {
        let mut id = String::new();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "curl's stream ended");
            let line = line.trim_end_matches('\n');
            if let Some(value) = line.strip_prefix("id: ").or_else(|| line.strip_prefix("id:")) {
                value.clone_into(&mut id);
            } else if let Some(data) = line.strip_prefix("data: ") {
                let event = crate::events::Event {
                    name: "message".to_owned(),
                    data: data.to_owned(),
                    data_lines: 1,
                    has_space: true,
                    last_id: id.clone(),
                };
                return (message_of(&event).offset, id);
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn topics_and_messages_by_hand() {
    let broker = Broker::start();
    let json = ["--header", "Content-Type: application/json", "--data", r#"{"name":"by hand"}"#];
    assert_eq!(answer(&[&json[..], &[&url(&broker, "/topics")]].concat(), b"").0, 201);
    let publish = url(&broker, "/topics/by%20hand/publish");
    // What curl sends by itself for --data is a form; the body is the payload all the same.
    let (status, told) = answer(&["--data-binary", "@-", &publish], b"hello\nworld");
    assert_eq!((status, &told["data"]["offset"]), (202, &0.into()));
    let (status, told) =
        answer(&["--header", "Content-Type: application/json", "--data", r#"{"payload":"aGk="}"#, &publish], b"");
    assert_eq!((status, &told["data"]["offset"]), (202, &1.into()));
    let (status, told) = answer(&[&url(&broker, "/topics/by%20hand/messages?from_offset=0")], b"");
    assert_eq!((status, &told["data"]["messages"][0]["payload"]), (200, &"aGVsbG8Kd29ybGQ=".into()));
    assert_eq!(answer(&["--request", "DELETE", &url(&broker, "/topics/by%20hand")], b"").0, 200);
    assert_eq!(answer(&[&url(&broker, "/topics/by%20hand")], b"").1["code"], "topic_not_found");
}

#[test]
fn a_body_of_unknown_length_is_streamed() {
    let broker = Broker::start();
    broker.create_topic("t");
    let publish = url(&broker, "/topics/t/publish");
    let input = vec![b'x'; 500_000];
    let (status, _) = answer(&["--request", "POST", "--upload-file", "-", &publish], &input);
    assert_eq!(status, 202, "curl -T - sends chunks and asks first");
    let (status, _) = answer(&["--http1.0", "--data-binary", "@-", &publish], &input);
    assert_eq!(status, 202, "a client of HTTP/1.0");
    let (status, told) = answer(&["--data-binary", "@-", &publish], &vec![b'x'; 3 << 20]);
    assert_eq!((status, &told["code"]), (413, &"payload_too_large".into()), "the refusal is read");
    let (status, told) = answer(&["--header", "Expect:", "--data-binary", "@-", &publish], &vec![b'x'; 20 << 20]);
    assert_eq!((status, &told["code"]), (413, &"payload_too_large".into()), "without asking first, too");
    assert_eq!(broker.stats("t")["message_count"], 2);
}

#[test]
fn a_stream_is_followed_live_replayed_and_resumed() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..5);
    let stream_url = url(&broker, "/topics/t/subscribe/sse");
    let mut live = Stream::open(&stream_url, &[]);
    broker.wait_for_subscribers("t", 1);
    let mut replay = Stream::open(&format!("{stream_url}?from_offset=2"), &[]);
    assert_eq!((replay.message().0, replay.message().0), (2, 3));
    let (offset, id) = replay.message();
    assert_eq!(offset, 4);
    drop(replay);
    broker.publish_numbers("t", 5..9);
    for expected in 5..9 {
        assert_eq!(live.message().0, expected);
    }
    let mut resumed = Stream::open(&format!("{stream_url}?from_offset=2"), &[&format!("Last-Event-ID: {id}")]);
    for expected in 5..9 {
        assert_eq!(resumed.message().0, expected);
    }
    drop((live, resumed));
    wait_until("curl is gone", || broker.stats("t")["subscriber_count"] == 0);
}

#[test]
fn heads_and_options_are_understood() {
    let broker = Broker::start();
    let output = curl(&["--head", "--write-out", "%{http_code}", &url(&broker, "/health")], b"");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("200"), "{output:?}");
    // Two addresses on one connection: the second would hang or fail if the first answer had no clear end.
    let health = url(&broker, "/health");
    let output = curl(&["--write-out", "%{num_connects}", &health, &health], b"");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with('0'), "the connection is kept: {output:?}");
}
