//! `proofload balance`: a balancer in the kernel, whose servers answer clients directly.

use std::io;

use super::{Balance, KnownProgram, ProgramContext, words};
use crate::{
    keys::{Key, KeyType, key_table},
    plan::Ready,
};

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
