//! `proofload lab up`: brings a lab up and keeps it running.

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

use super::{clean, detach, read};
use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Time between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Start of the line that announces a ready lab.
pub(super) const READY: &str = "ready in ";

#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Lab file.
    pub file: PathBuf,
    /// Copy the processes' logs to this folder when the lab goes down.
    #[arg(long, value_name = "FOLDER")]
    pub keep_logs: Option<PathBuf>,
    /// Return when the lab is ready; a background process keeps it up until `lab down`.
    #[arg(long)]
    pub detach: bool,
    /// Run as that background process; started by proofload itself.
    #[arg(long, hide = true)]
    pub background: bool,
}

/// Brings a lab up and keeps it running until a signal.
pub(super) fn up(arguments: &UpArgs) -> Result<Exit> {
    lab::ensure_own_proc().map_err(Refusal::one)?;
    if arguments.detach && !arguments.background {
        return detach::up_in_background(arguments);
    }
    let plan = read(&arguments.file)?;
    let mut options = Options::new().map_err(Refusal::one)?;
    // Must precede the first thread, and follow the choice of the folder, because user IDs differ inside the namespace.
    options.rootless = lab::enter_user_namespace().map_err(Refusal::one)?;
    options.keep_logs = arguments.keep_logs.clone();
    load::raise_descriptors();
    clean::clean_before(&options.folder)?;
    let running = RunningLab::all(&options.folder).map_err(Refusal::one)?;
    if let Some(other) = running.iter().find(|other| !plan.title.is_empty() && other.title == plan.title) {
        return Err(Refusal::one(format_args!(
            "a lab '{}' is up already, kept up by process {}; take it down with `proofload lab down '{}'`, or change the \
             title of this lab",
            other.title, other.owner.pid, other.title
        )));
    }
    let stop = crate::stop::on_signal()?;
    options.stop = Arc::clone(&stop);
    if arguments.background {
        detach::leave_session().map_err(Refusal::one)?;
    }
    let started = Instant::now();
    let lab = match Lab::up(&plan, &options) {
        Ok(lab) => lab,
        Err(lab::Error::Cancelled) => return Ok(Exit::Interrupted),
        Err(error) => return Err(Refusal::one(error)),
    };
    if arguments.background {
        let log = detach::detach_from_parent(lab.run_folder()).map_err(Refusal::one)?;
        announce(&lab, started.elapsed(), true)?;
        detach::close_parent_pipe(&log).map_err(Refusal::one)?;
    } else {
        announce(&lab, started.elapsed(), false)?;
    }
    for why in lab.cpu_contention().map(str::to_owned).into_iter().chain(lab.other_congestion()) {
        standard::print_to_stderr(format_args!("proofload: {why}"));
    }
    let failure = keep_up(&lab, &stop);
    if let Some(failure) = &failure {
        // Standard error may be a log that `down` copies and removes, so the failure is printed first.
        standard::print_to_stderr(format_args!("proofload: {failure}"));
    }
    let started = Instant::now();
    let down = lab.down();
    if let Err(errors) = down {
        return Err(Refusal::all(errors));
    }
    match failure {
        Some(_) => Err(Refusal::one("the lab has been taken down")),
        None => {
            standard::print_to_stderr(format_args!("down in {:.2} s", started.elapsed().as_secs_f64()));
            Ok(Exit::GoalsMet)
        }
    }
}

fn keep_up(lab: &Lab, stop: &AtomicBool) -> Option<lab::ProcessFailure> {
    while !stop.load(Ordering::Relaxed) {
        if let Some(failure) = lab.watch(POLL_INTERVAL) {
            return Some(failure);
        }
    }
    None
}

fn announce(lab: &Lab, took: Duration, in_background: bool) -> Result {
    let mut out = String::new();
    for host in lab.hosts() {
        let addresses: Vec<String> = host.addresses().iter().map(ToString::to_string).collect();
        out += &format!("{:<15} {}\n", host.name(), addresses.join(" "));
    }
    out += &format!("files and logs in {}\n", lab.run_folder().display());
    let end = if in_background {
        format!("process {} keeps the lab up until `proofload lab down`", std::process::id())
    } else {
        "Ctrl-C or `proofload lab down` takes the lab down".to_owned()
    };
    out += &format!("{READY}{:.2} s; {end}\n", took.as_secs_f64());
    standard::print_wrapped(&out)
}
