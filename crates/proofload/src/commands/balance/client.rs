//! Finds the balancer that the user means, and sends it requests.

use std::{
    thread,
    time::{Duration, Instant},
};

use balance::{Answer, Instance, Request, Statistics, ask};
use clap::Args;
use rustix::process::geteuid;
use undo::Folder;

use super::WhichArgs;
use crate::{
    exit::{Exit, Refusal},
    output::standard,
};

/// Maximum wait for a balancer to end, after its answer to `stop`.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two checks whether the balancer has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Read the file of the running balancer again.
///
/// The file replaces all changes that commands have made. A file with mistakes changes nothing.
#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    which: WhichArgs,
}

/// End the running balancer, and undo everything.
#[derive(Debug, Args)]
pub(super) struct StopArgs {
    /// Leave the program, tables and addresses for the next start
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    which: WhichArgs,
}

/// Tells the balancer to read its configuration file again.
pub(super) fn reload(arguments: &ReloadArgs) -> Result<Exit, Refusal> {
    tell(&find(&arguments.which)?, &Request::Reload)
}

/// Runs `stop` and waits until the balancer has ended.
pub(super) fn stop(arguments: &StopArgs) -> Result<Exit, Refusal> {
    let instance = find(&arguments.which)?;
    let process = statistics(&instance)?.process;
    // The balancer answers after it has undone its changes; the answer names those it could not undo.
    let exit = tell(&instance, &Request::Stop { keep: arguments.keep })?;
    let deadline = Instant::now() + END_TIMEOUT;
    // Compares process IDs, because a service manager may already have started another balancer.
    while statistics(&instance).is_ok_and(|now| now.process == process) {
        if Instant::now() > deadline {
            return Err(Refusal::one(format_args!("the balancer, process {process}, has not ended yet")));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(exit)
}

/// The named balancer, or the only one in this network namespace.
pub(super) fn find(which: &WhichArgs) -> Result<Instance, Refusal> {
    let journals = Folder::of_this_user().map_err(Refusal::one)?;
    if let Some(name) = &which.name {
        return Instance::named(name, &journals).map_err(Refusal::one);
    }
    let all = Instance::all(&journals).map_err(Refusal::one)?;
    match &all[..] {
        [one] => Ok(one.clone()),
        [] => Err(Refusal::one(format_args!(
            "no balancer runs here: {}, the folder of user {}, lists none; `proofload balance --config FILE` starts one",
            journals.path().display(),
            geteuid().as_raw()
        ))),
        several => {
            let names: Vec<&str> = several.iter().map(|instance| instance.name.as_str()).collect();
            Err(Refusal::one(format_args!(
                "several balancers are running; choose one with --name: {}",
                names.join(", ")
            )))
        }
    }
}

const OTHER_ANSWER: &str =
    "the balancer sent an unexpected answer; it may run another version of proofload: restart it";

/// Sends a request and prints the balancer's answer.
pub(super) fn tell(instance: &Instance, request: &Request) -> Result<Exit, Refusal> {
    match ask(instance, request).map_err(Refusal::one)? {
        Answer::Done { what } => standard::print_wrapped(&format!("{what}\n")).map(|()| Exit::GoalsMet),
        Answer::Refused { why } => Err(Refusal::new(why)),
        Answer::Statistics(_) => Err(Refusal::one(OTHER_ANSWER)),
    }
}

pub(super) fn statistics(instance: &Instance) -> Result<Statistics, Refusal> {
    match ask(instance, &Request::Statistics).map_err(Refusal::one)? {
        Answer::Statistics(statistics) => Ok(*statistics),
        Answer::Refused { why } => Err(Refusal::new(why)),
        Answer::Done { .. } => Err(Refusal::one(OTHER_ANSWER)),
    }
}
