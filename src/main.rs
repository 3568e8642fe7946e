//! The program: joins configuration, command line, fronts and the driver; runs on the main thread.

mod cli;
mod config;
mod front;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
