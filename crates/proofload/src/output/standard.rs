//! Standard output and standard error.

use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
};

pub(crate) use record::printable::printable_lines as harmless;

use super::wrap::wrapped;
use crate::exit::{Exit, Refusal};

/// Writes text to standard output for a program that reads it, or for people. Whoever made it has escaped what is
/// foreign in it as its format demands; what acts on a terminal none the less is shown here.
///
/// # Errors
/// As [`failed`] says.
pub(crate) fn print(text: &str) -> Result<(), Refusal> {
    write(&harmless(text))
}

/// Writes text that people read to standard output, as wide as the terminal if it is one.
///
/// # Errors
/// As [`failed`] says.
pub(crate) fn show(text: &str) -> Result<(), Refusal> {
    show_coloured(&harmless(text))
}

/// The same for text in which colours are set, and in which foreign text has been escaped.
///
/// # Errors
/// As [`failed`] says.
pub(crate) fn show_coloured(text: &str) -> Result<(), Refusal> {
    let text = without_commands(text);
    match columns(io::stdout()) {
        Some(columns) => write(&wrapped(&text, columns)),
        None => write(&text),
    }
}

fn write(text: &str) -> Result<(), Refusal> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| failed(&error))
}

/// How wide a terminal is; none if it is none, or does not know.
pub(crate) fn columns(terminal: impl IsTerminal + AsFd) -> Option<usize> {
    let size = terminal.is_terminal().then(|| rustix::termios::tcgetwinsize(&terminal).ok())??;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Writes a line to standard error, secrets masked. That nobody can read it ends nothing: a terminal may be gone.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", fitted(&secrets::mask(&line.to_string())));
}

/// A line for standard error, harmless, and as wide as the terminal if it is one.
pub(crate) fn fitted(line: &str) -> String {
    let line = harmless(&without_commands(line)).into_owned();
    columns(io::stderr()).map(|columns| wrapped(&line, columns)).unwrap_or(line)
}

/// The text without lines that the log of a GitHub workflow would obey: only `--github-annotations` gives orders.
fn without_commands(text: &str) -> Cow<'_, str> {
    if !text.contains("::") && !text.contains("##[") {
        return Cow::Borrowed(text);
    }
    let line = |line: &str| {
        let words = line.trim_start();
        let obeyed = words.starts_with("::") || words.starts_with("##[");
        if obeyed { line.replacen(words, &format!("\\{words}"), 1) } else { line.to_owned() }
    };
    Cow::Owned(text.split('\n').map(line).collect::<Vec<_>>().join("\n"))
}

/// What it means that standard output takes no more: nothing is wrong where its reader has left (`| head`), but what was
/// found was not read.
pub(crate) fn failed(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Refusal::nobody_reads(),
        _ => Refusal::one(format_args!("cannot write to standard output: {error}")),
    }
}

/// Tells every mistake on standard error, secrets masked, and gives the exit status.
pub(crate) fn refuse(refusal: &Refusal) -> Exit {
    for mistake in refusal.mistakes() {
        tell(format_args!("proofload: {mistake}"));
    }
    if refusal.mistakes().is_empty() { Exit::NobodyReads } else { Exit::WrongUse }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_gives_no_orders() {
        for (text, shown) in [
            ("a\u{1b}[2Jb\rc\td\n", "a\\u{1b}[2Jb\\rc\td\n"),
            ("\u{1b}]0;title\u{7}\u{9b}2J\u{202e}", "\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{202e}"),
        ] {
            assert_eq!(harmless(text), shown);
        }
        let obeyed = "a\n::error::b\n  ##[error]c\n[::1]:80\n";
        assert_eq!(without_commands(obeyed), "a\n\\::error::b\n  \\##[error]c\n[::1]:80\n");
    }
}
