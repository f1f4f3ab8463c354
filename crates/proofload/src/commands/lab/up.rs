//! `proofload lab up`.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use lab::{Lab, Options, RunningLab};

use super::{clean, detach, read, stop};
use crate::{
    exit::{Exit, Refusal},
    output::standard,
};

/// How often a wish to stop is looked for.
const GLANCE: Duration = Duration::from_millis(50);
/// What the line begins with that says that a lab is ready.
pub(super) const READY: &str = "ready in ";

#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Lab file.
    pub file: PathBuf,
    /// Copy the processes' logs to this folder when the lab goes down.
    #[arg(long, value_name = "FOLDER")]
    pub keep_logs: Option<PathBuf>,
    /// Return when the lab is ready, and leave it to a process in the background until `lab down`.
    #[arg(long)]
    pub detach: bool,
    /// Be that process; started by proofload itself.
    #[arg(long, hide = true)]
    pub background: bool,
}

/// Brings a lab up and keeps it up.
pub(super) fn up(arguments: &UpArgs) -> Result<Exit, Refusal> {
    lab::ensure_own_proc().map_err(Refusal::one)?;
    if arguments.detach && !arguments.background {
        return detach::up_in_background(arguments);
    }
    let plan = read(&arguments.file)?;
    let mut options = Options::new().map_err(Refusal::one)?;
    // Before any thread is started, and after the folder is known: users have other numbers inside.
    options.rootless = lab::enter_user_namespace().map_err(Refusal::one)?;
    options.keep_logs = arguments.keep_logs.clone();
    load::host::raise_descriptors();
    clean::before(&options.folder)?;
    let running = RunningLab::all(&options.folder).map_err(Refusal::one)?;
    if let Some(other) = running.iter().find(|other| !plan.title.is_empty() && other.title == plan.title) {
        return Err(Refusal::one(format_args!(
            "a lab '{}' is up already, kept up by process {}; `proofload lab down '{}'` takes it down, or give this one \
             another title",
            other.title, other.owner.pid, other.title
        )));
    }
    let stop = stop::on_signal()?;
    options.stop = Arc::clone(&stop);
    if arguments.background {
        detach::leave_session().map_err(Refusal::one)?;
    }
    let begun = Instant::now();
    let lab = match Lab::up(&plan, &options) {
        Ok(lab) => lab,
        Err(lab::Error::Cancelled) => return Ok(Exit::Interrupted),
        Err(error) => return Err(Refusal::one(error)),
    };
    if arguments.background {
        let log = detach::let_go(lab.run_folder()).map_err(Refusal::one)?;
        announce(&lab, begun.elapsed(), true)?;
        detach::hang_up(&log).map_err(Refusal::one)?;
    } else {
        announce(&lab, begun.elapsed(), false)?;
    }
    if let Some(why) = lab.cpu_contention() {
        standard::tell(format_args!("proofload: {why}"));
    }
    let failure = keep_up(&lab, &stop);
    if let Some(failure) = &failure {
        // Before the log that it may go to is copied and removed.
        standard::tell(format_args!("proofload: {failure}"));
    }
    let begun = Instant::now();
    let down = lab.down();
    if let Err(errors) = down {
        return Err(Refusal::new(errors.iter().map(ToString::to_string).collect()));
    }
    match failure {
        Some(_) => Err(Refusal::one("the lab has been taken down")),
        None => {
            standard::tell(format_args!("down in {:.2} s", begun.elapsed().as_secs_f64()));
            Ok(Exit::GoalsMet)
        }
    }
}

fn keep_up(lab: &Lab, stop: &AtomicBool) -> Option<lab::ProcessFailure> {
    while !stop.load(Ordering::Relaxed) {
        if let Some(failure) = lab.watch(GLANCE) {
            return Some(failure);
        }
    }
    None
}

fn announce(lab: &Lab, took: Duration, in_background: bool) -> Result<(), Refusal> {
    let mut out = String::new();
    for host in lab.hosts() {
        let addresses: Vec<String> = host.addresses().iter().map(ToString::to_string).collect();
        out += &format!("{:<15} {}\n", host.name(), addresses.join(" "));
    }
    out += &format!("files and logs in {}\n", lab.run_folder().display());
    let end = if in_background {
        format!("process {} keeps it up until `proofload lab down`", std::process::id())
    } else {
        "Ctrl-C or `proofload lab down` takes it down".to_owned()
    };
    out += &format!("{READY}{:.2} s; {end}\n", took.as_secs_f64());
    standard::show(&out)
}
