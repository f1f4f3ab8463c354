//! Probes of targets: single requests before a search that show whether a target answers as expected.

use std::{path::Path, time::Duration};

use record::{ErrorClass, HttpPlan, NamePlan, Trial};

use super::{Runner, trial::decision};
use crate::{
    event::Options,
    running_search,
    stop_reason::{Result, StopReason},
    study::{Setup, Study},
    testbed::{Testbed, TestbedError},
};

/// Probes the external targets of all searched settings with single requests of their own workload, before anything is set up or written.
/// Targets that the study starts are probed once they are up.
///
/// # Errors
/// If a target does not answer as expected: the reason.
pub fn probe_targets(study: &Study, options: &Options) -> Result<(), String> {
    let searched = study.settings.iter().enumerate();
    let searched =
        searched.filter_map(|(number, setting)| Some((number, Some(study.search_of(setting)?.min))));
    let mut external: Vec<(usize, Setup)> = Vec::new();
    study.each_setup(searched, &mut |number, setup| {
        // The planner reports mistakes in a setup.
        external.extend(setup.ok().filter(|setup| setup.lab.is_none()).map(|setup| (number, setup)));
        true
    });
    let mut probed: Vec<Setup> = Vec::new();
    for (number, setup) in external {
        let setting = &study.settings[number];
        let Some(search) = study.search_of(setting).filter(|_| !probed.contains(&setup)) else { continue };
        let testbed = Testbed::bring_up(
            setup.clone(),
            &options.lab,
            &options.generator,
            None,
            Path::new(""),
            &mut |_, _| Ok(()),
        );
        let trial_s = running_search::plan(study, search).map(|plan| plan.trial_duration_s);
        let Ok(trial_s) = trial_s else { continue };
        let why =
            testbed.and_then(|testbed| probe(&testbed, &setup, study, trial_s, options, &mut Vec::new()));
        match why {
            Ok(None) => probed.push(setup),
            Ok(Some(why)) if setting.name.is_empty() => return Err(why),
            Ok(Some(why)) => return Err(format!("{}: {why}", setting.name)),
            // The search will end with the same error and report it.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

impl Runner<'_> {
    /// Probes the target of a searched setting once, when it is up for the first time.
    pub(super) fn probe_once(&mut self, setup: &Setup, setting: usize) -> Result {
        let is_searched = self.plan.settings[setting].searched;
        if setup.lab.is_none() || !is_searched || self.probed_settings.contains(&setting) {
            return Ok(());
        }
        self.probed_settings.push(setting);
        self.probe(setup, setting)?.map_or(Ok(()), |why| Err(StopReason::Failed(why)))
    }

    /// The reason why the target of a search no longer answers, if a trial met refused connections. Such a trial says nothing about
    /// the load that the target carries.
    pub(super) fn is_gone(&mut self, setup: &Setup, setting: usize, trial: &Trial) -> Result<Option<String>> {
        // A target whose host is lost comes back with it.
        if self.testbed.as_ref().and_then(|testbed| testbed.machines()?.lost()).is_some() {
            return Ok(None);
        }
        let is_refused = trial.http().is_some_and(|http| http.errors.of(ErrorClass::ConnectRefused) > 0);
        let why = if is_refused { self.probe(setup, setting)? } else { None };
        Ok(why.map(|why| format!("the target stopped answering during the search: {why}")))
    }

    fn probe(&mut self, setup: &Setup, setting: usize) -> Result<Option<String>> {
        let Some(testbed) = &self.testbed else { return Ok(None) };
        let Some(search) = self.plan.search_of(setting) else { return Ok(None) };
        let trial_s = search.trial_duration_s;
        let found = probe(testbed, setup, self.study, trial_s, self.options, &mut self.names);
        found.map_err(|error| self.stopped_or_failed(error))
    }
}

fn probe(
    testbed: &Testbed,
    setup: &Setup,
    study: &Study,
    trial_s: f64,
    options: &Options,
    names: &mut Vec<NamePlan>,
) -> Result<Option<String>, TestbedError> {
    // The requests of a program are unknown.
    let Some(plan) = probe_plan(testbed, setup, study, names)? else { return Ok(None) };
    // If requests end the trial, the trial waits for every answer.
    let trial = (!setup.workload.ends_itself()).then(|| Duration::from_secs_f64(trial_s));
    testbed.probe(&plan, trial, &options.stop)
}

/// A plan of a setup's requests with a seed other than the study's, so that a probe sends other requests than the trials; `None` for
/// programs.
pub(super) fn probe_plan(
    testbed: &Testbed,
    setup: &Setup,
    study: &Study,
    names: &mut Vec<NamePlan>,
) -> Result<Option<HttpPlan>, TestbedError> {
    let Some(workload) = setup.workload.http() else { return Ok(None) };
    let (plan, _) = testbed.plan(workload, !study.seed, names, |plan| decision(&study.goals, plan))?;
    Ok(Some(plan))
}
