//! Output files that the user asks for by an option.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use record::printable::{PrintableWriter, printable_json};
use serde::Serialize;

use crate::{
    exit::{Refusal, Result},
    output::standard,
};

/// A file or standard output. It is opened before the measurement, so that a wrong path is found at once.
pub(crate) enum Destination {
    /// Standard output, given as `-`.
    Stdout,
    /// A file.
    File(OutputFile),
}

/// An opened file. If it was made for this output and is still empty at the end, it is removed.
pub(crate) struct OutputFile {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl Destination {
    /// Opens `path` for writing; `-` is standard output.
    ///
    /// # Errors
    /// If the file cannot be opened; the message names the option and the path.
    pub(crate) fn open(option: &str, path: &Path) -> Result<Self, String> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        // Truncated only by `write`: a run that is refused before must not destroy an older result.
        let mut options = File::options();
        options.write(true);
        let opened = match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.create(true).truncate(false).open(path).map(|file| (file, false))
            }
            created => created.map(|file| (file, true)),
        };
        match opened {
            Ok((file, is_new)) => Ok(Self::File(OutputFile { path: path.to_owned(), file, is_new })),
            Err(error) => Err(format!("{option}: cannot write {}: {error}", path.display())),
        }
    }

    /// Opens the path of an option that may be missing.
    ///
    /// # Errors
    /// As for [`Destination::open`].
    pub(crate) fn open_optional(option: &str, path: Option<&Path>) -> Result<Option<Self>> {
        path.map(|path| Self::open(option, path)).transpose().map_err(Refusal::one)
    }

    /// Whether the destination is standard output; then nothing else may be written there.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    /// Calls `write` with the opened output.
    ///
    /// # Errors
    /// If writing fails; the message names the file.
    pub(crate) fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result {
        match self {
            Self::Stdout => {
                let output =
                    PrintableWriter::new(BufWriter::new(io::stdout().lock()), standard::printable_lines);
                write_and_flush(output, write).map_err(|error| standard::write_failed(&error))
            }
            Self::File(output) => {
                let OutputFile { path, file, .. } = &output;
                // Pipes and devices cannot be truncated.
                let is_file = file.metadata().is_ok_and(|about| about.is_file());
                let truncate = || if is_file { file.set_len(0) } else { Ok(()) };
                let written = truncate().and_then(|()| write_and_flush(BufWriter::new(file), write));
                written.map_err(|error| {
                    // A partial file looks like a whole one. An error here is not reported: the first error is.
                    let _ = truncate();
                    Refusal::one(format_args!("cannot write {}: {error}", path.display()))
                })
            }
        }
    }

    /// Writes a value as indented JSON with a final newline.
    ///
    /// # Errors
    /// As for [`Destination::write`].
    pub(crate) fn write_json(self, value: &impl Serialize) -> Result {
        self.write(|output| {
            serde_json::to_writer_pretty(PrintableWriter::new(&mut *output, printable_json), value)?;
            output.write_all(b"\n")
        })
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new && self.file.metadata().is_ok_and(|about| about.is_file() && about.len() == 0) {
            // Nobody needs to know of an empty file that stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes the result as JSON to `json`, if given. Then prints `text`, unless `is_quiet` or the JSON went to standard
/// output.
///
/// # Errors
/// As for [`Destination::write`].
pub(crate) fn write_result(
    json: Option<Destination>,
    result: &impl Serialize,
    is_quiet: bool,
    text: impl FnOnce() -> String,
) -> Result {
    let is_shown = !is_quiet && !json.as_ref().is_some_and(Destination::is_stdout);
    if let Some(json) = json {
        json.write_json(result)?;
    }
    if is_shown { standard::print_wrapped(&text()) } else { Ok(()) }
}

fn write_and_flush(
    mut output: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write(&mut output)?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_writes_nothing_leaves_no_file_and_harms_none() {
        let folder = tempfile::tempdir().unwrap();
        let [new, old] = ["new", "old"].map(|name| folder.path().join(name));
        fs::write(&old, "").unwrap();
        let open = |path: &Path| Destination::open("--json", path).unwrap();
        drop((open(&new), open(&old)));
        assert!(!new.exists() && old.exists());
        open(&new).write(|output| output.write_all(b"x")).unwrap();
        drop(open(&new));
        assert_eq!(fs::read(&new).unwrap(), b"x");
    }
}
