//! An iperf3 server.

use std::io;

use super::{Iperf3, KnownProgram, ProgramContext, words};
use crate::plan::Ready;

impl KnownProgram for Iperf3 {
    const NAME: &'static str = "iperf3";
    const PORT: u16 = 5201;

    /// iperf3 treats every connection as a test, so the check reads its output instead of connecting to its port.
    fn ready(_: u16) -> Ready {
        Ready::Log("Server listening".to_owned())
    }

    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
        Ok(words(&["iperf3", "--server", "--forceflush", "--port", &context.known.port.to_string()]))
    }
}
