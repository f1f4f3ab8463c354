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
use load::HttpWorkload;
use record::{ResultFolder, Trial};
use report::{Format, Results};
use study::single::Single;

use crate::{
    commands::{http_args::HttpArgs, study::write_kept as study_files},
    exit::Refusal,
    output::destination::Destination,
};

/// Files opened before the trial.
pub struct Files {
    json: Option<Destination>,
    hlog: Option<Destination>,
    html: Option<Destination>,
    folder: Option<ResultFolder>,
}

impl Files {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// Names every path that cannot be written.
    pub fn open(asked: &HttpArgs) -> Result<Self, Refusal> {
        let mut mistakes = Vec::new();
        let folder = asked.out.as_deref().map(ResultFolder::create).transpose();
        let folder = folder.map_err(|error| mistakes.push(format!("--out: {error}"))).unwrap_or_default();
        let mut open = |option: &str, path: Option<&Path>| {
            Destination::open(option, path?).map_err(|mistake| mistakes.push(mistake)).ok()
        };
        let files = Self {
            json: open("--json", asked.json.as_deref()),
            hlog: open("--hlog", asked.hlog.as_deref()),
            html: open("--html", asked.html.as_deref()),
            folder,
        };
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
    pub fn write(self, trial: &Trial, workload: &HttpWorkload) -> Result<(), Refusal> {
        let study = if self.html.is_some() || self.folder.is_some() {
            write_study(trial, workload, self.folder.as_ref(), self.html)
        } else {
            Ok(())
        };
        let json = self.json.map_or(Ok(()), |json| json.write_json(trial));
        let hlog = self.hlog.map_or(Ok(()), |hlog| hlog.write(|output| write_hlog(output, trial)));
        json.and(hlog).and(study)
    }
}

/// The trial as a study that has no other: its folder, and its page.
fn write_study(
    trial: &Trial,
    workload: &HttpWorkload,
    folder: Option<&ResultFolder>,
    html: Option<Destination>,
) -> Result<(), Refusal> {
    let words = workload.masked().in_words(None, None);
    let title = trial.http().map_or_else(String::new, |http| http.plan.url.clone());
    let single = Single::new(trial, title, words).map_err(Refusal::one)?;
    if let Some(folder) = folder {
        single.write(folder).map_err(Refusal::one)?;
    }
    let Single { plan, environment, entry, result } = single;
    let results = Results {
        plan,
        environment: Some(environment),
        trials: vec![entry],
        result: Some(result),
        so_far: Vec::new(),
    };
    let options = report::Options { colour: false, width_columns: None, page: None };
    if let Some(folder) = folder {
        study_files(&results, folder, &options)?;
    }
    html.map_or(Ok(()), |html| html.write(|output| report::write(&results, Format::Html, &options, output)))
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
