//! What is on the disk for the next start.

use std::{
    fs::{self, File},
    io::{self, Write},
};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::Daemon;
use crate::{Config, Error, Instance, balancer::SavedState};

/// Of the format below.
const VERSION: u32 = 1;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    version: u32,
    /// What the configuration file said when it was read.
    pub text: String,
    /// That, with what commands have changed.
    config: String,
    pub tables: SavedState,
}

impl State {
    /// What an earlier daemon has left; none if there is nothing, or nothing that this version can read.
    pub(super) fn read(instance: &Instance) -> Option<Self> {
        let path = instance.state();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn!("{} cannot be read: {error}; starting anew", path.display());
                return None;
            }
        };
        match serde_json::from_slice::<Self>(&text) {
            Ok(state) if state.version == VERSION => Some(state),
            Ok(state) => {
                warn!(
                    "{} has version {}, this program knows {VERSION}; starting anew",
                    path.display(),
                    state.version
                );
                None
            }
            Err(error) => {
                warn!("{} cannot be read: {error}; starting anew", path.display());
                None
            }
        }
    }

    /// The configuration with what commands have changed, if the file has not changed since.
    pub(super) fn config_of(&self, text: &str) -> Option<Config> {
        (self.text == text).then(|| Config::read("the state of the former run", &self.config).ok())?
    }
}

impl Daemon {
    /// Writes what has changed of the state, in one step.
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
            if bytes == self.saved {
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
        self.saved = written.unwrap_or_else(|| std::mem::take(&mut self.saved));
        Ok(())
    }
}
