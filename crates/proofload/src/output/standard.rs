//! Standard output and standard error.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
};

use super::wrap::wrapped;
use crate::exit::Refusal;

/// Writes text to standard output.
///
/// # Errors
/// As [`failed`] says.
pub fn print(text: &str) -> Result<(), Refusal> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| failed(&error))
}

/// Writes text that people read to standard output, as wide as the terminal if it is one.
///
/// # Errors
/// As [`failed`] says.
pub fn show(text: &str) -> Result<(), Refusal> {
    match columns(io::stdout()) {
        Some(columns) => print(&wrapped(text, columns)),
        None => print(text),
    }
}

/// How wide a terminal is; none if it is none, or does not know.
pub fn columns(terminal: impl IsTerminal + AsFd) -> Option<usize> {
    let size = terminal.is_terminal().then(|| rustix::termios::tcgetwinsize(&terminal).ok())??;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Writes a line to standard error, secrets masked. That nobody can read it ends nothing: a terminal may be gone.
pub fn tell(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", fitted(secrets::mask(&line.to_string()).into_owned()));
}

/// A line for standard error, as wide as the terminal if it is one.
pub fn fitted(line: String) -> String {
    columns(io::stderr()).map(|columns| wrapped(&line, columns)).unwrap_or(line)
}

/// What it means that standard output takes no more: nothing is wrong where its reader has left (`| head`), but what was
/// found was not read.
pub fn failed(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Refusal::nobody_reads(),
        _ => Refusal::one(format_args!("cannot write to standard output: {error}")),
    }
}
