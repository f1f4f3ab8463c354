//! `proofload balance`: balances in the kernel; servers answer clients directly.

use std::io;

use serde::{Deserialize, Serialize};

use super::{KnownProgram, ProgramContext, words};
use crate::{
    file::keys::{Key, KeyType, key_table},
    plan::Ready,
};

/// Our own balancer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// Path of its configuration file; empty if `text` is the configuration.
    pub config: String,
    /// Its configuration; none if it is in a file.
    #[serde(default)]
    pub text: Option<String>,
}

impl KnownProgram for Balance {
    const NAME: &'static str = "balance";
    const PORT: u16 = 80;
    const KEYS: &'static [Key<Self>] = key_table! {
        /// path of its configuration file
        "config", KeyType::Text("/etc/proofload/balance.toml", |balance, path| path.clone_into(&mut balance.config));
    };
    const REQUIRED_KEYS: &'static [&'static str] = &["config"];

    fn ready(_: u16) -> Ready {
        Ready::Log("ready: ".to_owned())
    }

    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
        let config = match &self.text {
            Some(text) => context.write("balance.toml", text)?,
            None => self.config.clone(),
        };
        let program = context.program.display().to_string();
        Ok(words(&[&program, Self::NAME, "--config", &config]))
    }
}
