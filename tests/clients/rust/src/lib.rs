//! streamq's published Rust client against the real broker: this is what its tests start and cut. On no core of the broker.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use streamq::{Consumer, ConsumerOptions, Message, Protocol, StreamqClient};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::AbortHandle;
use tokio::time::timeout;

mod deadline;

pub use deadline::{LIMIT, wait_until};

/// A running broker, killed with the value.
pub struct Broker {
    child: Child,
    folder: PathBuf,
    port: u16,
    flags: &'static [&'static str],
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Broker {
    /// Starts the broker that `RINGMAIN_BINARY` names, by default the one built in the repository, on a free port.
    pub async fn start() -> Self {
        Self::start_with(0, &[]).await
    }

    /// Starts one that keeps its topics on the disk, on a port that stays free while it is down.
    pub async fn start_logged() -> Self {
        Self::start_with(lasting_port(), &["--storage", "wal"]).await
    }

    async fn start_with(port: u16, flags: &'static [&'static str]) -> Self {
        let folder = std::env::temp_dir().join(format!("ringmain-rust-{}-{}", std::process::id(), number()));
        std::fs::create_dir_all(&folder).unwrap();
        let (child, port) = spawn(&folder, port, flags).await;
        Self { child, folder, port, flags }
    }

    /// What a lost process and its supervisor do: SIGKILL, and the same command again.
    pub async fn kill_and_restart(&mut self) {
        self.child.kill().await.unwrap();
        (self.child, self.port) = spawn(&self.folder, self.port, self.flags).await;
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn client(&self) -> StreamqClient {
        StreamqClient::new(self.url()).unwrap()
    }

    /// How a group stands, which streamq's client does not ask.
    pub async fn group(&self, topic: &str, group: &str) -> Value {
        self.request("GET", &format!("/topics/{topic}/groups/{group}"), "").await
    }

    /// Waits until the progress of a group, for which nobody asked an answer, would survive a kill: an answered acknowledgement
    /// comes after it in the log.
    pub async fn wait_for_stored(&self, topic: &str, group: &str) {
        self.request("POST", &format!("/topics/{topic}/groups/{group}/ack"), r#"{"offsets":[0]}"#).await;
    }

    /// The data of a request that must succeed.
    async fn request(&self, method: &str, target: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let value: Value = serde_json::from_str(body).unwrap();
        assert_eq!(value["status"], "success", "{method} {target}: {value}");
        value["data"].clone()
    }

    /// Waits until a number of a group's stats is `wanted`.
    pub async fn wait_for_group(&self, topic: &str, group: &str, name: &str, wanted: u64) {
        let what = format!("{name} of {group} is {wanted}");
        wait_until(&what, async || self.group(topic, group).await[name] == wanted).await;
    }

    pub async fn wait_for_subscribers(&self, topic: &str, count: i64) {
        let client = self.client();
        let are_there = async || client.get_topic(topic).await.unwrap().subscriber_count == count;
        wait_until(&format!("{count} subscribers are there"), are_there).await;
    }
}

/// Starts the program in a folder; gives the port once it listens.
async fn spawn(folder: &Path, port: u16, flags: &[&str]) -> (Child, u16) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let binary = std::env::var("RINGMAIN_BINARY").unwrap_or_else(|_| "target/debug/ringmain".to_owned());
    let mut child = Command::new(root.join(binary).canonicalize().expect("build the broker first"))
        .args(["serve", "--port", &port.to_string(), "--log-format", "json", "--heartbeat-ms", "1000"])
        .args(flags)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let port = loop {
        let line = timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().expect("the broker ended");
        let entry: Value = serde_json::from_str(&line).unwrap();
        if entry["fields"]["message"] == "listening" {
            let address = entry["fields"]["address"].as_str().unwrap();
            break address.rsplit(':').next().unwrap().parse().unwrap();
        }
    };
    // For ever reading, so that the broker never waits on a full pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, port)
}

/// A free port that stays free while a broker is down: below those that systems give out by themselves.
fn lasting_port() -> u16 {
    let mut seed = RandomState::new().build_hasher().finish();
    loop {
        let port = 12_000 + u16::try_from(seed % 20_000).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
        seed = seed.wrapping_add(7);
    }
}

fn number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// A proxy that can cut every connection through it, so that a client's reconnect is a real one.
pub struct Proxy {
    port: u16,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    refuses: Arc<AtomicBool>,
}

impl Proxy {
    pub async fn start(broker: &Broker) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), broker.port);
        let connections = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&connections);
        let refuses = Arc::new(AtomicBool::new(false));
        let is_refusing = Arc::clone(&refuses);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                if is_refusing.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await else { continue };
                let forwarding = tokio::spawn(async move {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
                known.lock().unwrap().push(forwarding.abort_handle());
            }
        });
        Self { port, connections, refuses }
    }

    pub fn client(&self) -> StreamqClient {
        StreamqClient::new(format!("http://127.0.0.1:{}", self.port)).unwrap()
    }

    /// Whether new connections are cut at once.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Cuts the only member or subscriber of a topic and lets it come back once the broker knows that it is gone.
    pub async fn cut_alone(&self, broker: &Broker, topic: &str) {
        self.refuse(true);
        self.cut();
        broker.wait_for_subscribers(topic, 0).await;
        self.refuse(false);
        broker.wait_for_subscribers(topic, 1).await;
    }

    /// Cuts all connections that there are, without a word of the protocol.
    pub fn cut(&self) {
        self.connections.lock().unwrap().drain(..).for_each(|connection| connection.abort());
    }
}

/// Options that come back fast after a cut.
pub fn options(protocol: Protocol, group: &str, from_offset: i64) -> ConsumerOptions {
    let reconnect_delay = Duration::from_millis(50);
    ConsumerOptions { group: group.to_owned(), from_offset, protocol, reconnect_delay, ..Default::default() }
}

/// The next message, which must come.
pub async fn message(consumer: &mut Consumer) -> Message {
    timeout(LIMIT, consumer.next()).await.expect("a message in time").unwrap().expect("a message instead of the end")
}

/// Offsets of the next messages.
pub async fn offsets(consumer: &mut Consumer, count: usize) -> Vec<i64> {
    let mut offsets = Vec::new();
    while offsets.len() < count {
        offsets.push(message(consumer).await.offset);
    }
    offsets
}

/// Publishes numbers as text, which must get themselves as offsets.
pub async fn publish(client: &StreamqClient, topic: &str, numbers: std::ops::Range<i64>) {
    for number in numbers {
        assert_eq!(client.publish(topic, number.to_string().as_bytes()).await.unwrap().offset, number);
    }
}
