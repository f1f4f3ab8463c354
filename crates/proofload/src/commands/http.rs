//! `proofload http`: one trial.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use fleet::FleetError;
use load::{Circumstances, Host, RunError, conclude, host::raise_descriptors, preflight};
use record::Trial;

use super::{http_args::HttpArgs, stop};
use crate::{
    exit::{Exit, Refusal},
    output::{progress::Progress, trial_files, trial_text},
};

/// Runs the trial and shows it.
pub fn run(arguments: &HttpArgs) -> Result<Exit, Refusal> {
    let host = Host::read().map_err(Refusal::one)?;
    let mut plan = arguments.plan(&host).map_err(Refusal::new)?;
    match preflight::fit(&mut plan, &host, arguments.workload().asked()) {
        Ok(notes) => notes.iter().for_each(|note| eprintln!("proofload: using {note}")),
        Err(refusals) if plan.forced => {
            refusals.iter().for_each(|r| eprintln!("proofload: forced to run although: {r}"));
        }
        Err(mut refusals) => {
            refusals.push(
                "nothing was sent; --force runs it all the same, and the trial will be void".to_owned(),
            );
            return Err(Refusal::new(refusals));
        }
    }
    let files = trial_files::Files::open(arguments.json.as_deref(), arguments.hlog.as_deref())?;
    raise_descriptors();
    let stop = stop::on_signal()?;

    let plan = Arc::new(plan);
    let mut progress = Progress::new(&plan, arguments.quiet);
    let mut series = Vec::new();
    let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    let outcome = fleet::run(&plan, fleet::Workers::Here(&["worker".to_owned()]), &stop, |tick| {
        progress.show(&tick);
        series.push(tick.interval());
    });
    progress.end();
    let part = match outcome {
        Ok(part) => part,
        Err(FleetError::Run(RunError::CalledOff)) if stop.load(Ordering::Relaxed) => {
            eprintln!("proofload: interrupted before the start; nothing was measured");
            return Ok(Exit::Interrupted);
        }
        Err(error) => return Err(Refusal::one(error)),
    };
    let circumstances = Circumstances {
        started_unix_s,
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        series,
    };
    let trial = conclude(Arc::unwrap_or_clone(plan), part, circumstances);
    if !files.json_on_stdout() {
        print!("{}", trial_text::render(&trial));
    }
    files.write(&trial)?;
    Ok(verdict(&trial))
}

/// A worker process.
pub fn work() -> Result<Exit, Refusal> {
    raise_descriptors();
    fleet::work().map(|()| Exit::GoalsMet).map_err(Refusal::one)
}

fn verdict(trial: &Trial) -> Exit {
    match () {
        () if trial.interrupted => Exit::Interrupted,
        () if trial.validity.is_void() => Exit::Void,
        () if trial_text::goal_met(trial) => Exit::GoalsMet,
        () => Exit::GoalsNotMet,
    }
}
