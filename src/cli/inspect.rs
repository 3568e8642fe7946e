//! `ringmain inspect`: prints and checks the files of a data directory, and never changes a byte; on the main thread.
//!
//! `name` and `file` tell what a file is, `segment`, `slot`, `records` and `entry` what stands in it, `directory` what stands
//! together, `verdict` with `finding`, `recovered` and
//! `stored` what a start would make of it.

mod damage;
mod directory;
mod entry;
mod file;
mod finding;
mod item;
mod lock;
mod name;
mod records;
mod recovered;
mod segment;
mod slot;
mod source;
mod stored;
mod verdict;

use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use clap::Args;

use super::Failure;
use super::output::complain;
use damage::Damages;
use directory::Directory;
use file::{FileVisit, Manner};

#[derive(Args, Debug)]
pub(super) struct InspectFlags {
    /// A data directory, the folder of one shard, or one file
    path: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print every entry and every topic too
    #[arg(long)]
    verbose: bool,
}

pub(super) fn run(flags: &InspectFlags) -> Result<(), Failure> {
    let path = &flags.path;
    let unreadable = |error: io::Error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if let Some(warning) = lock::warning(path) {
        complain(&warning);
    }
    let mut damages = Damages::default();
    let mut out = BufWriter::new(io::stdout().lock());
    // Anything else, such as a pipe, could keep a reader waiting for ever.
    let written = if metadata.is_file() {
        let visit = FileVisit::open(path, Manner { is_verbose: flags.verbose, is_alone: true }).map_err(unreadable)?;
        if flags.json {
            print_json(&mut out, &visit.into_document(&mut damages))
        } else {
            visit.print(&mut out, &mut damages).and_then(|()| writeln!(out, "{}", damages.sentence()))
        }
    } else if metadata.is_dir() {
        let directory = Directory::list(path, flags.verbose).map_err(Failure::Usage)?;
        if flags.json {
            print_json(&mut out, &directory.into_document(&mut damages))
        } else {
            directory.print(&mut out, &mut damages).and_then(|()| writeln!(out, "{}", damages.sentence()))
        }
    } else {
        return Err(Failure::Usage(format!("{} is neither a file nor a directory", path.display())));
    };
    written.and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Failed(format!("cannot write to standard output: {error}")),
    })?;
    damages.outcome()
}

fn print_json(out: &mut impl io::Write, document: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, document)?;
    writeln!(out)
}
