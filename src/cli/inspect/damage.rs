//! What is wrong with files, gathered while they are read; on the main thread.

use serde::Serialize;
use serde::ser::SerializeMap;

use crate::cli::Failure;

/// Damages that are told one by one; of more, only the number is kept.
const TOLD_MAX: usize = 1000;

/// One thing that is wrong.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Damage {
    /// The file or folder.
    pub(super) path: String,
    /// Bytes from the file's start.
    pub(super) position: Option<u64>,
    /// The batch of the log, where one is touched.
    pub(super) sequence: Option<u64>,
    /// A sentence without its full stop.
    pub(super) text: String,
}

/// All that is wrong so far.
#[derive(Debug, Default)]
pub(super) struct Damages {
    count: u64,
    unreadable: u64,
    told: Vec<Damage>,
}

impl Damages {
    pub(super) fn add(&mut self, damage: Damage) {
        self.count += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push(damage);
        }
    }

    /// Notes that something could not be read, so that nothing is known of it.
    pub(super) fn add_unreadable(&mut self, path: &str, text: String) {
        self.unreadable += 1;
        self.add(Damage { path: path.to_owned(), position: None, sequence: None, text });
    }

    /// Adds all of these to `others`.
    pub(super) fn hand_to(self, others: &mut Self) {
        others.count += self.count;
        others.unreadable += self.unreadable;
        let room = TOLD_MAX - others.told.len().min(TOLD_MAX);
        others.told.extend(self.told.into_iter().take(room));
    }

    /// Writes them as the last fields of a JSON document.
    pub(super) fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("damage_count", &self.count)?;
        map.serialize_entry("damage", &self.told)
    }

    pub(super) fn told(&self) -> &[Damage] {
        &self.told
    }

    /// The last line for a person.
    pub(super) fn sentence(&self) -> String {
        match self.count {
            0 => "No damage was found.".to_owned(),
            1 => "Damage was found, and is told above.".to_owned(),
            count => format!("Damage was found, and is told above in {count} places."),
        }
    }

    /// How the command ends. What cannot be read outweighs damage: the picture is not whole.
    pub(super) fn outcome(self) -> Result<(), Failure> {
        let Some(first) = self.told.first() else { return Ok(()) };
        let place = first.position.map(|position| format!(" at {position}")).unwrap_or_default();
        let more = if self.count > 1 { format!(" (and {} more)", self.count - 1) } else { String::new() };
        let message = format!("{}{place}: {}{more}", first.path, first.text);
        if self.unreadable > 0 { Err(Failure::Usage(message)) } else { Err(Failure::Failed(message)) }
    }
}
