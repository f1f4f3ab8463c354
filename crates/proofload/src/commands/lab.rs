//! `proofload lab`: hosts, links and processes from a lab file.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::{Args, Subcommand};
use lab::{Lab, Options, Plan, Running};
use undo::Folder;

use super::{clean, stop};
use crate::exit::{Exit, Refusal};

/// How often a wish to stop is looked for.
const GLANCE: Duration = Duration::from_millis(50);
/// How long a lab may take to go down.
const DOWN_PATIENCE: Duration = Duration::from_secs(30);

/// `proofload lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Bring a lab up, and keep it up until Ctrl-C or `lab down`.
    Up(UpArgs),
    /// Run a shell, or a command, in a host of a running lab.
    Shell(ShellArgs),
    /// Draw a lab's hosts and links.
    Graph(GraphArgs),
    /// Take a running lab down.
    Down(DownArgs),
}

#[derive(Debug, Args)]
struct UpArgs {
    /// Lab file.
    file: PathBuf,
    /// Copy the processes' logs to this folder when the lab goes down.
    #[arg(long, value_name = "FOLDER")]
    keep_logs: Option<PathBuf>,
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
    /// Lab file.
    file: PathBuf,
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
pub fn run(arguments: &LabArgs) -> Result<Exit, Refusal> {
    match &arguments.command {
        LabCommand::Up(arguments) => up(arguments),
        LabCommand::Shell(arguments) => shell(arguments),
        LabCommand::Graph(arguments) => graph(arguments),
        LabCommand::Down(arguments) => down(arguments),
    }
}

/// The process that holds a host's namespaces.
pub fn hold() -> Result<Exit, Refusal> {
    lab::hold().map_err(Refusal::one)?;
    Ok(Exit::GoalsMet)
}

/// The process that becomes one of a host's.
pub fn exec(order: &str) -> Result<Exit, Refusal> {
    Err(Refusal::one(lab::exec(order)))
}

fn up(arguments: &UpArgs) -> Result<Exit, Refusal> {
    let plan = read(&arguments.file)?;
    let mut options = Options::new().map_err(Refusal::one)?;
    // Before any thread is started, and after the folder is known: users have other numbers inside.
    options.rootless = lab::enter_user_namespace().map_err(Refusal::one)?;
    options.keep_logs = arguments.keep_logs.clone();
    load::host::raise_descriptors();
    clean::before(&options.folder)?;
    let stop = stop::on_signal()?;
    options.stop = Arc::clone(&stop);
    let begun = Instant::now();
    let lab = match Lab::up(&plan, &options) {
        Ok(lab) => lab,
        Err(lab::Error::CalledOff) => return Ok(Exit::Interrupted),
        Err(error) => return Err(Refusal::one(error)),
    };
    announce(&lab, begun.elapsed()).map_err(Refusal::one)?;
    let failure = keep_up(&lab, &stop);
    let begun = Instant::now();
    let down = lab.down();
    if let Err(errors) = down {
        return Err(Refusal::new(errors.iter().map(ToString::to_string).collect()));
    }
    eprintln!("down in {:.2} s", begun.elapsed().as_secs_f64());
    match failure {
        Some(failure) => Err(Refusal::one(format_args!("{failure}\nthe lab has been taken down"))),
        None => Ok(Exit::GoalsMet),
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

fn announce(lab: &Lab, took: Duration) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for host in lab.hosts() {
        let addresses: Vec<String> = host.addresses().iter().map(ToString::to_string).collect();
        writeln!(out, "{:<15} {}", host.name(), addresses.join(" "))?;
    }
    writeln!(out, "files and logs in {}", lab.run_folder().display())?;
    writeln!(out, "ready in {:.2} s; Ctrl-C or `proofload lab down` takes it down", took.as_secs_f64())?;
    out.flush()
}

fn shell(arguments: &ShellArgs) -> Result<Exit, Refusal> {
    let folder = Folder::of_this_user().map_err(Refusal::one)?;
    let labs = Running::all(&folder).map_err(Refusal::one)?;
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
    let status = lab::run_in_host(*holder, command)
        .map_err(|error| Refusal::one(format_args!("cannot run in {name}: {error}")))?;
    // Its status is ours, as with ssh and env.
    std::process::exit(status.code().unwrap_or(130));
}

fn graph(arguments: &GraphArgs) -> Result<Exit, Refusal> {
    let plan = read(&arguments.file)?;
    match &arguments.svg {
        Some(path) if path != Path::new("-") => {
            let written = fs::write(path, lab::graph::svg(&plan));
            written.map_err(|e| Refusal::one(format_args!("--svg: cannot write {}: {e}", path.display())))?;
        }
        Some(_) => print!("{}", lab::graph::svg(&plan)),
        None if arguments.dot => print!("{}", lab::graph::dot(&plan)),
        None => print!("{}", lab::graph::text(&plan)),
    }
    Ok(Exit::GoalsMet)
}

fn down(arguments: &DownArgs) -> Result<Exit, Refusal> {
    let folder = Folder::of_this_user().map_err(Refusal::one)?;
    clean::before(&folder)?;
    let labs = Running::all(&folder).map_err(Refusal::one)?;
    let chosen: Vec<&Running> =
        if arguments.all { labs.iter().collect() } else { vec![pick(&labs, arguments.lab.as_deref())?] };
    for lab in &chosen {
        lab.ask_down().map_err(Refusal::one)?;
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
fn pick<'a>(labs: &'a [Running], name: Option<&str>) -> Result<&'a Running, Refusal> {
    let meant = |lab: &&Running| name.is_none_or(|name| lab.title == name || lab.run == name);
    let found: Vec<&Running> = labs.iter().filter(meant).collect();
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
    let text = fs::read_to_string(path)
        .map_err(|error| Refusal::one(format_args!("cannot read the lab file {name}: {error}")))?;
    let mut plan = lab::file::parse(&name, &text)
        .map_err(|mistakes| Refusal::new(mistakes.iter().map(ToString::to_string).collect()))?;
    if plan.title.is_empty() {
        plan.title = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    }
    Ok(plan)
}
