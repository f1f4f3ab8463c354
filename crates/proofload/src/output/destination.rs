//! Where a file that the user asked for goes.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use record::printable::{PrintableWriter, printable_json};
use serde::Serialize;

use crate::{exit::Refusal, output::standard};

/// A file, or standard output, opened before anything is measured: a wrong path must not cost an hour.
pub(crate) enum Destination {
    /// What `-` stands for.
    Stdout,
    /// A file, by its path.
    File(PathBuf, File),
}

impl Destination {
    /// Opens it; `-` is standard output.
    ///
    /// # Errors
    /// Names the option and the path that cannot be written.
    pub(crate) fn open(option: &str, path: &Path) -> Result<Self, String> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        // Emptied only when there is something to write: what is refused until then must not cost an older result.
        match File::options().write(true).create(true).truncate(false).open(path) {
            Ok(file) => Ok(Self::File(path.to_owned(), file)),
            Err(error) => Err(format!("{option}: cannot write {}: {error}", path.display())),
        }
    }

    /// Opens what an option names, if it was given.
    ///
    /// # Errors
    /// As for [`Destination::open`].
    pub(crate) fn of(option: &str, path: Option<&Path>) -> Result<Option<Self>, Refusal> {
        path.map(|path| Self::open(option, path)).transpose().map_err(Refusal::one)
    }

    /// Whether it has standard output for itself.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    /// Lets `write` write to it.
    ///
    /// # Errors
    /// Names the file that could not be written.
    pub(crate) fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Refusal> {
        match self {
            Self::Stdout => {
                let output = PrintableWriter::new(BufWriter::new(io::stdout().lock()), standard::harmless);
                flushed(output, write).map_err(|error| standard::failed(&error))
            }
            Self::File(path, file) => {
                // A pipe or a device has no length.
                let is_file = file.metadata().is_ok_and(|about| about.is_file());
                let empty = || if is_file { file.set_len(0) } else { Ok(()) };
                let written = empty().and_then(|()| flushed(BufWriter::new(&file), write));
                written.map_err(|error| {
                    // A part of a file looks like a file. That it cannot be emptied was told by the first error.
                    let _ = empty();
                    Refusal::one(format_args!("cannot write {}: {error}", path.display()))
                })
            }
        }
    }

    /// Writes a value as indented JSON, with a newline at the end.
    ///
    /// # Errors
    /// As for [`Destination::write`].
    pub(crate) fn write_json(self, value: &impl Serialize) -> Result<(), Refusal> {
        self.write(|output| {
            serde_json::to_writer_pretty(PrintableWriter::new(&mut *output, printable_json), value)?;
            output.write_all(b"\n")
        })
    }
}

/// Writes a result as JSON where that was asked for, and shows its text unless the JSON has standard output for itself.
///
/// # Errors
/// As for [`Destination::write`].
pub(crate) fn leave(
    json: Option<Destination>,
    result: &impl Serialize,
    is_quiet: bool,
    text: impl FnOnce() -> String,
) -> Result<(), Refusal> {
    let is_shown = !is_quiet && !json.as_ref().is_some_and(Destination::is_stdout);
    if let Some(json) = json {
        json.write_json(result)?;
    }
    if is_shown { standard::show(&text()) } else { Ok(()) }
}

fn flushed(mut output: impl Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write(&mut output)?;
    output.flush()
}
