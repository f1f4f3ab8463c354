//! Standard output and standard error.

use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
};

use files::Watched;
pub(crate) use record::printable::printable_lines;

use super::wrap::wrapped;
use crate::exit::{Exit, Refusal, Result};

/// Writes text to standard output without wrapping it. The caller escapes untrusted text as the output format requires;
/// this function makes the remaining control characters visible.
///
/// # Errors
/// See [`write_failed`].
pub(crate) fn print_raw(text: &str) -> Result {
    write(&printable_lines(text))
}

/// Writes text for people to standard output. If that is a terminal, wraps the text at its width.
///
/// # Errors
/// See [`write_failed`].
pub(crate) fn print_wrapped(text: &str) -> Result {
    print_coloured(&printable_lines(text))
}

/// Like [`print_wrapped`], for text that contains colour sequences. The caller has already escaped untrusted text.
///
/// # Errors
/// See [`write_failed`].
pub(crate) fn print_coloured(text: &str) -> Result {
    let text = secrets::mask::mask_learned_text(text);
    let text = without_workflow_commands(&text);
    match columns(io::stdout()) {
        Some(columns) => write(&wrapped(&text, columns)),
        None => write(&text),
    }
}

fn write(text: &str) -> Result {
    let mut output = Watched::of(io::stdout().lock());
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| write_failed(&error))
}

/// The width of a terminal in columns; `None` if it is not a terminal or the width is unknown.
pub(crate) fn columns(terminal: impl IsTerminal + AsFd) -> Option<usize> {
    let size = terminal.is_terminal().then(|| rustix::termios::tcgetwinsize(&terminal).ok())??;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Says that the user ended a command before its load. Returns the exit status.
pub(crate) fn interrupted_before_start() -> Exit {
    print_to_stderr("proofload: interrupted before the start; nothing was measured");
    Exit::Interrupted
}

/// Writes a line to standard error after [`for_stderr`] has prepared it. Ignores errors: the terminal may be closed.
pub(crate) fn print_to_stderr(line: impl Display) {
    let line = for_stderr(&line.to_string()) + "\n";
    let _ = Watched::of(io::stderr().lock()).write_all(line.as_bytes());
}

/// Writes each note to standard error on a separate line.
pub(crate) fn note(notes: impl IntoIterator<Item = String>) {
    notes.into_iter().for_each(|note| print_to_stderr(format_args!("proofload: {note}")));
}

/// Returns a function that writes the program's messages to standard error at once, or discards them if `is_quiet` is
/// set.
pub(crate) fn telling(is_quiet: bool) -> impl FnMut(&str) {
    move |words| note((!is_quiet).then(|| words.to_owned()))
}

/// Prepares a line for standard error: masks secrets, makes control characters visible and wraps at the width of the terminal.
pub(crate) fn for_stderr(line: &str) -> String {
    let line = printable_lines(&without_workflow_commands(&secrets::mask(line))).into_owned();
    columns(io::stderr()).map(|columns| wrapped(&line, columns)).unwrap_or(line)
}

/// Escapes lines that GitHub's runner would execute as workflow commands. Only `--github-annotations` may print
/// commands.
fn without_workflow_commands(text: &str) -> Cow<'_, str> {
    if !text.contains("::") && !text.contains("##[") {
        return Cow::Borrowed(text);
    }
    let line = |line: &str| {
        let words = line.trim_start();
        let is_command = words.starts_with("::") || words.starts_with("##[");
        if is_command { line.replacen(words, &format!("\\{words}"), 1) } else { line.to_owned() }
    };
    Cow::Owned(text.split('\n').map(line).collect::<Vec<_>>().join("\n"))
}

/// The refusal for a failed write to standard output. A closed pipe (`| head`) is not a mistake and has its own exit
/// status.
pub(crate) fn write_failed(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Refusal::stdout_closed(),
        _ => Refusal::one(format_args!("cannot write to standard output: {error}")),
    }
}

/// Prints every mistake of a refusal to standard error and returns the exit status.
pub(crate) fn print_refusal(refusal: &Refusal) -> Exit {
    for mistake in refusal.mistakes() {
        print_to_stderr(format_args!("proofload: {mistake}"));
    }
    if refusal.mistakes().is_empty() { Exit::StdoutClosed } else { Exit::WrongUse }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_act_on_a_terminal_or_a_workflow() {
        for (text, shown) in [
            ("a\u{1b}[2Jb\rc\td\n", "a\\u{1b}[2Jb\\rc\td\n"),
            ("\u{1b}]0;title\u{7}\u{9b}2J\u{202e}", "\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{202e}"),
        ] {
            assert_eq!(printable_lines(text), shown);
        }
        let commands = "a\n::error::b\n  ##[error]c\n[::1]:80\n";
        assert_eq!(without_workflow_commands(commands), "a\n\\::error::b\n  \\##[error]c\n[::1]:80\n");
    }
}
