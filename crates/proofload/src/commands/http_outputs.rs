//! The files that `proofload http` writes: JSON, an HdrHistogram log, an HTML page and a result folder.

use std::path::PathBuf;

use load::HttpWorkload;
use record::{HttpPlan, Trial, folder::TrialJournal};
use report::{Format, Results};
use study::single::SingleTrial;

use super::{
    http_args::HttpArgs,
    study::{place, write_reports},
};
use crate::{
    exit::{Refusal, Result},
    output::{destination::Destination, hlog},
};

/// The requested outputs, opened before the trial.
pub(super) struct Outputs {
    json: Option<Destination>,
    hlog: Option<Destination>,
    folder: Option<TrialJournal>,
    html: Option<Destination>,
}

impl Outputs {
    /// Opens the requested outputs.
    ///
    /// # Errors
    /// All outputs that cannot be opened.
    pub(super) fn open(arguments: &HttpArgs, plan: &HttpPlan) -> Result<Self> {
        let mut mistakes = Vec::new();
        let receipts = plan.events.as_ref().and_then(|events| events.receipts.as_ref());
        let receipts = receipts.into_iter().flat_map(|receipts| {
            (0..u64::from(plan.threads * plan.processes)).map(|worker| receipts.file(worker))
        });
        for file in receipts {
            let claimed = files::claim("--receipts", &file);
            mistakes.extend(claimed.err().map(|why| format!("--receipts: {}: {why}", file.display())));
        }
        // Created first, because the other files may be in it.
        let made = |path| {
            let begun = place(path)?.make().and_then(|folder| folder.begin());
            begun.map_err(|error| Refusal::one(format_args!("--out: {error}")))
        };
        let folder = arguments.out.as_deref().map(made).transpose()?;
        let mut open = |option: &str, path: &Option<PathBuf>| {
            Destination::open(option, path.as_deref()?).map_err(|mistake| mistakes.push(mistake)).ok()
        };
        let (json, hlog) = (open("--json", &arguments.json), open("--hlog", &arguments.hlog));
        let html = open("--html", &arguments.html);
        if hlog.as_ref().is_some_and(Destination::is_stdout) {
            mistakes.push("--hlog: a log of histograms goes to a file, not to standard output".to_owned());
        }
        if mistakes.is_empty() { Ok(Self { json, hlog, folder, html }) } else { Err(Refusal::new(mistakes)) }
    }

    /// Whether the JSON goes to standard output.
    pub(super) fn json_on_stdout(&self) -> bool {
        self.json.as_ref().is_some_and(Destination::is_stdout)
    }

    /// Writes the outputs; continues after an error. The folder and the page show the trial as a study with a single
    /// trial.
    ///
    /// # Errors
    /// The error of the first output that failed.
    pub(super) fn write(self, trial: &Trial, workload: &HttpWorkload) -> Result {
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
    mut folder: Option<TrialJournal>,
    html: Option<Destination>,
    trial: &Trial,
    workload: &HttpWorkload,
) -> Result {
    let title = trial.http().map_or_else(String::new, |http| http.plan.url.clone());
    let single = SingleTrial::new(trial, title, workload.in_words(None, None)).map_err(Refusal::one)?;
    let written = folder.as_mut().map_or(Ok(()), |folder| single.write(folder).map_err(Refusal::one));
    let SingleTrial { plan, environment, entry, result } = single;
    let (environment, result) = (Some(environment), Some(result));
    let results = Results { plan, environment, trials: vec![entry], result, so_far: Vec::new() };
    let options = report::Options { colour: false, width_columns: None, page: None };
    let reported = match &folder {
        Some(journal) if written.is_ok() => write_reports(&results, journal.folder(), &options),
        _ => Ok(()),
    };
    // Written even if the folder failed, because the page may be on another disk.
    let page = |output: &mut dyn std::io::Write| report::write(&results, Format::Html, &options, output);
    written.and(reported).and(html.map_or(Ok(()), |html| html.write(page)))
}
