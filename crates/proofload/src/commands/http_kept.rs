//! What `proofload http` keeps of its trial: JSON, a log of histograms, the page, and a result folder for `report`.

use std::path::PathBuf;

use load::HttpWorkload;
use record::{ResultFolder, Trial};
use report::{Format, Results};
use study::single::SingleTrial;

use super::{http_args::HttpArgs, study::write_kept};
use crate::{
    exit::Refusal,
    output::{destination::Destination, hlog},
};

/// Places opened before the trial.
pub(super) struct Kept {
    json: Option<Destination>,
    hlog: Option<Destination>,
    folder: Option<ResultFolder>,
    html: Option<Destination>,
}

impl Kept {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// Names every place that cannot be written to.
    pub(super) fn open(asked: &HttpArgs) -> Result<Self, Refusal> {
        let mut mistakes = Vec::new();
        // First of all: the others may lie in it.
        let folder = asked.out.as_deref().map(ResultFolder::create).transpose();
        let folder = folder.map_err(|error| mistakes.push(format!("--out: {error}"))).unwrap_or_default();
        let mut open = |option: &str, path: &Option<PathBuf>| {
            Destination::open(option, path.as_deref()?).map_err(|mistake| mistakes.push(mistake)).ok()
        };
        let (json, hlog) = (open("--json", &asked.json), open("--hlog", &asked.hlog));
        let html = open("--html", &asked.html);
        if hlog.as_ref().is_some_and(Destination::is_stdout) {
            mistakes.push("--hlog: a log of histograms goes to a file, not to standard output".to_owned());
        }
        if mistakes.is_empty() { Ok(Self { json, hlog, folder, html }) } else { Err(Refusal::new(mistakes)) }
    }

    /// Whether the JSON has standard output for itself.
    pub(super) fn json_on_stdout(&self) -> bool {
        self.json.as_ref().is_some_and(Destination::is_stdout)
    }

    /// Writes each, whatever becomes of the others; for the folder and the page, the trial as a study that has no other.
    ///
    /// # Errors
    /// Names the first place that could not be written to.
    pub(super) fn write(self, trial: &Trial, workload: &HttpWorkload) -> Result<(), Refusal> {
        let json = self.json.map_or(Ok(()), |json| json.write_json(trial));
        let hlog = self.hlog.map_or(Ok(()), |hlog| hlog.write(|output| hlog::write(output, trial)));
        let results = match (&self.folder, &self.html) {
            (None, None) => Ok(()),
            _ => write_results(self.folder, self.html, trial, workload),
        };
        json.and(hlog).and(results)
    }
}

fn write_results(
    folder: Option<ResultFolder>,
    html: Option<Destination>,
    trial: &Trial,
    workload: &HttpWorkload,
) -> Result<(), Refusal> {
    let title = trial.http().map_or_else(String::new, |http| http.plan.url.clone());
    let single =
        SingleTrial::new(trial, title, workload.masked().in_words(None, None)).map_err(Refusal::one)?;
    if let Some(folder) = &folder {
        single.write(folder).map_err(Refusal::one)?;
    }
    let SingleTrial { plan, environment, entry, result } = single;
    let (environment, result) = (Some(environment), Some(result));
    let results = Results { plan, environment, trials: vec![entry], result, so_far: Vec::new() };
    let options = report::Options { colour: false, width_columns: None, page: None };
    if let Some(folder) = &folder {
        write_kept(&results, folder, &options)?;
    }
    let page = |output: &mut dyn std::io::Write| report::write(&results, Format::Html, &options, output);
    html.map_or(Ok(()), |html| html.write(page))
}
