//! Settings of a broker: flag over environment over `.env` over file over default, each checked by name; on the main thread.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ringmain_driver::{DriverConfig, StorageConfig, processor};
use ringmain_model::limit::{
    BODY_BYTES_DEFAULT, BODY_BYTES_MAX, CONNECTIONS_PER_CORE_DEFAULT, CONNECTIONS_PER_CORE_MAX, CORES_MAX,
    LANE_REQUESTS_DEFAULT, LANE_REQUESTS_MAX, RETENTION_MESSAGES_DEFAULT, RETENTION_MESSAGES_MAX,
    SHARD_MEMORY_BYTES_DEFAULT, SHARD_MEMORY_BYTES_MIN, SHARD_MEMORY_MESSAGES_MIN,
};

use self::storage::StorageChoice;
use crate::front::http::OriginPolicy;
use crate::front::{FrontSettings, is_local_only};

mod file;
mod flags;
mod storage;
#[cfg(test)]
mod tests;

pub(crate) use file::SettingsFile;
pub(crate) use flags::ServeFlags;

/// A setting that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}={value}: {fix}")]
pub(crate) struct ConfigError {
    /// The flag or variable.
    pub(crate) key: String,
    /// What it was set to.
    pub(crate) value: String,
    /// What to do.
    pub(crate) fix: String,
}

/// How the log is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Everything that a broker is started with.
#[derive(Debug)]
pub(crate) struct ServeSettings {
    pub(crate) driver: DriverConfig,
    pub(crate) front: FrontSettings,
    pub(crate) log_level: tracing::Level,
    pub(crate) log_format: LogFormat,
}

/// Where settings come from.
pub(crate) struct Sources<'s> {
    /// Looks a variable up; `.env` stands behind the process's own.
    pub(crate) environment: &'s dyn Fn(&str) -> Option<String>,
    /// The file of settings, if there is one.
    pub(crate) file: Option<SettingsFile>,
    /// The settings that were looked for: there are no others.
    pub(crate) known: RefCell<Vec<Key>>,
}

/// The variable that names the file of settings.
pub(crate) const FILE: Key = key("config", "RINGMAIN_CONFIG");

/// A setting's two names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) flag: &'static str,
    pub(crate) variable: &'static str,
}

const fn key(flag: &'static str, variable: &'static str) -> Key {
    Key { flag, variable }
}

impl Sources<'_> {
    /// The text of a setting, and the name under which it was given. An empty variable counts as not set; an empty flag is a
    /// mistake that whoever reads the text will find.
    fn text(&self, flag: Option<&String>, key: Key) -> Option<(String, String)> {
        self.known.borrow_mut().push(key);
        let from_flag = flag.map(|value| (format!("--{}", key.flag), value.clone()));
        let variable = || (self.environment)(key.variable).filter(|value| !value.is_empty());
        let from_environment = || Some((key.variable.to_owned(), variable()?));
        from_flag.or_else(from_environment).or_else(|| self.file.as_ref()?.get(key.flag))
    }

    fn number(
        &self,
        flag: Option<&String>,
        key: Key,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, ConfigError> {
        let Some((key, value)) = self.text(flag, key) else { return Ok(default) };
        match value.trim().parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => {
                let fix = format!("choose a number from {} to {}", range.start(), range.end());
                Err(ConfigError { key, value, fix })
            }
        }
    }

    fn word<T: Copy>(
        &self,
        flag: Option<&String>,
        key: Key,
        words: &[(&str, T)],
        default: T,
    ) -> Result<T, ConfigError> {
        let Some((key, value)) = self.text(flag, key) else { return Ok(default) };
        match words.iter().find(|(word, _)| word.eq_ignore_ascii_case(value.trim())) {
            Some((_, meaning)) => Ok(*meaning),
            None => {
                let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                Err(ConfigError { key, value, fix: format!("choose one of {}", known.join(", ")) })
            }
        }
    }

    /// Resolves all settings.
    pub(crate) fn resolve(&self, flags: &ServeFlags) -> Result<ServeSettings, ConfigError> {
        let mut storage = self.storage(flags)?;
        let message_bytes_max = self.message_bytes(flags, &storage)?;
        if let Some(config) = &mut storage.config {
            config.message_bytes_max = message_bytes_max;
        }
        let bind = self.bind(flags)?;
        let levels = [
            ("debug", tracing::Level::DEBUG),
            ("info", tracing::Level::INFO),
            ("warn", tracing::Level::WARN),
            ("error", tracing::Level::ERROR),
        ];
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let settings = ServeSettings {
            front: self.front(flags, bind, &storage)?,
            driver: self.driver(flags, bind, message_bytes_max, storage.config)?,
            log_level: self.word(
                flags.log_level.as_ref(),
                key("log-level", "LOG_LEVEL"),
                &levels,
                tracing::Level::INFO,
            )?,
            log_format: self.word(
                flags.log_format.as_ref(),
                key("log-format", "RINGMAIN_LOG_FORMAT"),
                &formats,
                LogFormat::Text,
            )?,
        };
        if let Some(file) = &self.file {
            file.check_names(|name| self.known.borrow().iter().any(|key| key.flag == name))?;
        }
        Ok(settings)
    }

    fn bind(&self, flags: &ServeFlags) -> Result<IpAddr, ConfigError> {
        let Some((key, value)) = self.text(flags.bind.as_ref(), key("bind", "RINGMAIN_BIND")) else {
            return Ok(IpAddr::from([127, 0, 0, 1]));
        };
        match value.trim() {
            "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
            text => text.parse().map_err(|_| ConfigError {
                key,
                value,
                fix: "give an IP address of this machine, like 127.0.0.1, or 0.0.0.0 for all".to_owned(),
            }),
        }
    }

    fn driver(
        &self,
        flags: &ServeFlags,
        bind: IpAddr,
        message_bytes_max: usize,
        storage: Option<StorageConfig>,
    ) -> Result<DriverConfig, ConfigError> {
        let processors =
            std::thread::available_parallelism().map_or(1, usize::from).min(processor::allowed().len().max(1));
        let cores_max = CORES_MAX as u64;
        let cores = self.number(
            flags.cores.as_ref(),
            key("cores", "RINGMAIN_CORES"),
            1..=cores_max,
            (processors as u64).min(cores_max),
        )?;
        let shards = self.number(flags.shards.as_ref(), key("shards", "RINGMAIN_SHARDS"), 1..=cores_max, cores)?;
        let connections_max = CONNECTIONS_PER_CORE_MAX as u64 * cores;
        let connections = self.number(
            flags.max_connections.as_ref(),
            key("max-connections", "RINGMAIN_MAX_CONNECTIONS"),
            1..=connections_max,
            CONNECTIONS_PER_CORE_DEFAULT as u64 * cores,
        )?;
        let memory_min = SHARD_MEMORY_BYTES_MIN.max(SHARD_MEMORY_MESSAGES_MIN * message_bytes_max as u64);
        let memory = self.number(
            flags.memory_bytes.as_ref(),
            key("memory-bytes", "RINGMAIN_MEMORY_BYTES"),
            shards * memory_min..=(1 << 50),
            SHARD_MEMORY_BYTES_DEFAULT * shards,
        )?;
        let port = self.number(flags.port.as_ref(), key("port", "SERVER_PORT"), 0..=u64::from(u16::MAX), 8080)?;
        let lane_requests = self.number(
            flags.lane_requests.as_ref(),
            key("lane-requests", "RINGMAIN_LANE_REQUESTS"),
            1..=LANE_REQUESTS_MAX as u64,
            LANE_REQUESTS_DEFAULT as u64,
        )?;
        let write_timeout_ms = key("write-timeout-ms", "RINGMAIN_WRITE_TIMEOUT_MS");
        let drain_timeout_ms = key("drain-timeout-ms", "RINGMAIN_DRAIN_TIMEOUT_MS");
        Ok(DriverConfig {
            address: SocketAddr::new(bind, narrow(port)),
            cores: narrow(cores),
            shards: narrow(shards),
            connections_per_core_max: size(connections.div_ceil(cores)),
            lane_requests_max: size(lane_requests),
            shard_memory_bytes_max: memory / shards,
            write_timeout_ms: self.milliseconds(flags.write_timeout_ms.as_ref(), write_timeout_ms, 30_000)?,
            drain_timeout_ms: self.milliseconds(flags.drain_timeout_ms.as_ref(), drain_timeout_ms, 10_000)?,
            storage,
        })
    }

    fn milliseconds(&self, flag: Option<&String>, key: Key, default: u64) -> Result<u64, ConfigError> {
        self.number(flag, key, 10..=86_400_000, default)
    }

    fn front(&self, flags: &ServeFlags, bind: IpAddr, storage: &StorageChoice) -> Result<FrontSettings, ConfigError> {
        let body_bytes = key("max-body-bytes", "RINGMAIN_MAX_BODY_BYTES");
        let retention = key("retention", "MAX_MESSAGE_RETENTION");
        let header_timeout_ms = key("header-timeout-ms", "RINGMAIN_HEADER_TIMEOUT_MS");
        let body_timeout_ms = key("body-timeout-ms", "RINGMAIN_BODY_TIMEOUT_MS");
        let idle_timeout_ms = key("idle-timeout-ms", "RINGMAIN_IDLE_TIMEOUT_MS");
        let heartbeat_ms = key("heartbeat-ms", "RINGMAIN_HEARTBEAT_MS");
        let retry_ms = key("retry-ms", "RINGMAIN_RETRY_MS");
        let retry_ms = self.number(flags.retry_ms.as_ref(), retry_ms, 10..=600_000, 2_000)?;
        Ok(FrontSettings {
            header_timeout_ms: self.milliseconds(flags.header_timeout_ms.as_ref(), header_timeout_ms, 10_000)?,
            body_timeout_ms: self.milliseconds(flags.body_timeout_ms.as_ref(), body_timeout_ms, 10_000)?,
            idle_timeout_ms: self.milliseconds(flags.idle_timeout_ms.as_ref(), idle_timeout_ms, 75_000)?,
            heartbeat_ms: self.milliseconds(flags.heartbeat_ms.as_ref(), heartbeat_ms, 15_000)?,
            retry_ms: u32::try_from(retry_ms).unwrap_or(u32::MAX),
            message_bytes_max: self.message_bytes(flags, storage)?,
            body_bytes_max: size(self.number(
                flags.max_body_bytes.as_ref(),
                body_bytes,
                1..=BODY_BYTES_MAX as u64,
                BODY_BYTES_DEFAULT as u64,
            )?),
            retention_messages: self.number(
                flags.retention.as_ref(),
                retention,
                1..=RETENTION_MESSAGES_MAX,
                RETENTION_MESSAGES_DEFAULT,
            )?,
            storage: storage.default,
            has_directory: storage.config.is_some(),
            ws_echo: flags.ws_echo,
            origins: self.origins(flags, bind)?,
        })
    }

    fn origins(&self, flags: &ServeFlags, bind: IpAddr) -> Result<OriginPolicy, ConfigError> {
        let cors_origins = key("cors-origins", "RINGMAIN_CORS_ORIGINS");
        let Some((key, value)) = self.text(flags.cors_origins.as_ref(), cors_origins) else {
            return Ok(OriginPolicy { guarded: is_local_only(bind), ..OriginPolicy::default() });
        };
        OriginPolicy::parse(&value, is_local_only(bind)).map_err(|fix| ConfigError { key, value, fix })
    }
}

/// A number that its range has bounded to 16 bits.
fn narrow(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// A number that its range has bounded to what memory can hold.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
