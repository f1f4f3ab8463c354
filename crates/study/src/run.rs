//! Runs a study: every block, every setting, every trial, and writes down each before the next.

use std::{
    collections::BTreeSet,
    time::{SystemTime, UNIX_EPOCH},
};

use load::MachineLimits;
use record::{
    Ending, ResultFolder, SecretPrint, StudyPlan, StudyResult, TrialEntry, Warning,
    folder::{Contents, FolderError},
    study::RESULT_SCHEMA,
};

use crate::{
    course::{Course, Kept},
    environment,
    event::{Event, Options},
    evidence::Evidence,
    outcome,
    stop_reason::StopReason,
    study::{Source, Study},
};

/// The code of the warning that says why a study failed.
pub const FAILED: &str = "study_failed";

/// Why a study could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The result folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The folder holds the result of another plan.
    #[error("{0}")]
    OtherPlan(String),
    /// The search cannot work so.
    #[error("the search: {0}")]
    Search(String),
    /// This machine's limits cannot be read.
    #[error("cannot read this machine's limits: {0}")]
    Host(std::io::Error),
}

/// Runs a study and leaves its result in the folder.
///
/// # Errors
/// When nothing could be begun. What goes wrong later ends the study, and its result says so.
pub fn run(
    study: &Study,
    folder: &ResultFolder,
    options: &Options,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<StudyResult, RunError> {
    let made = crate::plan::plan(study, options.command.clone());
    let made = made.map_err(RunError::Search)?;
    // First of all: nobody else may be writing to this folder.
    let journal = folder.journal()?;
    let (plan, done, earlier) = begin(study, made, folder, options)?;
    let earlier = match earlier {
        // What is finished is not touched again.
        Some(finished) if finished.ending == Ending::Finished => {
            on_event(Event::Warning(
                "this study is finished: there is nothing to go on with, and nothing was run",
            ));
            return Ok(finished);
        }
        earlier => earlier,
    };
    let again = done.iter().filter(|entry| entry.is_tried_again(study.trial.void_attempts)).count();
    on_event(Event::Planned { plan: &plan, done: done.len(), again });
    let started_unix_s = match &earlier {
        Some(earlier) => earlier.started_unix_s,
        None => done.first().map_or_else(unix_s, |entry| entry.trial.started_unix_s - entry.study_time_s),
    };
    let resumed = earlier.as_ref().map_or(u32::from(options.resume), |earlier| earlier.resumed + 1);
    let mut told = earlier.map(|earlier| earlier.warnings).unwrap_or_default();
    // It was why the earlier run ended; this one ends in its own way.
    told.retain(|warning| warning.code != FAILED);
    let evidence = Evidence::new(folder, &done).map_err(|cause| FolderError::File {
        what: "find",
        path: folder.path().to_owned(),
        cause,
    })?;
    let mut course = Course::new(study, &plan, options, on_event, Kept { folder, journal, evidence }, done);
    course.unwritten.extend(other_environment(folder, options)?);
    let ending = course.finish();
    course.take_down();
    let elapsed_s = course.study_time_s();
    let Course { entries, unwritten, .. } = course;
    let noticed = entries.iter().flat_map(|entry| &entry.noticed).chain(&unwritten);
    let mut warnings: Vec<Warning> = Vec::new();
    for warning in told.iter().chain(&study.warnings).chain(noticed) {
        if !warnings.contains(warning) {
            warnings.push(warning.clone());
        }
    }
    let (ending, failure) = match ending {
        Ok(()) => (Ending::Finished, None),
        Err(StopReason::Stopped) => (Ending::Interrupted, None),
        Err(StopReason::OutOfBudget) => (Ending::OutOfBudget, None),
        Err(StopReason::Failed(why)) => (Ending::Failed, Some(why)),
        Err(StopReason::OtherJournal(why)) => return Err(RunError::OtherPlan(why)),
    };
    // It may repeat what a target wrote.
    warnings.extend(failure.map(|why| Warning::new(FAILED, secrets::mask(&why))));
    let outcomes = outcome::of(&plan, &entries).map_err(RunError::OtherPlan)?;
    let result = StudyResult {
        schema: RESULT_SCHEMA.to_owned(),
        ending,
        started_unix_s,
        elapsed_s,
        resumed,
        trials: entries.len() as u64,
        void_trials: entries.iter().filter(|entry| entry.trial.validity.is_void()).count() as u64,
        outcomes,
        warnings,
    };
    folder.write_result(&result)?;
    Ok(result)
}

/// Writes down what is to be run, or takes up what is written.
fn begin(
    study: &Study,
    mut made: StudyPlan,
    folder: &ResultFolder,
    options: &Options,
) -> Result<(StudyPlan, Vec<TrialEntry>, Option<StudyResult>), RunError> {
    if !options.resume {
        let host = MachineLimits::read().map_err(RunError::Host)?;
        made.secrets = crate::plan::secret_prints(study, None).map_err(RunError::OtherPlan)?;
        folder.write_environment(&environment::read(&host), &made)?;
        if let Source::File(document) = &study.source {
            folder.write_study_file(&document.masked_text())?;
        }
        // The last of the three: a folder with a plan is a result.
        folder.write_plan(&made)?;
        return Ok((made, Vec::new(), None));
    }
    let Contents { plan: written, trials, result, .. } = folder.read()?;
    let salt = written.secrets.as_ref().map(|secrets| secrets.salt.as_str());
    made.secrets = crate::plan::secret_prints(study, salt).map_err(RunError::OtherPlan)?;
    if let Some(other) = other_secrets(&written, &made) {
        return Err(RunError::OtherPlan(format!(
            "{} was begun with {other}; secrets are not kept: give the same ones again, or run it anew in another folder \
             (--out)",
            folder.path().display()
        )));
    }
    // The command line says --resume now, and perhaps another --set budget; everything else must be as it was.
    let same = StudyPlan { command: made.command.clone(), ..written.clone() } == made;
    if !same {
        return Err(RunError::OtherPlan(format!(
            "{} holds the result of another plan: the study file, its --set, the options or this program's version have changed \
             since; run it anew in another folder (--out)",
            folder.path().display()
        )));
    }
    Ok((written, trials, result))
}

/// Which secrets are not those that a study was begun with, in words.
fn other_secrets(written: &StudyPlan, made: &StudyPlan) -> Option<String> {
    let prints =
        |plan: &StudyPlan| plan.secrets.as_ref().map_or(Vec::new(), |secrets| secrets.prints.clone());
    let (then, now) = (prints(written), prints(made));
    let names = |prints: &[SecretPrint], others: &[SecretPrint]| -> BTreeSet<String> {
        prints.iter().filter(|print| !others.contains(print)).map(|print| print.what.clone()).collect()
    };
    let (gone, new) = (names(&then, &now), names(&now, &then));
    let list = |names: Vec<&String>| names.into_iter().cloned().collect::<Vec<_>>().join(", ");
    let differing = [
        ("another value of", list(gone.intersection(&new).collect())),
        ("a secret that is not given now:", list(gone.difference(&new).collect())),
        ("no secret in", list(new.difference(&gone).collect())),
    ];
    let words = differing.iter().filter(|(_, names)| !names.is_empty());
    let words: Vec<String> = words.map(|(what, names)| format!("{what} {names}")).collect();
    (!words.is_empty()).then(|| words.join(", and "))
}

/// What is no longer as it was when a study that is taken up again was begun.
fn other_environment(folder: &ResultFolder, options: &Options) -> Result<Option<Warning>, RunError> {
    if !options.resume {
        return Ok(None);
    }
    let here = environment::read(&MachineLimits::read().map_err(RunError::Host)?);
    let differences = folder.environment()?.differences(&here);
    Ok((!differences.is_empty()).then(|| {
        let message = format!(
            "taken up again in another environment, so that trials before and after are not alike ({}); run it anew to \
             have all of them here",
            differences.join("; ")
        );
        Warning::new("other_environment", message)
    }))
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
