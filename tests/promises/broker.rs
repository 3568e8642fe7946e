//! Starts the real binary for a test, on a free port and in an empty folder, and ends it with the test.

use crate::deadline::{LIMIT, wait_for, wait_until};
use crate::events::EventStream;
use crate::http::{Connection, Response, path_segment};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use std::{fs, thread};

/// Lines of the broker's log that are kept to be shown when a test fails.
const LOG_LINES_MAX: usize = 200;

/// Settings that a developer's own environment may hold and that would change what a test sees. The number of shards
/// and cores is left: the whole suite runs with several of them.
const SETTINGS: &[&str] = &[
    "SERVER_PORT",
    "MAX_MESSAGE_RETENTION",
    "STORAGE_MODE",
    "WAL_DIR",
    "WAL_SEGMENT_SIZE",
    "WAL_MAX_SEGMENTS",
    "RINGMAIN_SYNC",
    "RINGMAIN_DIRECT_IO",
    "LOG_LEVEL",
    "RINGMAIN_BIND",
    "RINGMAIN_LOG_FORMAT",
    "RINGMAIN_HEADER_TIMEOUT_MS",
    "RINGMAIN_BODY_TIMEOUT_MS",
    "RINGMAIN_IDLE_TIMEOUT_MS",
    "RINGMAIN_WRITE_TIMEOUT_MS",
    "RINGMAIN_HEARTBEAT_MS",
    "RINGMAIN_RETRY_MS",
    "RINGMAIN_DRAIN_TIMEOUT_MS",
    "RINGMAIN_MAX_CONNECTIONS",
    "RINGMAIN_MAX_MESSAGE_BYTES",
    "RINGMAIN_MAX_BODY_BYTES",
    "RINGMAIN_LANE_REQUESTS",
    "RINGMAIN_CORS_ORIGINS",
    "RINGMAIN_MEMORY_BYTES",
    "RINGMAIN_URL",
];

/// A folder that exists as long as the value does.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("ringmain-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The program with a clean environment and `folder` as its working directory, started by the words of `wrapper`, which
/// may be none.
pub(crate) fn program(folder: &Folder, wrapper: &[&str]) -> Command {
    let words = [wrapper, &[env!("CARGO_BIN_EXE_ringmain")]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    SETTINGS.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.current_dir(folder.path()).stdin(Stdio::null());
    command
}

/// How a broker is to be started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    open_files_max: Option<u32>,
    settings_file: Option<String>,
    wrapper: Vec<String>,
    port_is_set: bool,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a flag and its value, such as `("--retention", "5")`.
    pub(crate) fn flag(mut self, name: &str, value: impl ToString) -> Self {
        self.port_is_set |= name == "--port";
        self.arguments.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// Adds a flag that takes no value.
    pub(crate) fn word(mut self, name: &str) -> Self {
        self.arguments.push(name.to_owned());
        self
    }

    /// Sets a variable of the broker's environment.
    pub(crate) fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.port_is_set |= name == "SERVER_PORT";
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// Writes a file `.env` into the broker's working directory.
    pub(crate) fn settings_file(mut self, text: &str) -> Self {
        self.settings_file = Some(text.to_owned());
        self
    }

    /// Lets the broker open that many files at most, sockets and rings included.
    pub(crate) fn open_files_max(mut self, count: u32) -> Self {
        self.open_files_max = Some(count);
        self
    }

    /// Topics are kept on the disk, in the broker's own folder.
    pub(crate) fn logged(self) -> Self {
        self.variable("STORAGE_MODE", "wal")
    }

    /// Has the broker started by these words, which must end in becoming it (`exec`).
    pub(crate) fn by(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Starts the broker and waits until it listens.
    pub(crate) fn start(self) -> Broker {
        let folder = Folder::new();
        if let Some(text) = &self.settings_file {
            fs::write(folder.path().join(".env"), text).unwrap();
        }
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let (child, listening) = self.spawn(&folder, &log);
        // From here on a panic ends the child, and shows the log.
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut broker = Broker { child, address, log, setup: self, folder };
        broker.address = listening.recv_timeout(LIMIT).expect("the broker did not log that it is listening");
        broker
    }

    /// Starts the program in a folder. The receiver gets the address once it listens.
    fn spawn(&self, folder: &Folder, log: &Arc<Mutex<VecDeque<String>>>) -> (Child, mpsc::Receiver<SocketAddr>) {
        let limit = self.open_files_max.map(|count| format!("ulimit -n {count} && exec \"$0\" \"$@\""));
        let mut wrapper = limit.as_ref().map_or(Vec::new(), |script| vec!["sh", "-c", script.as_str()]);
        wrapper.extend(self.wrapper.iter().map(String::as_str));
        let mut command = program(folder, &wrapper);
        command.args(["serve", "--log-format", "json"]);
        if !self.port_is_set {
            command.args(["--port", "0"]);
        }
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let listening = drain_log(child.stderr.take().unwrap(), Arc::clone(log));
        (child, listening)
    }
}

/// Keeps the last lines of the log, for ever reading so that the broker never waits on a full pipe. Gives the address
/// of the line that says the broker listens.
fn drain_log(stderr: ChildStderr, log: Arc<Mutex<VecDeque<String>>>) -> mpsc::Receiver<SocketAddr> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines() {
            let Ok(line) = line else { break };
            let entry: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if entry["fields"]["message"] == "listening" {
                let address = entry["fields"]["address"].as_str().and_then(|address| address.parse().ok());
                let _ = address.map(|address| sender.send(address));
            }
            let mut log = log.lock().unwrap();
            if log.len() == LOG_LINES_MAX {
                log.pop_front();
            }
            log.push_back(line);
        }
    });
    receiver
}

/// A running broker. Dropping it kills it; when the test is failing, its log is shown.
#[derive(Debug)]
pub(crate) struct Broker {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<VecDeque<String>>>,
    setup: Setup,
    folder: Folder,
}

impl Broker {
    /// A broker with the settings that a user gets who sets none.
    pub(crate) fn start() -> Self {
        Setup::new().start()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The last lines of the log.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().iter().map(|line| format!("{line}\n")).collect()
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// One request over a connection of its own.
    pub(crate) fn request(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut connection = self.connect();
        connection.send_request(method, target, headers, body);
        connection.response_to(method)
    }

    pub(crate) fn get(&self, target: &str) -> Response {
        self.request("GET", target, &[], b"")
    }

    /// Creates a topic that must not exist yet.
    pub(crate) fn create_topic(&self, name: &str) {
        let body = serde_json::json!({ "name": name }).to_string();
        let answer = self.request("POST", "/topics", &[("Content-Type", "application/json")], body.as_bytes());
        answer.expect(201);
    }

    pub(crate) fn delete_topic(&self, name: &str) {
        self.request("DELETE", &topic_path(name, ""), &[], b"").expect(200);
    }

    /// Publishes a raw body; gives the offset.
    pub(crate) fn publish(&self, topic: &str, payload: &[u8]) -> u64 {
        let answer = self.request("POST", &topic_path(topic, "/publish"), &[], payload);
        answer.expect(202).data()["offset"].as_u64().expect("an offset")
    }

    /// Publishes `0`, `1`, … up to but without `end` as raw bodies, over one connection.
    pub(crate) fn publish_numbers(&self, topic: &str, numbers: std::ops::Range<u64>) {
        let mut connection = self.connect();
        for number in numbers {
            connection.send_request("POST", &topic_path(topic, "/publish"), &[], number.to_string().as_bytes());
            connection.response_to("POST").expect(202);
        }
    }

    /// The stats of a topic.
    pub(crate) fn stats(&self, topic: &str) -> serde_json::Value {
        self.get(&topic_path(topic, "")).expect(200).data()
    }

    /// Opens an event stream that must be granted. `query` is empty or begins with `?`.
    pub(crate) fn subscribe(&self, topic: &str, query: &str, headers: &[(&str, &str)]) -> EventStream {
        EventStream::open(self.address, &topic_path(topic, &format!("/subscribe/sse{query}")), headers)
    }

    /// Waits until the broker counts that many subscribers of the topic.
    pub(crate) fn wait_for_subscribers(&self, topic: &str, count: u64) {
        wait_until("the subscribers are counted", || self.stats(topic)["subscriber_count"] == count);
    }

    /// Asks the broker to end, as a supervisor of services does.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks the broker to end, as a person at a terminal does.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Ends the broker at once and without a word to it, as `kill -9` does; it may not be gone yet.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Starts the program again, with the same settings and in the same folder, once the one before has ended. It listens on
    /// another port unless the settings name one.
    pub(crate) fn restart(&mut self) {
        assert!(self.restart_within(LIMIT), "the broker did not log that it is listening");
    }

    /// Like [`Self::restart`], but looks no longer than `limit`; whether it listens.
    pub(crate) fn restart_within(&mut self, limit: Duration) -> bool {
        self.wait_for_exit();
        let (child, listening) = self.setup.spawn(&self.folder, &self.log);
        self.child = child;
        let address = listening.recv_timeout(limit).ok();
        self.address = address.unwrap_or(self.address);
        address.is_some()
    }

    /// The folder that the broker was started in; unless the settings say otherwise its data is in `data` there.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(process, signal).unwrap();
    }

    /// Waits until the broker has ended by itself.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for("the broker exits", || child.try_wait().unwrap())
    }

    /// Whether the process is still there.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Nanoseconds of processor time that all threads of the broker have used so far.
    pub(crate) fn processor_time_ns(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process_id())).unwrap();
        let times = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
        times.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let status = self.child.wait();
        if thread::panicking() {
            println!("--- the broker ({status:?}) logged:\n{}---", self.log());
        }
    }
}

/// The path of a topic, its name encoded, with a suffix such as `/publish`.
pub(crate) fn topic_path(name: &str, suffix: &str) -> String {
    format!("/topics/{}{suffix}", path_segment(name))
}
