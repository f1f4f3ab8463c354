//! `proofload http`: one trial.

use std::sync::atomic::Ordering;

use fleet::FleetError;
use load::{MachineLimits, RunError, preflight, raise_descriptors};
use record::{HttpPlan, Trial};
use study::single;

use super::{http_args::HttpArgs, http_kept::Kept, stop, workload_args::told_by_option};
use crate::{
    exit::{Exit, Refusal},
    output::{progress::Progress, standard, trial_text},
};

/// Runs the trial and shows it.
pub(crate) fn run(arguments: &HttpArgs) -> Result<Exit, Refusal> {
    let host = MachineLimits::read().map_err(Refusal::one)?;
    let mut plan = arguments.plan(&host).map_err(Refusal::new)?;
    // Of what was asked for, not of what is made of it.
    let doubt = arguments.doubt(&plan, &host);
    fit(&mut plan, &host, arguments)?;
    doubt.iter().for_each(|doubt| standard::tell(format_args!("proofload: {doubt}")));
    let kept = Kept::open(arguments)?;
    raise_descriptors();
    let stop = stop::on_signal()?;

    let mut progress = Progress::new(&plan, arguments.quiet);
    let worker = ["worker".to_owned()];
    let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let outcome =
        single::run(plan, fleet::Workers::Here(&worker), &stop, &command, |tick| progress.show(tick));
    progress.end();
    let trial = match outcome {
        Ok(trial) => trial,
        Err((FleetError::Run(RunError::Cancelled), _)) if stop.load(Ordering::Relaxed) => {
            standard::tell("proofload: interrupted before the start; nothing was measured");
            return Ok(Exit::Interrupted);
        }
        Err((error, _)) => return Err(Refusal::one(error)),
    };
    let is_shown = !kept.json_on_stdout();
    let written = kept.write(&trial, &arguments.workload());
    // What was measured is told, whatever became of the files.
    let shown = if is_shown { standard::show(&trial_text::render(&trial)) } else { Ok(()) };
    written.and(shown).and(receipts(&trial))?;
    Ok(verdict(&trial))
}

/// Receipts are files that were asked for, as all others: without them the trial has not done what it was for.
fn receipts(trial: &Trial) -> Result<(), Refusal> {
    let lost = trial.warnings.iter().filter(|warning| warning.code == "receipts_lost");
    let lost: Vec<String> = lost.map(|warning| format!("--receipts: {}", warning.message)).collect();
    if lost.is_empty() { Ok(()) } else { Err(Refusal::new(lost)) }
}

/// Fits the plan to this machine, and says how; refuses what does not fit unless it is forced.
fn fit(plan: &mut HttpPlan, host: &MachineLimits, arguments: &HttpArgs) -> Result<(), Refusal> {
    let mut refusals: Vec<String> = preflight::missing_here(plan).into_iter().map(told_by_option).collect();
    let mut notes = Vec::new();
    let option = if plan.load.is_open() { "--connections" } else { "--users" };
    match preflight::fit_or_advise(plan, host, arguments.workload().fixed_by_user(), option) {
        Ok(changes) => notes = changes,
        Err(more) => refusals.extend(more),
    }
    if !refusals.is_empty() && !plan.forced {
        refusals
            .push("nothing was sent; --force runs it all the same, and the trial will be void".to_owned());
        return Err(Refusal::new(refusals));
    }
    notes.iter().for_each(|note| standard::tell(format_args!("proofload: using {note}")));
    for refusal in refusals {
        standard::tell(format_args!("proofload: forced to run although: {refusal}"));
    }
    Ok(())
}

/// A worker process.
pub(crate) fn work() -> Result<Exit, Refusal> {
    raise_descriptors();
    fleet::run_worker().map(|()| Exit::GoalsMet).map_err(Refusal::one)
}

fn verdict(trial: &Trial) -> Exit {
    match () {
        () if trial.interrupted => Exit::Interrupted,
        () if trial.validity.is_void() => Exit::Void,
        () if report::trial_answer(trial).0 == report::Status::Met => Exit::GoalsMet,
        () => Exit::GoalsNotMet,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        http: HttpArgs,
    }

    #[test]
    fn addresses_and_processors_of_others_are_refused_by_their_options() {
        let host = MachineLimits::EXAMPLE;
        let fits = |line: &str| {
            let words = ["http", "127.0.0.1/"].into_iter().chain(line.split_whitespace());
            let arguments = Line::try_parse_from(words).unwrap().http;
            fit(&mut arguments.plan(&host).unwrap(), &host, &arguments)
        };
        assert!(fits("--source 127.0.0.1-127.0.0.9").is_ok());
        let told = format!("{:?}", fits("--source 192.0.2.9 --cpus 4095").unwrap_err());
        assert!(told.contains("--source: 192.0.2.9 is no address of this machine; see `ip addr`"), "{told}");
        assert!(told.contains("--cpus: no thread can be pinned to 4095"), "{told}");
        assert!(fits("--source 192.0.2.9 --force").is_ok());
    }
}
