//! The load generator: one ring on one thread that knows a broker only by its wire.

mod clock;
mod command_line;
mod connect;
mod failure;
mod fanout;
mod idle;
mod latency;
mod load;
mod log_figures;
mod meter;
mod process;
mod publish;
mod replay;
mod report;
mod respond;
mod ring;
mod scan;
mod schedule;
mod setup;
mod start;
mod summary;
mod sync;
mod topics;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::command_line::{Arguments, Command, Place};
use crate::failure::Failure;
use crate::report::Report;

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // Whoever reads our output has seen enough of it.
        Err(Failure::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            // Nothing is left to tell when the standard error is gone too.
            let _ = writeln!(io::stderr(), "ringmain-bench: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Runs one measurement; false when it ran and the server did not do all that it should.
fn run(command: Command) -> Result<bool, Failure> {
    match command {
        Command::Publish(options) => measured(&options.place, |clock| publish::run(&options, clock)),
        Command::Fanout(options) => measured(&options.place, |clock| fanout::run(&options, clock)),
        Command::Idle(options) => measured(&options.place, |_| idle::run(&options)),
        Command::Topics(options) => measured(&options.place, |clock| topics::run(&options, clock)),
        Command::Replay(options) => measured(&options.place, |clock| replay::run(&options, clock)),
        Command::Start(options) => measured(&options.place, |_| start::run(&options)),
        Command::Sync(options) => {
            pin(options.cpu)?;
            finish(sync::run(&options)?, options.label.as_deref(), options.json)
        }
        Command::Respond(options) => {
            pin(options.cpu)?;
            respond::run(&options)
        }
        Command::Summary(options) => {
            let text = summary::run(&options)?;
            io::stdout()
                .write_all(text.as_bytes())
                .map_err(|source| Failure::io("cannot write the summary", source))?;
            Ok(true)
        }
    }
}

/// Pins the thread, measures, and prints what came out.
fn measured(place: &Place, measure: impl FnOnce(&clock::Clock) -> Result<Report, Failure>) -> Result<bool, Failure> {
    pin(place.cpu)?;
    // Thousands of connections need as many descriptors; where the limit stays lower, connecting says so.
    let _ = ringmain_uring::descriptors::raise_limit();
    finish(measure(&clock::Clock::start())?, place.label.as_deref(), place.json)
}

/// Prints what came out.
fn finish(mut report: Report, label: Option<&str>, json: bool) -> Result<bool, Failure> {
    if let Some(label) = label {
        report.label(label);
    }
    let text = if json { report.json_line() } else { report.text() };
    io::stdout().write_all(text.as_bytes()).map_err(|source| Failure::io("cannot write the result", source))?;
    Ok(report.is_sound())
}

fn pin(cpu: Option<usize>) -> Result<(), Failure> {
    match cpu {
        Some(cpu) => ringmain_uring::processor::pin(cpu)
            .map_err(|source| Failure::io(format!("cannot run on processor {cpu}"), source)),
        None => Ok(()),
    }
}
