//! What `limit` and `run` have in common: a study is conducted, shown and judged.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    time::SystemTime,
};

use load::host::raise_descriptors;
use record::{BoundKind, Ending, Kind, ResultFolder, SettingOutcome, StudyResult, folder::FolderError};
use report::{Format, Results};
use study::Study;

use super::{clean, stop};
use crate::{
    exit::{Exit, Refusal},
    output::{destination::Destination, standard, study_progress::StudyProgress},
};

/// What is to be conducted, and how it is shown.
pub(super) struct Order<'a> {
    /// The study.
    pub study: Study,
    /// What the folder is called after.
    pub name: &'a str,
    /// The folder, if it was given.
    pub out: Option<PathBuf>,
    /// Goes on where a killed run was.
    pub resume: bool,
    /// Where the result goes as JSON.
    pub json: Option<&'a Path>,
    /// No progress.
    pub quiet: bool,
}

/// The command line, without what takes up an earlier run.
fn command_line() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.filter(|word| word != "--resume").collect()
}

/// Files that every result folder gets.
const KEPT: [Format; 3] = [Format::Html, Format::Junit, Format::OpenMetrics];

/// Conducts the study, and leaves its result.
pub(super) fn conduct(order: Order<'_>) -> Result<Exit, Refusal> {
    let mut lab = lab::Options::new().map_err(Refusal::one)?;
    let least = order.study.search.as_ref().map(|search| search.min);
    let (mut has_lab, mut has_programs) = (false, false);
    let settings = (0..order.study.settings.len()).map(|setting| (setting, least));
    order.study.each_setup(settings, &mut |_, setup| {
        has_lab = setup.as_ref().is_ok_and(|setup| setup.lab.is_some());
        has_programs |= setup.is_ok_and(|setup| setup.workload.kind() == Kind::Command);
        !has_lab
    });
    if has_lab {
        lab::ensure_own_proc().map_err(Refusal::one)?;
        // Before any thread is started, and after the folder is known: users have other numbers inside.
        lab.rootless = lab::enter_user_namespace().map_err(Refusal::one)?;
    }
    if has_lab || has_programs {
        clean::before(&lab.folder)?;
    }
    raise_descriptors();
    let json = Destination::of("--json", order.json)?;
    let stop = stop::on_signal()?;
    lab.stop = stop.clone();
    let options = study::Options {
        lab,
        worker: vec!["worker".to_owned()],
        command: command_line(),
        stop,
        resume: order.resume,
    };
    let path = order.out.unwrap_or_else(|| default_folder(order.name));
    // What is finished stays as it is.
    let keeps = match order.resume {
        true => result_folder(&path, true)?.read().map_err(Refusal::one)?.result,
        false => None,
    };
    let keeps = keeps.is_none_or(|result| result.ending != Ending::Finished);
    study::refuse_silent(&order.study, &options).map_err(Refusal::one)?;
    let folder = result_folder(&path, order.resume)?;
    let mut progress = StudyProgress::new(&order.study, order.quiet);
    let outcome = study::run(&order.study, &folder, &options, &mut |event| progress.show(&event));
    progress.end();
    let result = outcome.map_err(Refusal::one)?;
    // Also with --quiet, and where standard output is JSON.
    for why in result.warnings.iter().filter(|warning| warning.code == study::FAILED) {
        standard::tell(format_args!("proofload: the study failed: {}", why.message));
    }
    let results = Results::read(&folder).map_err(Refusal::one)?;
    show(&results, &folder, keeps, json)?;
    Ok(judge(&result))
}

fn result_folder(path: &Path, resume: bool) -> Result<ResultFolder, Refusal> {
    if !resume {
        return ResultFolder::create(path).map_err(Refusal::one);
    }
    ResultFolder::open(path).map_err(|error| match error {
        FolderError::NoResult { path, missing } => Refusal::one(format_args!(
            "--resume: there is no {missing} in {}, so nothing that could be gone on with; leave out --resume to begin \
             anew",
            path.display()
        )),
        error => Refusal::one(error),
    })
}

fn show(
    results: &Results,
    folder: &ResultFolder,
    keeps: bool,
    json: Option<Destination>,
) -> Result<(), Refusal> {
    let mut options = terminal_options();
    let kept = if keeps { write_kept(results, folder, &options) } else { Ok(()) };
    options.page = kept.is_ok().then(|| folder.path().join("report.html").display().to_string());
    let on_stdout = json.as_ref().is_some_and(Destination::is_stdout);
    let written = json
        .map_or(Ok(()), |json| json.write(|output| report::write(results, Format::Json, &options, output)));
    // What was measured is told, whatever became of the files.
    let shown = match on_stdout {
        true => Ok(()),
        false => standard::show_coloured(&report::render(results, Format::Terminal, &options)),
    };
    kept.and(written).and(shown)
}

/// Writes the reports that every result folder gets.
pub(super) fn write_kept(
    results: &Results,
    folder: &ResultFolder,
    options: &report::Options,
) -> Result<(), Refusal> {
    KEPT.into_iter().try_for_each(|format| {
        let name = format.file_name().expect("these formats have files");
        folder.write(name, &report::render(results, format, options)).map_err(Refusal::one)
    })
}

/// What the terminal can show.
pub(super) fn terminal_options() -> report::Options {
    let on_terminal = std::io::stdout().is_terminal();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width_columns = standard::columns(std::io::stdout()).map(|columns| columns as u16);
    report::Options { colour: on_terminal && !plain, width_columns, page: None }
}

/// The exit status of a result.
pub(super) fn judge(result: &StudyResult) -> Exit {
    match result.ending {
        Ending::Interrupted => return Exit::Interrupted,
        Ending::Failed => return Exit::WrongUse,
        Ending::Finished | Ending::OutOfBudget => {}
    }
    let goals =
        || result.outcomes.iter().flat_map(|outcome| &outcome.searches).flat_map(|search| &search.goals);
    let searched = result.outcomes.iter().any(|outcome| !outcome.searches.is_empty());
    let fixed = || result.outcomes.iter().filter_map(|outcome| outcome.goals_met);
    let nothing = goals().any(|goal| goal.lower.is_none() && goal.kind != BoundKind::Below)
        || (result.trials > 0 && result.trials == result.void_trials)
        || (!searched && result.trials == 0)
        || warned(result, &["all_void", "search_void"])
        || (result.ending == Ending::OutOfBudget && result.outcomes.iter().any(is_empty));
    match () {
        () if goals().any(|goal| goal.kind == BoundKind::Below)
            || fixed().any(|met| !met)
            || warned(result, &["not_confirmed"]) =>
        {
            Exit::GoalsNotMet
        }
        () if nothing => Exit::Void,
        () => Exit::GoalsMet,
    }
}

/// Whether an outcome carries one of these warnings.
fn warned(result: &StudyResult, codes: &[&str]) -> bool {
    let mut warnings = result.outcomes.iter().flat_map(|outcome| &outcome.warnings);
    warnings.any(|warning| codes.contains(&warning.code.as_str()))
}

/// Whether a setting was not even begun.
fn is_empty(outcome: &SettingOutcome) -> bool {
    outcome.searches.is_empty() && outcome.goals_met.is_none() && outcome.summaries.is_empty()
}

/// `results/NAME-2026-01-31-120000`, in UTC; with a number where that is taken.
fn default_folder(name: &str) -> PathBuf {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let stamp = now.trim_end_matches('Z').replace(':', "").replace('T', "-");
    let path = |suffix: &str| PathBuf::from(format!("results/{name}-{stamp}{suffix}"));
    let numbered = (2..).map(|number| path(&format!("-{number}")));
    std::iter::once(path("")).chain(numbered).find(|path| !path.exists()).expect("numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_begun_cannot_be_gone_on_with() {
        let refusal = result_folder(Path::new("/does/not/exist"), true).unwrap_err();
        assert!(format!("{refusal:?}").contains("leave out --resume to begin anew"), "{refusal:?}");
    }
}
