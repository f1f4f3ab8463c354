//! `proofload serve`.

use std::io;

use super::{KnownProgram, ProgramContext, Serve};
use crate::plan::Ready;

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
