//! `proofload run`: runs a study file.

use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use clap::Args;
use load::MachineLimits;
use record::input;
use study::{Placement, Study, Wish};

use super::{
    fleet_args::{ELSEWHERE, FleetArgs, HEADING},
    noise_args::NoiseArgs,
    observe_args::ObserveArgs,
    study::{Placed, StudyRun, run_study},
};
use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

const EXIT_STATUS: &str = "Exit status: 0 all goals met (or there are none), 1 a goal not met (in a search: not \
                           even at the smallest load), 2 wrong use, refused or failed, 3 void (nothing may be \
                           concluded), 130 interrupted: what was measured is kept, and --resume continues.";

/// Run a study file.
///
/// Writes a result folder with reports in several formats. --dry-run shows the plan and how long it takes.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct RunArgs {
    /// Study file
    study: PathBuf,
    /// Replace the levels of a factor or the value of a key in the file: users=100,200 or trial.repeats=3
    #[arg(long = "set", value_name = "FACTOR=LEVEL")]
    set: Vec<String>,
    /// Print the plan and how long it takes, without running it
    #[arg(long)]
    dry_run: bool,
    /// Resume an interrupted run; needs --out
    #[arg(long, requires = "out")]
    resume: bool,
    /// Raise each limit that bounded the study, and run the same load without and with the change
    #[arg(long, conflicts_with = "dry_run")]
    prove: bool,
    /// Folder for the result [default: results/STUDY-DATE-TIME]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Write the result as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print no progress on standard error
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    observe: ObserveArgs,
    #[command(flatten)]
    noise: NoiseArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Let the hosts of the study be machines of an Ansible inventory, or of a group in it: a host is the machine of its name,
    /// or the next one of its group
    #[arg(long, value_name = "INVENTORY[:GROUP]", group = ELSEWHERE, help_heading = HEADING)]
    machines: Option<String>,
    /// Let several hosts of the study be one machine
    #[arg(long, requires = "machines", help_heading = HEADING)]
    share_machines: bool,
}

/// Reads a study file, then runs the study or prints its plan.
pub(crate) fn run(arguments: &RunArgs) -> Result<Exit> {
    let host = MachineLimits::read().map_err(Refusal::one)?;
    let (mut study, placed) = match &arguments.machines {
        None => (arguments.read(&host)?, None),
        Some(inventory) => match arguments.on_machines(inventory, &host)? {
            Ok(read) => read,
            Err(interrupted) => return Ok(interrupted),
        },
    };
    let setup = study.setup(0, None).ok();
    let workload = setup.as_ref().and_then(|setup| setup.workload.http());
    standard::note(workload.and_then(load::HttpWorkload::times_without_unit));
    study.observe.extend(arguments.observe.observe.iter().cloned());
    study.trial.on_noise = arguments.noise.on_noise.unwrap_or(study.trial.on_noise);
    if arguments.dry_run {
        standard::print_wrapped(&study.describe())?;
        return Ok(Exit::GoalsMet);
    }
    let name = arguments.study.file_stem().unwrap_or(Path::new("study").as_os_str()).to_string_lossy();
    run_study(StudyRun {
        study,
        name: &name,
        out: arguments.out.clone(),
        resume: arguments.resume,
        prove: arguments.prove,
        json: arguments.json.as_deref(),
        quiet: arguments.quiet,
        fleet: &arguments.fleet,
        placed,
    })
}

impl RunArgs {
    /// Reads the study for this machine and applies the overrides of --set.
    pub(crate) fn read(&self, host: &MachineLimits) -> Result<Study> {
        self.read_placed(host, None)
    }

    fn read_placed(&self, host: &MachineLimits, placement: Option<&Placement>) -> Result<Study> {
        let file = self.study.display().to_string();
        let text = input::read_text(&self.study).map_err(Refusal::one)?;
        let overrides = overrides(&self.set)?;
        study::file::read_placed(&file, &text, &overrides, host, placement).map_err(Refusal::all)
    }

    /// Reads the study for the machines of an inventory. Logs in to them, unless the study is only to be shown. The inner error
    /// is the exit status after an interrupt.
    fn on_machines(
        &self,
        inventory: &str,
        host: &MachineLimits,
    ) -> Result<std::result::Result<(Study, Option<Placed>), Exit>> {
        let machines = self.fleet.named("--machines", &[inventory.to_owned()])?;
        // The limits are those of machines that are not known yet.
        let any = MachineLimits { cpus: host.cpus, ..MachineLimits::BOUNDLESS };
        let study = self.read_placed(&any, Some(&Placement::default()))?;
        let mut mistakes: Vec<String> =
            study::placement_refusals(&study, &any).iter().map(|why| format!("--machines: {why}")).collect();
        let (hosts, makers) = study::hosts_of(&study);
        let wishes = Wish::all(&hosts, &machines);
        if let Err(missing) = &wishes {
            mistakes.extend(missing.iter().map(|why| format!("--machines: {why}")));
        }
        let wishes = wishes.unwrap_or_default();
        if !mistakes.is_empty() {
            return Err(Refusal::new(mistakes));
        }
        if self.dry_run {
            let line = |wish: &Wish| format!("host {} is the machine {}\n", wish.host, wish.machine.name);
            standard::print_raw(&wishes.iter().map(line).collect::<String>())?;
            return Ok(Ok((study, None)));
        }
        let stop = crate::stop::on_signal()?;
        let remote_path = self.fleet.remote_path.as_deref();
        let placement = match Placement::connect(wishes, remote_path, self.share_machines, &stop) {
            Ok(placement) => placement,
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(Err(standard::interrupted_before_start())),
            Err(why) => return Err(Refusal::new(why)),
        };
        let refused = placement.refusals(&study);
        if !refused.is_empty() {
            return Err(Refusal::new(refused));
        }
        if !self.quiet {
            for line in placement.description() {
                standard::print_to_stderr(format_args!("proofload: {line}"));
            }
        }
        let generator = match self.fleet.connect_to(placement.machines_of(&makers), &stop, self.quiet)? {
            Ok(generator) => generator,
            Err(interrupted) => return Ok(Err(interrupted)),
        };
        let study = self.read_placed(&generator.limits().1, Some(&placement))?;
        Ok(Ok((study, Some(Placed { placement, generator, stop }))))
    }
}

fn overrides(texts: &[String]) -> Result<Vec<(String, String)>> {
    let mut mistakes = Vec::new();
    let mut pairs = Vec::new();
    for text in texts {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                pairs.push((key.trim().to_owned(), value.trim().to_owned()));
            }
            _ => mistakes.push(format!("--set: '{text}' is not FACTOR=LEVEL, such as users=100,200")),
        }
    }
    if mistakes.is_empty() { Ok(pairs) } else { Err(Refusal::new(mistakes)) }
}
