//! `proofload limit`: searches for the largest load that meets the goals.

use load::MachineLimits;
use study::{Begin, Search, Study};

pub(crate) use super::limit_args::LimitArgs;
use super::study::{StudyRun, run_study};
use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Runs the search and prints the result.
pub(crate) fn run(arguments: &LimitArgs) -> Result<Exit> {
    let host = MachineLimits::read().map_err(Refusal::one)?;
    let study = arguments.study(&host).map_err(Refusal::new)?;
    if let Some(path) = &arguments.save {
        let same = |read: &Study| is_same(read, &study);
        return arguments.saved(&study).write(path, &host, same);
    }
    standard::note(arguments.curl_notes().into_iter().chain(arguments.time_note()));
    run_study(StudyRun {
        study,
        name: "limit",
        out: arguments.out.clone(),
        resume: arguments.resume,
        prove: arguments.prove,
        json: arguments.json.as_deref(),
        quiet: arguments.quiet,
        placed: None,
        fleet: &arguments.fleet,
    })
}

/// Whether two studies search in the same way. Ignores the initial look, which study files cannot express.
fn is_same(one: &Study, other: &Study) -> bool {
    let search =
        |study: &Study| study.search.clone().map(|search| Search { begin: Begin::Smallest, ..search });
    search(one) == search(other)
        && one.goals == other.goals
        && one.trial == other.trial
        && (one.budget, &one.observe) == (other.budget, &other.observe)
}
