//! Observers: they look before and after a trial, and say what they saw.

use std::{collections::BTreeMap, sync::atomic::AtomicBool};

use record::{AuditResult, GivenQuantity, Goal, Purpose, Trial, VoidReason};

use crate::{
    auditing::Audits,
    course::Cut,
    links::{self, Links},
    stand::Stand,
    study::Setup,
};

/// Looks before and after each trial.
pub(crate) trait Observer {
    /// A trial is about to begin.
    fn before(&mut self, at: &mut At<'_>) -> Result<(), Cut>;

    /// A trial has ended.
    fn after(&mut self, at: &mut At<'_>, trial: &Trial) -> Result<Seen, Cut>;
}

/// The trial that is looked at.
pub(crate) struct At<'a> {
    pub stand: &'a mut Stand,
    pub setup: &'a Setup,
    /// Its number in the study.
    pub number: u64,
    pub purpose: Purpose,
    pub goals: &'a [Goal],
    pub stop: &'a AtomicBool,
}

/// What observers saw of a trial.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// What an audit found.
    pub audit: Option<AuditResult>,
    /// Why the trial is void whatever it measured.
    pub certain: Vec<VoidReason>,
    /// Why the trial is void unless its goals were met.
    pub perhaps: Vec<VoidReason>,
    /// Values of the quantities that were declared in the plan.
    pub quantities: BTreeMap<String, f64>,
}

/// The observers of a study. A new one is a field here and a place in [`Observers::all`].
#[derive(Debug)]
pub(crate) struct Observers {
    pub audits: Audits,
    pub links: Links,
}

/// What the observers give of the trials of a setup.
pub(crate) fn quantities(setup: &Setup) -> Vec<GivenQuantity> {
    links::quantities(setup)
}

impl Observers {
    fn all(&mut self) -> [&mut dyn Observer; 2] {
        [&mut self.audits, &mut self.links]
    }

    /// A trial is about to begin.
    pub(crate) fn before(&mut self, mut at: At<'_>) -> Result<(), Cut> {
        self.all().into_iter().try_for_each(|observer| observer.before(&mut at))
    }

    /// A trial has ended: what all of them saw.
    pub(crate) fn after(&mut self, mut at: At<'_>, trial: &Trial) -> Result<Seen, Cut> {
        let mut all = Seen::default();
        for observer in self.all() {
            let seen = observer.after(&mut at, trial)?;
            all.audit = all.audit.or(seen.audit);
            all.certain.extend(seen.certain);
            all.perhaps.extend(seen.perhaps);
            all.quantities.extend(seen.quantities);
        }
        Ok(all)
    }
}
