//! Promise: a log that cannot be written ends no broker, and keeps none from ending.

use crate::broker::{Folder, program};
use crate::deadline::wait_for;
use crate::http::Connection;
use crate::plenty::offsets;
use crate::stored_directory::Ended;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

/// Starts a broker with this for its log.
fn start(folder: &Folder, log: Stdio) -> Ended {
    let mut command = program(folder, &[]);
    let command = command.args(["serve", "--port", "0", "--log-level", "debug"]);
    Ended(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// Where a process listens, by what the system says: the log, which would say it, is not to be read.
fn address_of(process: u32) -> Option<SocketAddr> {
    let folder = format!("/proc/{process}");
    let descriptors = fs::read_dir(format!("{folder}/fd")).ok()?;
    let links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned));
    let sockets: Vec<String> =
        links.filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let table = fs::read_to_string(format!("{folder}/net/tcp")).ok()?;
    let is_listening = |fields: &Vec<&str>| {
        fields.get(3) == Some(&"0A") && fields.get(9).is_some_and(|inode| sockets.iter().any(|own| own == inode))
    };
    let line = table.lines().map(|line| line.split_whitespace().collect()).find(is_listening)?;
    let port = u16::from_str_radix(line[1].rsplit(':').next()?, 16).ok()?;
    Some(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Has the broker write to its log from a core, and ends it by a signal.
fn serves_and_ends(mut broker: Ended) {
    let broker = &mut broker.0;
    let address = wait_for("the broker listens", || address_of(broker.id()));
    let mut connection = Connection::open(address);
    let json = [("Content-Type", "application/json")];
    for body in [&br#"{"name":"t","dead_letter":{"topic":"nowhere","max_deliver":1}}"#[..], br#"{"name":"u"}"#] {
        connection.send_request("POST", "/topics", &json, body);
        connection.response_to("POST").expect(201);
    }
    connection.send_request("POST", "/topics/t/publish", &[], b"m");
    connection.response_to("POST").expect(202);
    // A message that was given out once and given back goes to the dead letters, which are nowhere: that is told in the log.
    connection.send_request("POST", "/topics/t/groups/g/fetch", &json, br#"{"max":1,"from_offset":0}"#);
    assert_eq!(offsets(&connection.response_to("POST").expect(200).data()), [0]);
    connection.send_request("POST", "/topics/t/groups/g/nack", &json, br#"{"offsets":[0]}"#);
    assert_eq!(connection.response_to("POST").expect(200).data()["acknowledged"], 1);
    connection.send_request("GET", "/health", &[], b"");
    connection.response_to("GET").expect(200);
    kill_process(Pid::from_child(broker), Signal::TERM).unwrap();
    let status = wait_for("the broker has ended", || broker.try_wait().unwrap());
    assert!(status.success(), "{status:?}");
}

#[test]
fn a_reader_of_the_log_that_went_away() {
    let folder = Folder::new();
    let mut broker = start(&folder, Stdio::piped());
    let mut log = BufReader::new(broker.0.stderr.take().unwrap());
    log.read_line(&mut String::new()).unwrap();
    drop(log);
    serves_and_ends(broker);
}

#[test]
fn a_full_disk_under_the_log() {
    let folder = Folder::new();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    serves_and_ends(start(&folder, Stdio::from(full)));
}
