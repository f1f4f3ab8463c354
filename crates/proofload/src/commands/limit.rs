//! `proofload limit`: searches the largest load that meets the goals.

use load::MachineLimits;

pub(crate) use super::limit_args::LimitArgs;
use super::study::{StudyRun, run_study};
use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Runs the search and shows the result.
pub(crate) fn run(arguments: &LimitArgs) -> Result<Exit> {
    let host = MachineLimits::read().map_err(Refusal::one)?;
    let study = arguments.study(&host).map_err(Refusal::new)?;
    standard::note(arguments.curl_notes().into_iter().chain(arguments.time_note()));
    run_study(StudyRun {
        study,
        name: "limit",
        out: arguments.out.clone(),
        resume: arguments.resume,
        prove: arguments.prove,
        json: arguments.json.as_deref(),
        quiet: arguments.quiet,
    })
}
