//! `proofload lab`: runs hosts, links and processes described in a lab file.

mod detach;
mod up;

use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::{Args, Subcommand};
use lab::{Plan, RunningLab};
use signal_hook::{
    consts::{SIGINT, SIGQUIT},
    flag,
};
use undo::Folder;

use super::{
    clean,
    init::{self, InitArgs},
};
use crate::{
    exit::{Exit, Refusal, Result},
    output::{destination::Destination, standard},
};

/// Time after which a lab that is still going down counts as stuck.
const DOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Run hosts, links and processes on this machine, from a lab file.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Bring a lab up, and keep it up until Ctrl-C or `lab down`.
    Up(up::UpArgs),
    /// Run a shell, or a command, in a host of a running lab.
    Shell(ShellArgs),
    /// Show the hosts and links of a lab.
    Graph(GraphArgs),
    /// Take a running lab down.
    Down(DownArgs),
    Init(InitArgs),
}

#[derive(Debug, Args)]
struct ShellArgs {
    /// Host, such as web3; LAB/HOST where several labs run.
    host: String,
    /// Command [default: your shell].
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
struct GraphArgs {
    /// Lab file [default: the running lab].
    file: Option<PathBuf>,
    /// Title or identity of the running lab, where several run.
    #[arg(long, conflicts_with = "file")]
    lab: Option<String>,
    /// Write SVG to this file; - is standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the graph in the DOT language of Graphviz.
    #[arg(long, conflicts_with = "svg")]
    dot: bool,
}

#[derive(Debug, Args)]
struct DownArgs {
    /// Title or identity of the lab, where several run.
    lab: Option<String>,
    /// Take down all of your labs.
    #[arg(long, conflicts_with = "lab")]
    all: bool,
}

pub(crate) fn run(arguments: &LabArgs) -> Result<Exit> {
    match &arguments.command {
        LabCommand::Up(arguments) => up::up(arguments),
        LabCommand::Shell(arguments) => shell(arguments),
        LabCommand::Graph(arguments) => graph(arguments),
        LabCommand::Down(arguments) => down(arguments),
        LabCommand::Init(arguments) => init::lab(arguments),
    }
}

/// Entry point of the process that keeps a host's namespaces alive. `private`: the host's private folders, as JSON.
pub(crate) fn hold(on_machine: bool, private: Option<&str>) -> Result<Exit> {
    lab::run_holder(on_machine, private).map_err(Refusal::one)?;
    Ok(Exit::GoalsMet)
}

/// Enters a host's namespaces and replaces this process by a program; returns only if that fails.
pub(crate) fn exec(request: &str) -> Result<Exit> {
    Err(Refusal::one(lab::exec(request)))
}

fn shell(arguments: &ShellArgs) -> Result<Exit> {
    let folder = undo_folder()?;
    let labs = RunningLab::all(&folder).map_err(Refusal::one)?;
    let (lab, name) = match arguments.host.rsplit_once('/') {
        Some((lab, name)) => (find_lab(&labs, Some(lab))?, name),
        None => (find_lab(&labs, None)?, arguments.host.as_str()),
    };
    let Some((_, holder)) = lab.hosts.iter().find(|(host, _)| host == name) else {
        let hosts: Vec<&str> = lab.hosts.iter().map(|(host, _)| host.as_str()).collect();
        let hosts = hosts.join(", ");
        return Err(Refusal::one(format_args!("there is no host '{name}' in this lab; it has {hosts}")));
    };
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    let mut command = match arguments.command.split_first() {
        Some((program, words)) => {
            let mut command = Command::new(program);
            command.args(words);
            command
        }
        None => Command::new(shell),
    };
    command.env("PROOFLOAD_HOST", name);
    // Ctrl-C should end only the command, whose status this process awaits. Handlers are used, because the command would
    // inherit ignored signals.
    for signal in [SIGINT, SIGQUIT] {
        flag::register(signal, Arc::default())
            .map_err(|e| Refusal::one(format_args!("cannot handle signal {signal}: {e}")))?;
    }
    let status = lab::run_in_host(lab, *holder, command)
        .map_err(|error| Refusal::one(format_args!("cannot run in {name}: {error}")))?;
    // Exits with the command's status, as ssh and env do; after a signal, with 128 plus its number, as shells do.
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()));
}

fn graph(arguments: &GraphArgs) -> Result<Exit> {
    let plan = match &arguments.file {
        Some(file) => read(file)?,
        None => plan_of_running(arguments.lab.as_deref())?,
    };
    match &arguments.svg {
        Some(path) => {
            let svg = Destination::open("--svg", path).map_err(Refusal::one)?;
            svg.write(|output| output.write_all(lab::graph::svg(&plan).as_bytes()))?;
        }
        None if arguments.dot => standard::print_raw(&lab::graph::dot(&plan))?,
        None => standard::print_wrapped(&lab::graph::text(&plan))?,
    }
    Ok(Exit::GoalsMet)
}

/// The folder that lists the running labs of this user.
fn undo_folder() -> Result<Folder> {
    lab::ensure_own_proc().map_err(Refusal::one)?;
    Folder::of_this_user().map_err(Refusal::one)
}

fn plan_of_running(name: Option<&str>) -> Result<Plan> {
    let folder = undo_folder()?;
    let labs = RunningLab::all(&folder).map_err(Refusal::one)?;
    let lab = find_lab(&labs, name)?;
    lab.plan().map_err(|error| {
        Refusal::one(format_args!("cannot read the plan of the lab {} ({}): {error}", lab.run, lab.title))
    })
}

fn down(arguments: &DownArgs) -> Result<Exit> {
    let folder = undo_folder()?;
    clean::clean_before(&folder)?;
    let labs = RunningLab::all(&folder).map_err(Refusal::one)?;
    let chosen: Vec<&RunningLab> =
        if arguments.all { labs.iter().collect() } else { vec![find_lab(&labs, arguments.lab.as_deref())?] };
    for lab in &chosen {
        lab.request_shutdown().map_err(Refusal::one)?;
    }
    let deadline = Instant::now() + DOWN_TIMEOUT;
    while chosen.iter().any(|lab| lab.owner.is_alive()) {
        if Instant::now() > deadline {
            return Err(Refusal::one(format_args!(
                "a lab is still up after {} s; kill its process, {}, then run `proofload clean`",
                DOWN_TIMEOUT.as_secs(),
                chosen[0].owner.pid
            )));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(Exit::GoalsMet)
}

/// Finds a lab by its title or run ID. Without a name, finds the only lab.
fn find_lab<'a>(labs: &'a [RunningLab], name: Option<&str>) -> Result<&'a RunningLab> {
    let matches = |lab: &&RunningLab| name.is_none_or(|name| lab.title == name || lab.run == name);
    let found: Vec<&RunningLab> = labs.iter().filter(matches).collect();
    match (&found[..], name) {
        ([lab], _) => Ok(lab),
        ([], Some(name)) => Err(Refusal::one(format_args!("no lab '{name}' is up"))),
        ([], None) => Err(Refusal::one("no lab is up; `proofload lab up FILE` brings one up")),
        (several, _) => {
            let list: Vec<String> =
                several.iter().map(|lab| format!("{} ({})", lab.run, lab.title)).collect();
            Err(Refusal::one(format_args!("several labs are up; name one of them: {}", list.join(", "))))
        }
    }
}

fn read(path: &Path) -> Result<Plan> {
    let name = path.display().to_string();
    let text = record::input::read_text(path)
        .map_err(|error| Refusal::one(format_args!("the lab file: {error}")))?;
    let mut plan = lab::file::parse(&name, &text).map_err(Refusal::all)?;
    if plan.title.is_empty() {
        plan.title = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    }
    Ok(plan)
}
