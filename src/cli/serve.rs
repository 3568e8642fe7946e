//! `ringmain serve`: starts the log, the broker and the watch for signals; on the main thread.

use std::io;
use std::sync::Arc;

use ringmain_driver::{Broker, descriptors};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Failure;
use crate::config::{LogFormat, ServeFlags, ServeSettings, Sources};
use crate::front::http::HttpFront;
use crate::front::is_local_only;

pub(super) fn run(flags: &ServeFlags) -> Result<(), Failure> {
    read_dotenv()?;
    // What is no UTF-8 is told as a value that cannot be used, with its name.
    let environment = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let settings = Sources { environment: &environment }
        .resolve(flags)
        .map_err(|error| Failure::Usage(format!("cannot start: {error}")))?;
    start_log(&settings);
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

/// Puts the variables of `.env` behind the process's own.
fn read_dotenv() -> Result<(), Failure> {
    match dotenvy::from_path(".env") {
        Ok(()) => Ok(()),
        Err(dotenvy::Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            Err(Failure::Usage(format!("cannot start: the file .env: {error}; correct the line or remove the file")))
        }
    }
}

fn start_log(settings: &ServeSettings) {
    let log = tracing_subscriber::fmt().with_max_level(settings.log_level).with_writer(io::stderr).with_target(false);
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
            tracing::info!(signal, "going down: finishing what is in hand; a second signal ends at once");
            stopper.stop();
        }
    });
    if let Err(error) = watcher {
        tracing::error!(%error, "cannot start the watch for signals");
        broker.shut_down();
    }
}
