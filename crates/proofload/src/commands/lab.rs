//! `proofload lab`: hosts, links and processes from a lab file.

mod detach;
mod up;

use std::{
    fs,
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

use super::{clean, stop};
use crate::{
    exit::{Exit, Refusal},
    output::standard,
};

/// How long a lab may take to go down.
const DOWN_PATIENCE: Duration = Duration::from_secs(30);

/// Hosts, links and processes on this machine, from a lab file.
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
    /// Draw a lab's hosts and links.
    Graph(GraphArgs),
    /// Take a running lab down.
    Down(DownArgs),
}

#[derive(Debug, Args)]
struct ShellArgs {
    /// Host, such as web3; LAB/HOST where several labs run.
    host: String,
    /// Command; your shell unless given.
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
struct GraphArgs {
    /// Lab file; the lab that is up unless given.
    file: Option<PathBuf>,
    /// Title or identity of the lab that is up, where several are.
    #[arg(long, conflicts_with = "file")]
    lab: Option<String>,
    /// Write SVG to this file, - for standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print it for Graphviz's dot.
    #[arg(long, conflicts_with = "svg")]
    dot: bool,
}

#[derive(Debug, Args)]
struct DownArgs {
    /// Title or identity of the lab, where several run.
    lab: Option<String>,
    /// Take all of your labs down.
    #[arg(long, conflicts_with = "lab")]
    all: bool,
}

/// Does what was asked.
pub(crate) fn run(arguments: &LabArgs) -> Result<Exit, Refusal> {
    match &arguments.command {
        LabCommand::Up(arguments) => up::up(arguments),
        LabCommand::Shell(arguments) => shell(arguments),
        LabCommand::Graph(arguments) => graph(arguments),
        LabCommand::Down(arguments) => down(arguments),
    }
}

/// The process that holds a host's namespaces.
pub(crate) fn hold() -> Result<Exit, Refusal> {
    lab::run_holder().map_err(Refusal::one)?;
    Ok(Exit::GoalsMet)
}

/// The process that becomes one of a host's.
pub(crate) fn exec(order: &str) -> Result<Exit, Refusal> {
    Err(Refusal::one(lab::exec(order)))
}

fn shell(arguments: &ShellArgs) -> Result<Exit, Refusal> {
    let folder = journals()?;
    let labs = RunningLab::all(&folder).map_err(Refusal::one)?;
    let (lab, name) = match arguments.host.rsplit_once('/') {
        Some((lab, name)) => (pick(&labs, Some(lab))?, name),
        None => (pick(&labs, None)?, arguments.host.as_str()),
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
    // Ctrl-C is the command's, and we stay to tell how it ended. Caught, not ignored: that would be inherited.
    for signal in [SIGINT, SIGQUIT] {
        flag::register(signal, Arc::default())
            .map_err(|e| Refusal::one(format_args!("cannot handle signal {signal}: {e}")))?;
    }
    let status = lab::run_in_host(*holder, command)
        .map_err(|error| Refusal::one(format_args!("cannot run in {name}: {error}")))?;
    // Its status is ours, as with ssh and env, and 128 more than the signal that ended it, as in shells.
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()));
}

fn graph(arguments: &GraphArgs) -> Result<Exit, Refusal> {
    let plan = match &arguments.file {
        Some(file) => read(file)?,
        None => plan_of_running(arguments.lab.as_deref())?,
    };
    match &arguments.svg {
        Some(path) if path != Path::new("-") => {
            let written = fs::write(path, lab::graph::svg(&plan));
            written.map_err(|e| Refusal::one(format_args!("--svg: cannot write {}: {e}", path.display())))?;
        }
        Some(_) => standard::print(&lab::graph::svg(&plan))?,
        None if arguments.dot => standard::print(&lab::graph::dot(&plan))?,
        None => standard::show(&lab::graph::text(&plan))?,
    }
    Ok(Exit::GoalsMet)
}

/// Where the labs of this user are written down.
fn journals() -> Result<Folder, Refusal> {
    lab::ensure_own_proc().map_err(Refusal::one)?;
    Folder::of_this_user().map_err(Refusal::one)
}

fn plan_of_running(name: Option<&str>) -> Result<Plan, Refusal> {
    let folder = journals()?;
    let labs = RunningLab::all(&folder).map_err(Refusal::one)?;
    let lab = pick(&labs, name)?;
    lab.plan().map_err(|error| {
        Refusal::one(format_args!(
            "cannot read what the lab {} ({}) consists of: {error}",
            lab.run, lab.title
        ))
    })
}

fn down(arguments: &DownArgs) -> Result<Exit, Refusal> {
    let folder = journals()?;
    clean::before(&folder)?;
    let labs = RunningLab::all(&folder).map_err(Refusal::one)?;
    let chosen: Vec<&RunningLab> =
        if arguments.all { labs.iter().collect() } else { vec![pick(&labs, arguments.lab.as_deref())?] };
    for lab in &chosen {
        lab.request_shutdown().map_err(Refusal::one)?;
    }
    let deadline = Instant::now() + DOWN_PATIENCE;
    while chosen.iter().any(|lab| lab.owner.is_alive()) {
        if Instant::now() > deadline {
            return Err(Refusal::one(format_args!(
                "a lab is still up after {} s; see its process {}",
                DOWN_PATIENCE.as_secs(),
                chosen[0].owner.pid
            )));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(Exit::GoalsMet)
}

/// The lab that is meant: by title or identity, or the only one.
fn pick<'a>(labs: &'a [RunningLab], name: Option<&str>) -> Result<&'a RunningLab, Refusal> {
    let meant = |lab: &&RunningLab| name.is_none_or(|name| lab.title == name || lab.run == name);
    let found: Vec<&RunningLab> = labs.iter().filter(meant).collect();
    match (&found[..], name) {
        ([lab], _) => Ok(lab),
        ([], Some(name)) => Err(Refusal::one(format_args!("no lab '{name}' is up"))),
        ([], None) => Err(Refusal::one("no lab is up; `proofload lab up FILE` brings one up")),
        (several, _) => {
            let list: Vec<String> =
                several.iter().map(|lab| format!("{} ({})", lab.run, lab.title)).collect();
            Err(Refusal::one(format_args!("several labs are up; say which: {}", list.join(", "))))
        }
    }
}

fn read(path: &Path) -> Result<Plan, Refusal> {
    let name = path.display().to_string();
    let text = record::input::read_text(path)
        .map_err(|error| Refusal::one(format_args!("the lab file: {error}")))?;
    let mut plan = lab::file::parse(&name, &text)
        .map_err(|mistakes| Refusal::new(mistakes.iter().map(ToString::to_string).collect()))?;
    if plan.title.is_empty() {
        plan.title = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    }
    Ok(plan)
}
