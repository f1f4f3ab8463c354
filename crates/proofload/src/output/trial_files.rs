//! The files a trial leaves: JSON, and a log of histograms.

use std::{
    io::{self, Write},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, Tag},
};
use record::Trial;

use crate::{exit::Refusal, output::destination::Destination};

/// Files opened before the trial.
pub struct Files {
    json: Option<Destination>,
    hlog: Option<Destination>,
}

impl Files {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// Names every path that cannot be written.
    pub fn open(json: Option<&Path>, hlog: Option<&Path>) -> Result<Self, Refusal> {
        let mut mistakes = Vec::new();
        let mut open = |option: &str, path: Option<&Path>| {
            Destination::open(option, path?).map_err(|mistake| mistakes.push(mistake)).ok()
        };
        let files = Self { json: open("--json", json), hlog: open("--hlog", hlog) };
        if files.hlog.as_ref().is_some_and(Destination::is_stdout) {
            mistakes.push("--hlog: a log of histograms goes to a file, not to standard output".to_owned());
        }
        if mistakes.is_empty() { Ok(files) } else { Err(Refusal::new(mistakes)) }
    }

    /// Whether the JSON has standard output for itself.
    pub fn json_on_stdout(&self) -> bool {
        self.json.as_ref().is_some_and(Destination::is_stdout)
    }

    /// Writes them, each whatever becomes of the other.
    ///
    /// # Errors
    /// Names the first that could not be written.
    pub fn write(self, trial: &Trial) -> Result<(), Refusal> {
        let json = self.json.map_or(Ok(()), |json| json.write_json(trial));
        let hlog = self.hlog.map_or(Ok(()), |hlog| hlog.write(|output| write_hlog(output, trial)));
        json.and(hlog)
    }
}

/// A log in the format of the HdrHistogram libraries, version 1.3: one line a quantity, told apart by tags.
/// Values are nanoseconds, shown in milliseconds.
fn write_hlog(mut output: &mut dyn Write, trial: &Trial) -> io::Result<()> {
    let Some(http) = trial.http() else { return Ok(()) };
    let start = UNIX_EPOCH + Duration::from_secs_f64(trial.started_unix_s);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("proofload {}; values in nanoseconds", trial.proofload_version))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut output, &mut serializer)?;
    for (tag, histogram) in [
        ("response", &http.response_time.observed),
        ("response-censored", &http.response_time.censored),
        ("service", &http.service_time.observed),
        ("service-censored", &http.service_time.censored),
        ("connect", &http.connect_time),
        ("first-byte", &http.first_byte_time),
        ("lateness", &http.lateness),
        ("own-lateness", &http.own_lateness),
    ] {
        let length = Duration::from_secs_f64(trial.elapsed_s);
        log.write_histogram(&*histogram.to_hdr(), Duration::ZERO, length, Tag::new(tag))
            .map_err(|e| io::Error::other(format!("{e:?}")))?;
    }
    Ok(())
}
