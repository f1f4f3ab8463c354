//! Single requests before a search: what one of them can tell is no matter of load.

use std::{path::Path, sync::atomic::Ordering, time::Duration};

use record::{ErrorClass, Trial};

use super::{
    Course,
    trial::{cut, decision},
};
use crate::{
    event::Options,
    searching,
    stand::{Stand, StandError},
    stop_reason::StopReason,
    study::{Setup, Study},
};

/// Asks the targets that run already, of every searched setting, by single requests like the search's own: nothing has been
/// set up or written by then. Targets that a study starts are asked once they are up.
///
/// # Errors
/// Why a target does not answer as expected, in words: no load would tell more.
pub fn refuse_silent(study: &Study, options: &Options) -> Result<(), String> {
    let searched = study.settings.iter().enumerate();
    let searched =
        searched.filter_map(|(number, setting)| Some((number, Some(study.search_of(setting)?.min))));
    let mut running: Vec<(usize, Setup)> = Vec::new();
    study.each_setup(searched, &mut |number, setup| {
        // A mistake in it is told where the plan is made.
        running.extend(setup.ok().filter(|setup| setup.lab.is_none()).map(|setup| (number, setup)));
        true
    });
    let mut asked: Vec<Setup> = Vec::new();
    for (number, setup) in running {
        let setting = &study.settings[number];
        let Some(search) = study.search_of(setting).filter(|_| !asked.contains(&setup)) else { continue };
        let stand =
            Stand::up(setup.clone(), &options.lab, &options.worker, Path::new(""), &mut |_, _| Ok(()));
        let trial_s = searching::plan(study, search).map(|plan| plan.trial_duration_s);
        let Ok(trial_s) = trial_s else { continue };
        let why = stand.and_then(|stand| ask(&stand, &setup, study, trial_s, options));
        match why {
            Ok(None) => asked.push(setup),
            Ok(Some(why)) if setting.name.is_empty() => return Err(why),
            Ok(Some(why)) => return Err(format!("{}: {why}", setting.name)),
            // The search ends in the same way, and says so.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Whether nothing listened all through a trial.
pub(super) fn is_refused(trial: &Trial) -> bool {
    trial.http().is_some_and(|http| {
        http.counts.connections_opened == 0 && http.errors.of(ErrorClass::ConnectRefused) > 0
    })
}

impl Course<'_> {
    /// Asks the target of a searched setting, once it is up for the first time.
    pub(super) fn ask_first(&mut self, setup: &Setup, setting: usize) -> Result<(), StopReason> {
        let is_searched = self.plan.settings[setting].searched;
        if setup.lab.is_none() || !is_searched || self.asked.contains(&setting) {
            return Ok(());
        }
        self.asked.push(setting);
        match self.silence(setup, setting)? {
            None => Ok(()),
            Some(why) => Err(StopReason::Failed(why)),
        }
    }

    /// A target that has gone while it was searched is not one that carries less.
    pub(super) fn still_there(&mut self, setting: usize, load: f64) -> Result<(), StopReason> {
        let Ok(setup) = self.study.setup(setting, Some(load)) else { return Ok(()) };
        match self.silence(&setup, setting)? {
            None => Ok(()),
            Some(why) => {
                Err(StopReason::Failed(format!("the target has gone in the middle of the search: {why}")))
            }
        }
    }

    fn silence(&self, setup: &Setup, setting: usize) -> Result<Option<String>, StopReason> {
        let Some(stand) = &self.stand else { return Ok(None) };
        let Some(search) = self.plan.search_of(setting) else { return Ok(None) };
        ask(stand, setup, self.study, search.trial_duration_s, self.options).map_err(|error| match error {
            StandError::Fleet(_) if self.options.stop.load(Ordering::Relaxed) => StopReason::Stopped,
            error => cut(error),
        })
    }
}

fn ask(
    stand: &Stand,
    setup: &Setup,
    study: &Study,
    trial_s: f64,
    options: &Options,
) -> Result<Option<String>, StandError> {
    // What a program asks is not known.
    let Some(workload) = setup.workload.http() else { return Ok(None) };
    let (plan, _) = stand.plan(workload, !study.seed, |plan| decision(&study.goals, plan))?;
    // Of a trial that its requests end, every answer is waited for.
    let trial = (!setup.workload.ends_itself()).then(|| Duration::from_secs_f64(trial_s));
    stand.silence(&plan, trial, &options.stop)
}
