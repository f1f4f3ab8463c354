//! Runs a study trial by trial, or resumes an interrupted run, and writes its result.

use std::collections::BTreeSet;

use load::MachineLimits;
use record::{
    Ending, ResultFolder, SecretFingerprint, StudyPlan, StudyResult, TrialEntry, Warning,
    folder::{Contents, FolderError},
    study::RESULT_SCHEMA,
};

use crate::{
    environment,
    event::{Event, Options},
    evidence::Evidence,
    machines::Placement,
    outcome,
    runner::{Outputs, Runner},
    stop_reason::StopReason,
    study::{Begin, Source, Study},
};

/// Code of the warning that says why a study failed.
pub const FAILED: &str = "study_failed";

/// Why a study cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The result folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The study cannot run on this folder.
    #[error("{0}")]
    Refused(String),
    /// The search cannot work with these values.
    #[error("the search: {0}")]
    Search(String),
    /// This machine's limits cannot be read.
    #[error("cannot read this machine's limits: {0}")]
    MachineLimits(std::io::Error),
}

/// Runs a study and writes its result into the folder.
///
/// # Errors
/// If the study cannot begin. A later error ends the study, and the result holds it.
pub fn run(
    study: &Study,
    folder: &ResultFolder,
    options: &Options,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<StudyResult, RunError> {
    let new_plan = crate::plan::plan(study, options.command.clone()).map_err(RunError::Search)?;
    // The journal is a lock: no other process may write to this folder.
    let journal = if options.resume { folder.journal() } else { folder.begin() }?;
    let (plan, done, earlier) = create_or_resume(study, new_plan, folder, options)?;
    let earlier = match earlier {
        // Leave a finished study unchanged.
        Some(finished) if finished.ending == Ending::Finished => {
            on_event(Event::Warning("this study is finished: nothing is left to run"));
            return Ok(finished);
        }
        earlier => earlier,
    };
    let retried = done.iter().filter(|entry| entry.needs_retry(study.trial.void_attempts)).count();
    on_event(Event::Planned { plan: &plan, done: done.len(), retried });
    let started_unix_s = match &earlier {
        Some(earlier) => earlier.started_unix_s,
        None => {
            done.first().map_or_else(clock::unix_s, |entry| entry.trial.started_unix_s - entry.study_time_s)
        }
    };
    let resumed = earlier.as_ref().map_or(u32::from(options.resume), |earlier| earlier.resumed + 1);
    let mut earlier_warnings = earlier.map(|earlier| earlier.warnings).unwrap_or_default();
    // This warning says why the earlier run ended, which no longer holds.
    earlier_warnings.retain(|warning| warning.code != FAILED);
    let evidence = Evidence::new(folder, &done).map_err(|cause| FolderError::File {
        what: "continue in",
        path: folder.path().to_owned(),
        cause,
    })?;
    let mut runner =
        Runner::new(study, &plan, options, on_event, Outputs { folder, journal, evidence }, done);
    runner.pending_warnings.extend(other_environment(folder, options)?);
    let ending = runner.finish();
    runner.take_down();
    let elapsed_s = runner.study_time_s();
    let Runner { entries, pending_warnings, .. } = runner;
    let noticed = entries.iter().flat_map(|entry| &entry.noticed).chain(&pending_warnings);
    let mut warnings: Vec<Warning> = Vec::new();
    for warning in earlier_warnings.iter().chain(&study.warnings).chain(noticed) {
        if !warnings.contains(warning) {
            warnings.push(warning.clone());
        }
    }
    let (ending, failure) = match ending {
        Ok(()) => (Ending::Finished, None),
        Err(StopReason::Stopped) => (Ending::Interrupted, None),
        Err(StopReason::OutOfBudget) => (Ending::OutOfBudget, None),
        Err(StopReason::Failed(why)) => (Ending::Failed, Some(why)),
        Err(StopReason::OtherJournal(why)) => return Err(RunError::Refused(why)),
    };
    // The error message may repeat output of a target.
    warnings.extend(failure.map(|why| Warning::new(FAILED, secrets::mask(&why))));
    let outcomes = outcome::outcomes(&plan, &entries).map_err(RunError::Refused)?;
    let result = StudyResult {
        schema: RESULT_SCHEMA.to_owned(),
        ending,
        started_unix_s,
        elapsed_s,
        resumed,
        trials: entries.len() as u64,
        void_trials: entries.iter().filter(|entry| entry.trial.validity.is_void()).count() as u64,
        outcomes,
        proofs: Vec::new(),
        warnings,
    };
    folder.write_result(&result)?;
    Ok(result)
}

/// Writes the plan into a new folder, or reads the plan and the trials of the run to resume.
fn create_or_resume(
    study: &Study,
    mut new_plan: StudyPlan,
    folder: &ResultFolder,
    options: &Options,
) -> Result<(StudyPlan, Vec<TrialEntry>, Option<StudyResult>), RunError> {
    new_plan.machines =
        options.generator.machines.as_ref().map_or_else(Vec::new, |machines| machines.names());
    new_plan.machines.extend(options.placement.iter().flat_map(Placement::description));
    if !options.resume {
        let host = MachineLimits::read().map_err(RunError::MachineLimits)?;
        new_plan.secrets = crate::plan::secret_prints(study, None).map_err(RunError::Refused)?;
        folder.write_environment(&environment::read(&host), &new_plan)?;
        if let Source::File(document) = &study.source {
            folder.write_study_file(&document.masked_text())?;
        }
        // Write the plan last: a folder with a plan counts as a result.
        folder.write_plan(&new_plan)?;
        return Ok((new_plan, Vec::new(), None));
    }
    let Contents { plan: stored_plan, trials, result, .. } = folder.read()?;
    let salt = stored_plan.secrets.as_ref().map(|secrets| secrets.salt.as_str());
    new_plan.secrets = crate::plan::secret_prints(study, salt).map_err(RunError::Refused)?;
    if let Some(other) = other_secrets(&stored_plan, &new_plan) {
        return Err(RunError::Refused(format!(
            "{} was begun with {other}; secrets are not stored: give the same secrets, or run the study in another folder \
             (--out)",
            folder.path().display()
        )));
    }
    if stored_plan.machines != new_plan.machines {
        let named = |plan: &StudyPlan| match plan.machines.as_slice() {
            [] => "this machine".to_owned(),
            machines => machines.join(", "),
        };
        return Err(RunError::Refused(format!(
            "{} was begun on {}, and this command would go on with {}: make the same machines available, or run the study in another \
             folder (--out)",
            folder.path().display(),
            named(&stored_plan),
            named(&new_plan)
        )));
    }
    // `--resume` changes the command line. `--set budget` may change it, too, and also the maximum length of trials. Everything else must
    // be equal.
    keep_settings(study, &mut new_plan, &stored_plan);
    let same = StudyPlan { command: new_plan.command.clone(), ..stored_plan.clone() } == new_plan;
    if !same {
        return Err(RunError::Refused(format!(
            "{} holds the result of another plan: the study file, its --set, the options or this program's version have changed \
             since; run the study in another folder (--out)",
            folder.path().display()
        )));
    }
    Ok((stored_plan, trials, result))
}

/// Keeps two settings of the resumed run: the maximum length of trials, which its budget determined, and the load that a look at the target
/// found.
fn keep_settings(study: &Study, new_plan: &mut StudyPlan, stored_plan: &StudyPlan) {
    let looks = study.search.as_ref().is_some_and(|search| search.begin == Begin::Looks);
    let stored = stored_plan.search.iter().chain(&stored_plan.other_searches);
    for (new, stored) in new_plan.search.iter_mut().chain(&mut new_plan.other_searches).zip(stored) {
        let Some(settings) = new.method_settings.as_object_mut() else { continue };
        for (name, is_kept) in [("longer_max", true), ("expected_load", looks)] {
            match stored.method_settings.get(name) {
                _ if !is_kept => None,
                Some(value) => settings.insert(name.to_owned(), value.clone()),
                None => settings.remove(name),
            };
        }
    }
}

/// Names the secrets that differ from those with which a study began; `None` if all are equal.
fn other_secrets(stored_plan: &StudyPlan, new_plan: &StudyPlan) -> Option<String> {
    let prints =
        |plan: &StudyPlan| plan.secrets.as_ref().map_or(Vec::new(), |secrets| secrets.prints.clone());
    let (then, now) = (prints(stored_plan), prints(new_plan));
    let names = |prints: &[SecretFingerprint], others: &[SecretFingerprint]| -> BTreeSet<String> {
        prints.iter().filter(|print| !others.contains(print)).map(|print| print.what.clone()).collect()
    };
    let (gone, new) = (names(&then, &now), names(&now, &then));
    let list = |names: Vec<&String>| names.into_iter().cloned().collect::<Vec<_>>().join(", ");
    let differing = [
        ("another value of", list(gone.intersection(&new).collect())),
        ("a secret that is missing now:", list(gone.difference(&new).collect())),
        ("no secret in", list(new.difference(&gone).collect())),
    ];
    let words = differing.iter().filter(|(_, names)| !names.is_empty());
    let words: Vec<String> = words.map(|(what, names)| format!("{what} {names}")).collect();
    (!words.is_empty()).then(|| words.join(", and "))
}

/// Warns if the resumed study began on another machine.
fn other_environment(folder: &ResultFolder, options: &Options) -> Result<Option<Warning>, RunError> {
    if !options.resume {
        return Ok(None);
    }
    let here = environment::read(&MachineLimits::read().map_err(RunError::MachineLimits)?);
    let differences = folder.environment()?.differences(&here);
    Ok((!differences.is_empty()).then(|| {
        let message = format!(
            "resumed in another environment, so that trials before and after cannot be compared ({}); run the study \
             again to measure all trials in one environment",
            differences.join("; ")
        );
        Warning::new("other_environment", message)
    }))
}
