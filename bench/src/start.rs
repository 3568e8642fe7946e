//! Starts a server and takes the time until it listens and until it is ready.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ringmain_wire::http::{HeadLimits, Method, decode_response_head};

use crate::command_line::StartOptions;
use crate::failure::Failure;
use crate::process::Process;
use crate::report::{Report, ratio};
use crate::setup::get_request;

/// Time between two tries.
const TRY_EVERY: Duration = Duration::from_micros(200);

/// How long one try may take.
const TRY_TIME_MAX: Duration = Duration::from_secs(5);

/// Runs the measurement. The server is killed afterwards unless it is to be kept.
///
/// # Errors
///
/// When the port is taken, the server cannot be started, ends, or is not ready in time.
pub(crate) fn run(options: &StartOptions) -> Result<Report, Failure> {
    let server = options.place.server;
    if TcpStream::connect(server).is_ok() {
        return Err(Failure::said(format!("something listens on {server} already")));
    }
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(Failure::said("name the server's program after --"));
    };
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|source| Failure::io(format!("cannot start {program}"), source))?;
    let deadline = start + options.patience_s;
    let outcome = watch(&mut child, server, start, deadline);
    if outcome.is_err() || !options.keep {
        // It may have ended by itself, which the outcome tells.
        let _ = child.kill();
        let _ = child.wait();
    }
    outcome
}

fn watch(child: &mut Child, server: SocketAddr, start: Instant, deadline: Instant) -> Result<Report, Failure> {
    until(child, deadline, "listen", || Ok(TcpStream::connect_timeout(&server, TRY_TIME_MAX).is_ok()))?;
    let listening = start.elapsed();
    until(child, deadline, "become ready", || is_ready(server))?;
    let ready = start.elapsed();
    let process = Process::new(child.id());
    let mut report = Report::new("start");
    report.count("server_pid", child.id().into());
    report.decimal("listening_ms", milliseconds(listening));
    report.decimal("ready_ms", milliseconds(ready));
    report.decimal("server_cpu_ms", ratio(process.cpu_ns()?, 1_000_000));
    report.count("server_resident_bytes", process.resident_bytes()?);
    Ok(report)
}

/// Tries until it succeeds.
fn until(
    child: &mut Child,
    deadline: Instant,
    what: &str,
    mut attempt: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    while !attempt()? {
        let ended = child.try_wait().map_err(|source| Failure::io("cannot look after the server", source))?;
        if let Some(status) = ended {
            return Err(Failure::said(format!("the server ended before it did {what}: {status}")));
        }
        if Instant::now() >= deadline {
            return Err(Failure::said(format!("the server did not {what} in time")));
        }
        thread::sleep(TRY_EVERY);
    }
    Ok(())
}

/// Whether the server says that it takes requests. One that closes the connection is not ready either.
fn is_ready(server: SocketAddr) -> Result<bool, Failure> {
    let mut stream = match TcpStream::connect_timeout(&server, TRY_TIME_MAX) {
        Ok(stream) => stream,
        Err(_) => return Ok(false),
    };
    let failed = |source| Failure::io("cannot ask whether the server is ready", source);
    stream.set_read_timeout(Some(TRY_TIME_MAX)).map_err(failed)?;
    stream.write_all(&get_request(server, "/health/ready", &[("Connection", "close")])).map_err(failed)?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset) => return Ok(false),
        Err(source) => return Err(failed(source)),
    }
    let head = decode_response_head(&answer, &HeadLimits::default(), Method::Get)?;
    Ok(head.is_some_and(|(head, _)| head.status == 200))
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
