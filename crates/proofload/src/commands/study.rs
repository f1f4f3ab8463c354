//! Runs a study for `limit` and `run`, prints its result and determines the exit status.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf, absolute},
    sync::{Arc, atomic::AtomicBool},
};

use fleet::Machines;
use jiff::Timestamp;
use load::{MachineLimits, raise_descriptors};
use record::{
    BoundKind, Ending, Kind, ResultFolder, SettingOutcome, StudyResult,
    folder::{FolderError, Place, RECORDS},
    study::UNDECIDED,
};
use report::{Format, Results};
use study::{Generator, Placement, RemoteHosts, Study, noise};

use super::{clean, fleet_args::FleetArgs};
use crate::{
    exit::{Exit, Refusal, Result},
    output::{destination::Destination, progress::Progress, standard},
};

/// A study to run, and the options for its outputs.
pub(super) struct StudyRun<'a> {
    pub study: Study,
    /// Start of the default result folder's name.
    pub name: &'a str,
    /// The result folder of `--out`.
    pub out: Option<PathBuf>,
    /// Whether to resume an interrupted run.
    pub resume: bool,
    /// Whether to raise the limits that bounded an earlier result (`--prove`).
    pub prove: bool,
    /// Destination of the result as JSON.
    pub json: Option<&'a Path>,
    /// Whether to print no progress.
    pub quiet: bool,
    /// Which other machines make the load.
    pub fleet: &'a FleetArgs,
    /// The machines that the study's hosts are, and those of them that make the load; none without --machines.
    pub placed: Option<Placed>,
}

/// Connected machines that the hosts of a study are.
pub(super) struct Placed {
    pub placement: Placement,
    /// Those that make the load.
    pub generator: Arc<Machines>,
    /// Is set by signals.
    pub stop: Arc<AtomicBool>,
}

/// This process's command line without --resume.
fn command_line() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.filter(|word| word != "--resume").collect()
}

/// The report formats in every result folder.
const FOLDER_FORMATS: [Format; 3] = [Format::Html, Format::Junit, Format::OpenMetrics];

/// Runs the study, writes its result and prints it.
pub(super) fn run_study(mut run: StudyRun<'_>) -> Result<Exit> {
    // Claimed before the folder claims its records. Errors are ignored here, because opening the file reports them.
    let _ = run.json.map(|json| files::claim("--json", json));
    // Must precede the user namespace, in which all other users have the same ID.
    let place = place(&run.out.clone().unwrap_or_else(|| default_folder(run.name)))?;
    let mut lab = lab::Options::new().map_err(Refusal::one)?;
    let min_load = run.study.search.as_ref().map(|search| search.min);
    let (mut has_lab, mut has_programs) = (false, false);
    let settings = (0..run.study.settings.len()).map(|setting| (setting, min_load));
    run.study.each_setup(settings, &mut |_, setup| {
        has_lab = run.placed.is_none() && setup.as_ref().is_ok_and(|setup| setup.lab.is_some());
        has_programs |= setup.is_ok_and(|setup| setup.workload.kind() == Kind::Command);
        !has_lab
    });
    if has_lab {
        lab::ensure_own_proc().map_err(Refusal::one)?;
        // Must precede the first thread, and follow the choice of the folder, because user IDs differ inside the
        // namespace.
        lab.rootless = lab::enter_user_namespace().map_err(Refusal::one)?;
    }
    if has_lab || has_programs {
        clean::clean_before(&lab.folder)?;
    }
    raise_descriptors();
    // A file inside the result folder can be opened only after the folder exists.
    let at = |path: &Path| absolute(path).unwrap_or_default();
    let is_within = run.out.as_deref().zip(run.json).is_some_and(|(out, json)| at(json).starts_with(at(out)));
    let open = |within: bool| Destination::open_optional("--json", run.json.filter(|_| within == is_within));
    let outside = open(false)?;
    let stop = match &run.placed {
        Some(placed) => placed.stop.clone(),
        None => crate::stop::on_signal()?,
    };
    lab.stop = stop.clone();
    if !run.fleet.on.is_empty() {
        let limits = MachineLimits::read().map_err(Refusal::one)?;
        let refusals = study::refusals(&run.study, &limits);
        if !refusals.is_empty() {
            return Err(Refusal::new(refusals.into_iter().map(|why| format!("--on: {why}")).collect()));
        }
    }
    let (machines, placement) = match run.placed {
        Some(Placed { placement, generator, .. }) => (Some(generator), Some(placement)),
        None => match run.fleet.connect(&stop, run.quiet)? {
            Ok(machines) => (machines, None),
            Err(interrupted) => return Ok(interrupted),
        },
    };
    let makes_load = machines.is_none();
    let options = study::Options {
        lab,
        generator: Generator { worker: vec!["worker".to_owned()], machines },
        command: command_line(),
        stop,
        resume: run.resume,
        remotes: RemoteHosts::connect(&run.study.observe).map_err(Refusal::new)?,
        placement,
    };
    let earlier = match run.resume {
        true => Some(resumed(&place)?.read().map_err(Refusal::one)?),
        false => None,
    };
    let result = earlier.as_ref().and_then(|earlier| earlier.result.as_ref());
    // The reports of a finished study exist already.
    let is_finished = !run.prove && result.is_some_and(|result| result.ending == Ending::Finished);
    study::probe_targets(&run.study, &options).map_err(Refusal::one)?;
    match earlier {
        Some(earlier) => earlier.plan.noise.into_iter().for_each(|noise| noise::heed(&mut run.study, noise)),
        None if !makes_load => {}
        None => noise::before_study(&mut run.study, &options.stop, &mut standard::telling(run.quiet)),
    }
    let look = if run.resume { None } else { study::look(&mut run.study, &options) };
    if let Some(words) = look.filter(|_| !run.quiet) {
        standard::print_to_stderr(format_args!("proofload: {words}"));
    }
    let folder = match run.out {
        _ if run.resume => resumed(&place)?,
        Some(_) => place.make().map_err(Refusal::one)?,
        None => place.make_free().map_err(Refusal::one)?,
    };
    let json = outside.or(open(true)?);
    let mut progress = Progress::of_study(&run.study, run.quiet);
    let outcome = study::run(&run.study, &folder, &options, &mut |event| progress.show(&event));
    progress.end();
    let mut result = outcome.map_err(Refusal::one)?;
    if run.prove && result.ending == Ending::Finished {
        let mut progress = Progress::of_study(&run.study, run.quiet);
        result = study::prove(&run.study, &folder, &options, &mut |event| progress.show(&event))
            .map_err(Refusal::one)?;
        progress.end();
        if result.ending != Ending::Finished {
            let path = folder.path().display();
            standard::print_to_stderr(format_args!(
                "proofload: the proof is not finished; continue it with --resume --prove --out {path}; its trials are in {path}/proof"
            ));
        }
    }
    // Printed even with --quiet and with JSON on standard output.
    for warning in result.warnings.iter().filter(|warning| warning.code == study::FAILED) {
        standard::print_to_stderr(format_args!("proofload: the study failed: {}", warning.message));
    }
    let results = Results::read(&folder).map_err(Refusal::one)?;
    show(&results, &folder, is_finished, json)?;
    Ok(exit_status(&result))
}

/// The place for a result. Claims the records and reports in it for `--out`.
pub(super) fn place(path: &Path) -> Result<Place> {
    let reports = FOLDER_FORMATS.into_iter().filter_map(Format::file_name);
    for name in RECORDS.into_iter().chain(reports) {
        let file = path.join(name);
        let claimed = files::claim("--out", &file);
        claimed.map_err(|why| Refusal::one(format_args!("--out: {}: {why}", file.display())))?;
    }
    Place::of(path).map_err(Refusal::one)
}

fn resumed(place: &Place) -> Result<ResultFolder> {
    place.resume().map_err(|error| match error {
        FolderError::NotAResultFolder { path, missing } => Refusal::one(format_args!(
            "--resume: there is no {missing} in {}, so there is no run to resume; leave out --resume to start a new one",
            path.display()
        )),
        error => Refusal::one(error),
    })
}

fn show(results: &Results, folder: &ResultFolder, is_finished: bool, json: Option<Destination>) -> Result {
    let mut options = terminal_options();
    let reports = if is_finished { Ok(()) } else { write_reports(results, folder, &options) };
    options.page = reports.is_ok().then(|| folder.path().join("report.html").display().to_string());
    let on_stdout = json.as_ref().is_some_and(Destination::is_stdout);
    let written = json
        .map_or(Ok(()), |json| json.write(|output| report::write(results, Format::Json, &options, output)));
    // The result is printed even if a file could not be written.
    let shown = match on_stdout {
        true => Ok(()),
        false => standard::print_coloured(&report::render(results, Format::Terminal, &options)),
    };
    reports.and(written).and(shown)
}

/// Writes the reports of a result folder.
pub(super) fn write_reports(results: &Results, folder: &ResultFolder, options: &report::Options) -> Result {
    FOLDER_FORMATS.into_iter().try_for_each(|format| {
        let name = format.file_name().expect("these formats have files");
        folder.write(name, &report::render(results, format, options)).map_err(Refusal::one)
    })
}

/// Report options that match this terminal.
pub(super) fn terminal_options() -> report::Options {
    let on_terminal = std::io::stdout().is_terminal();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width_columns = standard::columns(std::io::stdout()).map(|columns| columns as u16);
    report::Options { colour: on_terminal && !plain, width_columns, page: None }
}

fn exit_status(result: &StudyResult) -> Exit {
    match result.ending {
        Ending::Interrupted => return Exit::Interrupted,
        Ending::Failed => return Exit::WrongUse,
        Ending::Finished | Ending::OutOfBudget => {}
    }
    let goals =
        || result.outcomes.iter().flat_map(|outcome| &outcome.searches).flat_map(|search| &search.goals);
    let searched = result.outcomes.iter().any(|outcome| !outcome.searches.is_empty());
    let fixed = || result.outcomes.iter().filter_map(|outcome| outcome.goals_met);
    let is_missed = goals().any(|goal| goal.kind == BoundKind::Below)
        || fixed().any(|met| !met)
        || has_warning(result, &["not_confirmed"]);
    let is_void = goals().any(|goal| goal.lower.is_none() && goal.kind != BoundKind::Below)
        || (result.trials > 0 && result.trials == result.void_trials)
        || (!searched && result.trials == 0)
        || has_warning(result, &["all_void", "search_void", UNDECIDED])
        || (result.ending == Ending::OutOfBudget && result.outcomes.iter().any(is_empty));
    if is_missed {
        Exit::GoalsNotMet
    } else if !result.outcomes.is_empty() && result.outcomes.iter().all(is_unanswered) {
        Exit::WrongUse
    } else if is_void {
        Exit::Void
    } else {
        Exit::GoalsMet
    }
}

/// Whether any setting has a warning with one of these codes.
fn has_warning(result: &StudyResult, codes: &[&str]) -> bool {
    let mut warnings = result.outcomes.iter().flat_map(|outcome| &outcome.warnings);
    warnings.any(|warning| codes.contains(&warning.code.as_str()))
}

/// Whether a setting without goals completed no request.
fn is_unanswered(outcome: &SettingOutcome) -> bool {
    outcome.goals_met.is_none() && outcome.warnings.iter().any(|warning| warning.code == "nothing_completed")
}

fn is_empty(outcome: &SettingOutcome) -> bool {
    outcome.searches.is_empty() && outcome.goals_met.is_none() && outcome.summaries.is_empty()
}

/// The default result folder, `results/NAME-2026-01-31-120000`; the time is in UTC.
fn default_folder(name: &str) -> PathBuf {
    PathBuf::from(format!("results/{name}-{}", Timestamp::now().strftime("%Y-%m-%d-%H%M%S")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_run_cannot_be_resumed() {
        let refusal = resumed(&Place::of(Path::new("/does/not/exist")).unwrap()).unwrap_err();
        assert!(format!("{refusal:?}").contains("leave out --resume to start a new one"), "{refusal:?}");
    }
}
