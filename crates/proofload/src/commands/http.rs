//! `proofload http`: runs one trial.

use std::sync::atomic::Ordering;

use fleet::{FleetError, only_here};
use load::{MachineLimits, RunError, addresses, preflight, raise_descriptors};
use record::{HttpPlan, Trial, VoidRule};
use study::{Event, Generator, RemoteHosts, noise, single};

use super::{http_args::HttpArgs, http_outputs::Outputs, workload_args::option_mistake};
use crate::{
    exit::{Exit, Refusal, Result},
    output::{progress::Progress, standard, trial_text},
};

/// Runs the trial and prints the result.
pub(crate) fn run(arguments: &HttpArgs) -> Result<Exit> {
    standard::note(arguments.time_note());
    run_shown(arguments, true, trial_text::render)
}

/// Runs the trial and prints it as rendered by `render`. With `looks`, checks this machine before the trial.
pub(crate) fn run_shown(
    arguments: &HttpArgs,
    looks: bool,
    render: impl FnOnce(&Trial) -> String,
) -> Result<Exit> {
    let here = MachineLimits::read().map_err(Refusal::one)?;
    let mut plan = arguments.plan(&here).map_err(Refusal::new)?;
    if let Some(path) = &arguments.save {
        let on_noise = arguments.noise.on_noise.unwrap_or_default();
        return arguments.saved().write(path, &here, |read| {
            read.observe == arguments.observe.observe
                && (read.trial.on_noise, read.trial.void_attempts) == (on_noise, 0)
        });
    }
    // The hint is about the given options, so it must precede changes to the plan.
    let hint = arguments.ab_hint(&plan, &here);
    let stop = crate::stop::on_signal()?;
    let machines = match only_here(&plan) {
        _ if arguments.fleet.on.is_empty() && !arguments.fleet.pool.is_given() => None,
        refused if refused.is_empty() => match arguments.fleet.connect(&stop, arguments.quiet)? {
            Ok(machines) => machines,
            Err(interrupted) => return Ok(interrupted),
        },
        refused => return Err(Refusal::new(refused.into_iter().map(option_mistake).collect())),
    };
    let mut host = here;
    if let Some(machines) = &machines {
        let (of_one, all) = machines.limits();
        plan = arguments.plan(&of_one).map_err(Refusal::new)?;
        plan.processes = plan.processes.max(machines.weight());
        host = all;
    }
    for note in addresses::choose(&mut plan, &mut Vec::new()) {
        standard::print_to_stderr(format_args!("proofload: using {note}"));
    }
    fit(&mut plan, &host, arguments, machines.is_none())?;
    if let Some(machines) = &machines {
        plan.processes = plan.processes.next_multiple_of(machines.weight());
    }
    standard::note(arguments.curl_notes().into_iter().chain(hint));
    let remotes = RemoteHosts::connect(&arguments.observe.observe).map_err(Refusal::new)?;
    let outputs = Outputs::open(arguments, &plan)?;
    raise_descriptors();

    let on_noise = arguments.noise.on_noise.unwrap_or_default();
    let mut tell = standard::telling(arguments.quiet);
    // This machine is looked at only if it makes the load.
    let looks = looks && machines.is_none();
    let noise = if looks { noise::before_trial(&plan, on_noise, &stop, &mut tell) } else { None };
    let mut progress = Progress::of_trial(&plan, arguments.quiet);
    let generator = Generator { worker: vec!["worker".to_owned()], machines };
    let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let outcome = single::run_watched(plan, &generator, &remotes, &stop, &command, on_noise, |tick| {
        progress.show(&Event::Tick(tick));
    });
    progress.end();
    let mut trial = match outcome {
        Ok(trial) => trial,
        Err((FleetError::Run(RunError::Cancelled), _)) if stop.load(Ordering::Relaxed) => {
            return Ok(standard::interrupted_before_start());
        }
        Err((error, _)) => return Err(Refusal::one(error)),
    };
    if let Some(http) = trial.http_mut() {
        http.noise = noise;
    }
    let is_shown = !outputs.json_on_stdout();
    let written = outputs.write(&trial, &arguments.workload());
    let reasons = trial.validity.reasons();
    if let Some(nothing) = reasons.iter().find(|reason| reason.rule == VoidRule::NoAnswer) {
        return written.and(check_receipts(&trial)).and(Err(Refusal::one(&nothing.evidence)));
    }
    // The result is printed even if a file could not be written.
    let shown = if is_shown { standard::print_wrapped(&render(&trial)) } else { Ok(()) };
    written.and(shown).and(check_receipts(&trial))?;
    Ok(exit_status(&trial))
}

/// Reports an error if receipts of the trial could not be written.
fn check_receipts(trial: &Trial) -> Result {
    let lost = trial.warnings.iter().filter(|warning| warning.code == "receipts_lost");
    let lost: Vec<String> = lost.map(|warning| format!("--receipts: {}", warning.message)).collect();
    if lost.is_empty() { Ok(()) } else { Err(Refusal::new(lost)) }
}

/// Adapts the plan to these limits and prints the changes. A plan that still does not fit is an error, unless it is
/// forced.
fn fit(plan: &mut HttpPlan, host: &MachineLimits, arguments: &HttpArgs, is_here: bool) -> Result {
    let missing = if is_here { preflight::missing_here(plan) } else { Vec::new() };
    let mut refusals: Vec<String> = missing.into_iter().map(option_mistake).collect();
    let mut notes = Vec::new();
    let option = if plan.load.is_open() { "--connections" } else { "--users" };
    match preflight::fit_or_advise(plan, host, arguments.workload().fixed_by_user(), option) {
        Ok(changes) => notes = changes,
        Err(more) => refusals.extend(more),
    }
    if !refusals.is_empty() && !plan.forced {
        refusals.push("nothing was sent; --force runs the trial anyway, and it will be void".to_owned());
        return Err(Refusal::new(refusals));
    }
    notes.iter().for_each(|note| standard::print_to_stderr(format_args!("proofload: using {note}")));
    for refusal in refusals {
        standard::print_to_stderr(format_args!("proofload: running because of --force, although {refusal}"));
    }
    Ok(())
}

/// Entry point of a worker process.
pub(crate) fn work() -> Result<Exit> {
    raise_descriptors();
    fleet::run_worker().map(|()| Exit::GoalsMet).map_err(Refusal::one)
}

fn exit_status(trial: &Trial) -> Exit {
    if trial.interrupted {
        return Exit::Interrupted;
    }
    let http = trial.http().expect("the command measures requests");
    match report::trial_answer(trial, http).0 {
        report::Status::Void => Exit::Void,
        report::Status::Met | report::Status::Unfound => Exit::GoalsMet,
        report::Status::NotMet | report::Status::Unfinished => Exit::GoalsNotMet,
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
    fn foreign_addresses_and_processors_are_refused() {
        let host = MachineLimits::EXAMPLE;
        let fits = |line: &str| {
            let words = ["http", "127.0.0.1/"].into_iter().chain(line.split_whitespace());
            let arguments = Line::try_parse_from(words).unwrap().http;
            fit(&mut arguments.plan(&host).unwrap(), &host, &arguments, true)
        };
        assert!(fits("--source 127.0.0.1-127.0.0.9").is_ok());
        let refusal = format!("{:?}", fits("--source 192.0.2.9 --cpus 4095").unwrap_err());
        assert!(
            refusal.contains("--source: 192.0.2.9 is not an address of this machine; see `ip addr`"),
            "{refusal}"
        );
        assert!(refusal.contains("--cpus: no thread can be pinned to 4095"), "{refusal}");
        assert!(fits("--source 192.0.2.9 --force").is_ok());
    }
}
