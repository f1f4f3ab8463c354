//! `proofload serve`.

use std::io;

use serde::{Deserialize, Serialize};

use super::{KnownProgram, ProgramContext};
use crate::plan::Ready;

/// Our own target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Serve {}

impl KnownProgram for Serve {
    const NAME: &'static str = "serve";
    const PORT: u16 = 8080;

    fn ready(_: u16) -> Ready {
        Ready::Log("listening on".to_owned())
    }

    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
        Ok(context.own_command(Self::NAME))
    }
}
