//! The files a trial leaves: JSON, and a log of histograms.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, Tag},
};
use record::Trial;

use crate::exit::Refusal;

/// Files opened before the trial, so that a wrong path is known before an hour of measuring.
pub struct Files {
    json: Option<Output>,
    hlog: Option<Output>,
}

enum Output {
    Stdout,
    File(PathBuf, File),
}

impl Files {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// Names every path that cannot be written.
    pub fn open(json: Option<&Path>, hlog: Option<&Path>) -> Result<Self, Refusal> {
        let mut mistakes = Vec::new();
        let mut open = |option: &str, path: Option<&Path>| match path {
            Some(path) if path == Path::new("-") => Some(Output::Stdout),
            Some(path) => match File::create(path) {
                Ok(file) => Some(Output::File(path.to_owned(), file)),
                Err(error) => {
                    mistakes.push(format!("{option}: cannot write {}: {error}", path.display()));
                    None
                }
            },
            None => None,
        };
        let files = Self { json: open("--json", json), hlog: open("--hlog", hlog) };
        if matches!(files.hlog, Some(Output::Stdout)) {
            mistakes.push("--hlog: a log of histograms goes to a file, not to standard output".to_owned());
        }
        if mistakes.is_empty() { Ok(files) } else { Err(Refusal::new(mistakes)) }
    }

    /// Whether the JSON has standard output for itself.
    pub fn json_on_stdout(&self) -> bool {
        matches!(self.json, Some(Output::Stdout))
    }

    /// Writes them.
    ///
    /// # Errors
    /// Names the file that could not be written.
    pub fn write(self, trial: &Trial) -> Result<(), Refusal> {
        match self.json {
            None => {}
            Some(Output::Stdout) => {
                write_json(io::stdout().lock(), trial)
                    .map_err(|e| refusal(Path::new("standard output"), &e))?;
            }
            Some(Output::File(path, file)) => write_json(file, trial).map_err(|e| refusal(&path, &e))?,
        }
        if let Some(Output::File(path, file)) = self.hlog {
            write_hlog(file, trial).map_err(|e| refusal(&path, &e))?;
        }
        Ok(())
    }
}

fn refusal(path: &Path, error: &io::Error) -> Refusal {
    Refusal::one(format_args!("cannot write {}: {error}", path.display()))
}

fn write_json(output: impl Write, trial: &Trial) -> io::Result<()> {
    let mut output = BufWriter::new(output);
    serde_json::to_writer_pretty(&mut output, trial)?;
    output.write_all(b"\n")?;
    output.flush()
}

/// A log in the format of the HdrHistogram libraries, version 1.3: one line a quantity, told apart by tags.
/// Values are nanoseconds, shown in milliseconds.
fn write_hlog(output: File, trial: &Trial) -> io::Result<()> {
    let mut output = BufWriter::new(output);
    let start = UNIX_EPOCH + Duration::from_secs_f64(trial.started_unix_s);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("proofload {}; values in nanoseconds", trial.proofload_version))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut output, &mut serializer)?;
    for (tag, histogram) in [
        ("response", &trial.response_time.observed),
        ("response-censored", &trial.response_time.censored),
        ("service", &trial.service_time.observed),
        ("service-censored", &trial.service_time.censored),
        ("connect", &trial.connect_time),
        ("first-byte", &trial.first_byte_time),
        ("lateness", &trial.lateness),
        ("own-lateness", &trial.own_lateness),
    ] {
        let length = Duration::from_secs_f64(trial.elapsed_s);
        log.write_histogram(&*histogram.to_hdr(), Duration::ZERO, length, Tag::new(tag))
            .map_err(|e| io::Error::other(format!("{e:?}")))?;
    }
    drop(log);
    output.flush()
}
