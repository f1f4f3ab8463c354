//! The interface of observers, which examine hosts and targets before and after a trial.

use std::{collections::BTreeMap, sync::atomic::AtomicBool};

use record::{AuditResult, Goal, LinkStall, Purpose, Trial, VoidReason, Warning};

use verdict::LinkUse;

use crate::{counted::Counted, stop_reason::Result, study::Setup, testbed::Testbed};

/// Examines hosts and targets before and after each trial.
pub(crate) trait Observer {
    /// Called before a trial begins.
    fn before(&mut self, _: &mut TrialContext<'_>) -> Result {
        Ok(())
    }

    /// Called after a trial has ended.
    fn after(&mut self, context: &mut TrialContext<'_>, trial: &Trial) -> Result<Observation>;
}

pub(crate) struct TrialContext<'a> {
    pub testbed: &'a mut Testbed,
    pub setup: &'a Setup,
    pub number: u64,
    pub purpose: Purpose,
    pub goals: &'a [Goal],
    pub stop: &'a AtomicBool,
}

/// The report of observers on a trial.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    pub audit: Option<AuditResult>,
    /// Reasons that always make the trial void.
    pub void_reasons: Vec<VoidReason>,
    /// Stalls of links. Each makes the trial void unless its goals are decided in spite of the stall.
    pub stalls: Vec<VoidReason>,
    /// The largest possible effect of these stalls.
    pub stall: LinkStall,
    /// The counters of the hosts' kernels.
    pub counted: Option<Counted>,
    /// A warning about the observation.
    pub warning: Option<Warning>,
    /// The traffic that the links carried.
    pub links: Vec<LinkUse>,
    /// Values of the quantities that the plan declares.
    pub quantities: BTreeMap<String, f64>,
}
