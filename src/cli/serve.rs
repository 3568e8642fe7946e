//! `ringmain serve`: starts the log, the broker and the watch for signals; on the main thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ringmain_driver::{Broker, descriptors};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Failure;
use crate::config::{ConfigError, FILE, Key, LogFormat, ServeFlags, ServeSettings, SettingsFile, Sources};
use crate::front::http::HttpFront;
use crate::front::is_local_only;

/// Variables of ours that are not the broker's.
const OTHERS: [&str; 1] = ["RINGMAIN_URL"];

pub(super) fn run(flags: &ServeFlags) -> Result<(), Failure> {
    let dotenv = read_dotenv()?;
    let environment = |name: &str| variable(name).or_else(|| dotenv.get(name).cloned());
    let unusable = |error: ConfigError| Failure::Usage(format!("cannot start: {error}"));
    let file = read_file(flags, &environment).map_err(unusable)?;
    let sources = Sources { environment: &environment, file, known: RefCell::default() };
    let settings = sources.resolve(flags).map_err(unusable)?;
    start_log(&settings);
    warn_of_strangers(&sources.known.borrow(), &dotenv);
    match descriptors::raise_limit() {
        Ok(limit) => tracing::debug!(limit, "descriptors"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit on descriptors"),
    }
    let ServeSettings { driver, front, .. } = settings;
    let storage = front.storage.as_str();
    let front = Arc::new(front);
    let signals = Signals::new([SIGTERM, SIGINT])
        .map_err(|error| Failure::Failed(format!("cannot watch for signals: {error}")))?;
    let broker = Broker::start(&driver, move |core| HttpFront::new(Arc::clone(&front), core))
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let address = broker.address();
    if !is_local_only(address.ip()) {
        tracing::warn!(%address, "the broker is open to the network without tokens: everyone who reaches it may do everything");
    }
    tracing::info!(%address, cores = driver.cores, shards = broker.shards(), storage, version = env!("CARGO_PKG_VERSION"), "listening");
    watch(signals, &broker);
    broker.wait().map_err(|error| Failure::Failed(error.to_string()))?;
    tracing::info!("ended");
    Ok(())
}

/// A variable of the process; an empty one counts as not set. What is no UTF-8 is told as a value that cannot be used, with its name.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// The variables of `.env`, which stand behind the process's own.
fn read_dotenv() -> Result<BTreeMap<String, String>, Failure> {
    let unusable =
        |error| Failure::Usage(format!("cannot start: the file .env: {error}; correct the line or remove the file"));
    match dotenvy::from_path_iter(".env") {
        Ok(variables) => variables.collect::<Result<_, _>>().map_err(unusable),
        Err(dotenvy::Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(unusable(error)),
    }
}

/// The file of settings, if one was named.
fn read_file(
    flags: &ServeFlags,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<SettingsFile>, ConfigError> {
    let by_flag = flags.config.clone().map(|path| (format!("--{}", FILE.flag), path));
    let named = by_flag.or_else(|| Some((FILE.variable.to_owned(), environment(FILE.variable)?)));
    named.map(|(key, path)| SettingsFile::read(&key, Path::new(&path))).transpose()
}

/// Variables that look like ours and are none: a name that was misspelt would change nothing in silence.
fn warn_of_strangers(known: &[Key], dotenv: &BTreeMap<String, String>) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).chain(dotenv.keys().cloned());
    let is_known =
        |name: &str| name == FILE.variable || OTHERS.contains(&name) || known.iter().any(|key| key.variable == name);
    for name in names.filter(|name| name.starts_with("RINGMAIN_") && !is_known(name)) {
        tracing::warn!(name, "this variable is none of the broker's: `ringmain serve --help` lists them");
    }
}

/// Where the log goes. What cannot be written is lost: a full disk or a closed terminal is no reason for a broker to end.
struct Unfailing(io::Stderr);

impl io::Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

fn start_log(settings: &ServeSettings) {
    let log = tracing_subscriber::fmt()
        .with_max_level(settings.log_level)
        .with_writer(|| Unfailing(io::stderr()))
        .log_internal_errors(false)
        .with_target(false);
    let colours = std::env::var_os("NO_COLOR").is_none() && io::IsTerminal::is_terminal(&io::stderr());
    match settings.log_format {
        LogFormat::Text => log.with_ansi(colours).init(),
        LogFormat::Json => log.json().init(),
    }
}

/// Ends the broker at the first signal, and the process at the second.
fn watch(mut signals: Signals, broker: &Broker) {
    let stopper = broker.stopper();
    let watcher = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for (count, signal) in signals.forever().enumerate() {
            if count > 0 {
                std::process::exit(128 + signal);
            }
            stopper.stop();
            tracing::info!(signal, "going down: finishing what is in hand; a second signal ends at once");
        }
    });
    if let Err(error) = watcher {
        tracing::error!(%error, "cannot start the watch for signals");
        broker.shut_down();
    }
}
