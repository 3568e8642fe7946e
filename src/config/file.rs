//! A file of settings in TOML: a line for each flag, by its name with `_` for `-`. On the main thread.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::ConfigError;

/// A file of settings with more bytes than that is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The settings of a file, as text: they are checked like those of the environment.
#[derive(Debug)]
pub(crate) struct SettingsFile {
    path: PathBuf,
    values: BTreeMap<String, String>,
}

impl SettingsFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is no list of settings; `key` is what named it.
    pub(crate) fn read(key: &str, path: &Path) -> Result<Self, ConfigError> {
        let refuse = |fix: String| ConfigError { key: key.to_owned(), value: path.display().to_string(), fix };
        let unreadable = |error: std::io::Error| refuse(format!("cannot read it: {error}; give the path of a file"));
        if fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
            return Err(refuse(format!("it has more than {FILE_BYTES_MAX} bytes: give a file of settings")));
        }
        let text = fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(path, &text).map_err(refuse)
    }

    /// The settings of a text in TOML. An error is a sentence that says what to do.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let message = error.message().trim_end_matches('.').to_owned();
            let at = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let line = at.map(|line| format!(" (line {line})")).unwrap_or_default();
            format!("it is no TOML: {message}{line}; write lines like port = 8080")
        })?;
        let mut values = BTreeMap::new();
        for (name, value) in table {
            let value = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(is_so) => is_so.to_string(),
                _ => {
                    return Err(format!(
                        "{name} is neither a text nor a number nor true or false: write lines like port = 8080"
                    ));
                }
            };
            values.insert(name, value);
        }
        Ok(Self { path: path.to_owned(), values })
    }

    /// The setting of a flag, and by what name to speak of it.
    pub(super) fn get(&self, flag: &str) -> Option<(String, String)> {
        let name = flag.replace('-', "_");
        let value = self.values.get(&name)?.clone();
        Some((format!("{name} in {}", self.path.display()), value))
    }

    /// A setting that no flag has.
    ///
    /// # Errors
    /// When there is one.
    pub(super) fn check_names(&self, is_known: impl Fn(&str) -> bool) -> Result<(), ConfigError> {
        let stranger = self.values.iter().find(|(name, _)| !is_known(&name.replace('_', "-")));
        match stranger {
            None => Ok(()),
            Some((name, value)) => Err(ConfigError {
                key: format!("{name} in {}", self.path.display()),
                value: value.clone(),
                fix: "there is no such setting: `ringmain serve --help` lists them, write _ for -".to_owned(),
            }),
        }
    }
}
