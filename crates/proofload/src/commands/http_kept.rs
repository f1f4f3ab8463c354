//! What `proofload http` keeps of its trial for `report`: a result folder, and the page.

use load::HttpWorkload;
use record::{ResultFolder, Trial};
use report::{Format, Results};
use study::single::Single;

use super::{http_args::HttpArgs, study::write_kept};
use crate::{exit::Refusal, output::destination::Destination};

/// Places opened before the trial.
pub struct Kept {
    folder: Option<ResultFolder>,
    html: Option<Destination>,
}

impl Kept {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// Names every place that cannot be written to.
    pub fn open(asked: &HttpArgs) -> Result<Self, Refusal> {
        let mut mistakes = Vec::new();
        let folder = asked.out.as_deref().map(ResultFolder::create).transpose();
        let folder = folder.map_err(|error| mistakes.push(format!("--out: {error}"))).unwrap_or_default();
        let html = asked.html.as_deref().map(|path| Destination::open("--html", path)).transpose();
        let html = html.map_err(|mistake| mistakes.push(mistake)).unwrap_or_default();
        if mistakes.is_empty() { Ok(Self { folder, html }) } else { Err(Refusal::new(mistakes)) }
    }

    /// Writes the trial as a study that has no other.
    ///
    /// # Errors
    /// Names the first place that could not be written to.
    pub fn write(self, trial: &Trial, workload: &HttpWorkload) -> Result<(), Refusal> {
        if self.folder.is_none() && self.html.is_none() {
            return Ok(());
        }
        let title = trial.http().map_or_else(String::new, |http| http.plan.url.clone());
        let single =
            Single::new(trial, title, workload.masked().in_words(None, None)).map_err(Refusal::one)?;
        if let Some(folder) = &self.folder {
            single.write(folder).map_err(Refusal::one)?;
        }
        let Single { plan, environment, entry, result } = single;
        let (environment, result) = (Some(environment), Some(result));
        let results = Results { plan, environment, trials: vec![entry], result, so_far: Vec::new() };
        let options = report::Options { colour: false, width_columns: None, page: None };
        if let Some(folder) = &self.folder {
            write_kept(&results, folder, &options)?;
        }
        let page = |output: &mut dyn std::io::Write| report::write(&results, Format::Html, &options, output);
        self.html.map_or(Ok(()), |html| html.write(page))
    }
}
