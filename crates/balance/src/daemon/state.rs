//! The state on disk with which the next start continues.

use std::{
    fs::{self, File},
    io::{self, Write},
};

use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use super::Daemon;
use crate::{Config, Error, Instance, balancer::SavedState};

/// Version of the file's format.
const VERSION: u32 = 1;

/// The contents of the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    version: u32,
    /// The text of the configuration file at the time it was read.
    pub text: String,
    /// The configuration, including the changes of commands.
    config: String,
    pub tables: SavedState,
}

impl State {
    /// The state of an earlier daemon. None if it is missing or this version cannot read it.
    pub(super) fn read(instance: &Instance) -> Option<Self> {
        let path = instance.state();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn!("{} cannot be read: {error}; starting with new tables", path.display());
                return None;
            }
        };
        match serde_json::from_slice::<Self>(&text) {
            Ok(state) if state.version == VERSION => Some(state),
            Ok(state) => {
                warn!(
                    "{} has version {}, but this program needs {VERSION}; starting with new tables",
                    path.display(),
                    state.version
                );
                None
            }
            Err(error) => {
                warn!("{} cannot be read: {error}; starting with new tables", path.display());
                None
            }
        }
    }

    /// The configuration with the changes of commands. None if the file has changed since, or this version cannot read
    /// the configuration.
    pub(super) fn config_of(&self, text: &str) -> Option<Config> {
        if self.text != text {
            return None;
        }
        let read = Config::read("state.json", &self.config);
        read.inspect_err(|why| {
            for why in why {
                error!("the changes made by commands are lost, and the configuration file applies: {why}");
            }
        })
        .ok()
    }
}

impl Daemon {
    /// Replaces the saved state atomically if it has changed.
    pub(super) fn save(&mut self) -> Result<(), Error> {
        let path = self.instance.state();
        let state = State {
            version: VERSION,
            text: self.text.clone(),
            config: self.config.text(),
            tables: self.balancer.saved(),
        };
        let written = || -> io::Result<Option<Vec<u8>>> {
            let bytes = serde_json::to_vec(&state)?;
            if bytes == self.saved_bytes {
                return Ok(None);
            }
            let beside = path.with_extension("new");
            let mut file = File::create(&beside)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            fs::rename(&beside, &path)?;
            Ok(Some(bytes))
        };
        let written = written().map_err(|error| Error::new(format!("write {}", path.display()), &error))?;
        self.saved_bytes = written.unwrap_or_else(|| std::mem::take(&mut self.saved_bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::Balancer;

    #[test]
    fn what_was_changed_holds_for_the_same_file_and_if_it_can_be_read() {
        let config = "device = \"eth0\"\n[[vips]]\naddress = \"10.0.0.9\"\nport = 80\n".to_owned();
        let state = |config: String| State {
            version: VERSION,
            text: "file".to_owned(),
            config,
            tables: Balancer::new().saved(),
        };
        assert!(state(config.clone()).config_of("file").is_some());
        assert!(state(config.clone()).config_of("another").is_none());
        assert!(state(config + "[[vips.servers]]\nname = \"a b\"\n").config_of("file").is_none());
    }
}
