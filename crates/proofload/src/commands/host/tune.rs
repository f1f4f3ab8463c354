//! `proofload host tune`: changes kernel settings permanently.

use std::path::PathBuf;

use clap::Args;
use kernel::tune::{self, Applied, Machine, Wanted};
use serde::Serialize;

use super::{ProfileArgs, check::wanted_text, tunings};
use crate::{
    commands::mistakes::Mistakes,
    exit::{Exit, Refusal, Result},
    output::destination::{Destination, write_result},
};

const EXIT_STATUS: &str = "Exit status: 0 all settings have the values that were asked for, 1 the kernel changed a \
                           value that was written, 2 wrong use, or a setting could not be changed and all were put back.";

/// Change the kernel's settings to those of a profile, or to given ones, until `host restore`.
///
/// Each change is recorded before it is made. What a network namespace does not have is listed and left out.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(super) struct TuneArgs {
    #[command(flatten)]
    profile: ProfileArgs,
    /// A setting to change, beside the profile's or in place of one of them: net.core.somaxconn=4096, eth0.txqueuelen=10000 or
    /// eth0.rx-0.rps_cpus=f; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Write the result as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The result for `--json`.
#[derive(Serialize)]
struct Report {
    wanted: Vec<Wanted>,
    /// The settings that were changed; empty after a dry run.
    changed: Vec<Applied>,
}

/// Changes the settings and prints the changes.
pub(super) fn run(arguments: &TuneArgs) -> Result<Exit> {
    let mut m = Mistakes::default();
    let asked = arguments.profile.read(&mut m);
    if arguments.profile.profile.is_none() && arguments.set.is_empty() {
        m.add("there is nothing to change; give --profile NAME or --set NAME=VALUE");
    }
    let given: Vec<(String, String)> =
        arguments.set.iter().filter_map(|text| setting(text, &mut m)).collect();
    for (at, (name, _)) in given.iter().enumerate() {
        if given[..at].iter().any(|(other, _)| other == name) {
            m.add(format!("--set: {name} is given twice"));
        }
    }
    m.into_result(()).map_err(Refusal::new)?;
    let json = Destination::open_optional("--json", arguments.json.as_deref())?;
    let folder = tunings()?;
    // Locked before the changes are chosen, so that another tuning cannot change the values in between.
    let _lock = folder.lock().map_err(Refusal::one)?;
    let machine = Machine::own();
    let mut wanted = asked.map_or_else(Vec::new, |asked| asked.profile.wanted(asked.path, &machine));
    wanted.retain(|wanted| given.iter().all(|(name, _)| *name != wanted.name));
    wanted.extend(given.iter().map(|(name, value)| Wanted::asked(name, value, &machine)));
    let to_write: Vec<(String, String)> =
        wanted.iter().filter_map(|wanted| Some((wanted.name.clone(), wanted.to_write.clone()?))).collect();
    let changed = if arguments.dry_run || to_write.is_empty() {
        Vec::new()
    } else {
        let title = arguments.profile.profile.as_deref().unwrap_or("--set");
        tune::apply(&to_write, title, &folder).map_err(Refusal::one)?
    };
    let is_as_asked = changed.iter().all(Applied::is_as_asked);
    let report = Report { wanted, changed };
    write_result(json, &report, false, || text(&report, arguments.dry_run)).inspect_err(|_| {
        if !report.changed.is_empty() {
            crate::output::standard::print_to_stderr(
                "the settings are changed; proofload host restore puts them back",
            );
        }
    })?;
    Ok(if is_as_asked { Exit::GoalsMet } else { Exit::GoalsNotMet })
}

/// Parses `NAME=VALUE`.
fn setting(text: &str, m: &mut Mistakes) -> Option<(String, String)> {
    let Some((name, value)) = text.split_once('=').filter(|(_, value)| !value.trim().is_empty()) else {
        m.add(format!("--set: '{text}' is not NAME=VALUE, such as net.core.somaxconn=4096"));
        return None;
    };
    let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
    match tune::refusal(&name) {
        Some(reason) => {
            m.add(format!("--set: {reason}"));
            None
        }
        None => Some((name, value)),
    }
}

fn text(report: &Report, is_dry_run: bool) -> String {
    let Report { wanted, changed } = report;
    if is_dry_run {
        return wanted_text(wanted);
    }
    // Lists only the settings that stay as they are, because the changed ones follow.
    let left: Vec<Wanted> = wanted.iter().filter(|wanted| wanted.to_write.is_none()).cloned().collect();
    let line = |applied: &Applied| {
        let Applied { name, before, asked, after } = applied;
        let made = if applied.is_as_asked() {
            String::new()
        } else {
            format!(" (the kernel changed it from {asked})")
        };
        format!("  {name}: {before} → {after}{made}\n")
    };
    let lines: String = changed.iter().map(line).collect();
    let end = match changed.len() {
        0 => "Nothing needed to be changed.\n".to_owned(),
        number => format!("{number} setting(s) changed; proofload host restore puts them back.\n"),
    };
    (wanted_text(&left) + &lines + &end).replace('\t', " ")
}
