//! An observer looks before and after a trial, and says what it saw.

use std::{collections::BTreeMap, sync::atomic::AtomicBool};

use record::{AuditResult, Goal, Purpose, Trial, VoidReason};

use crate::{stand::Stand, stop_reason::StopReason, study::Setup};

/// Looks before and after each trial.
pub(crate) trait Observer {
    /// A trial is about to begin.
    fn before(&mut self, _: &mut At<'_>) -> Result<(), StopReason> {
        Ok(())
    }

    /// A trial has ended.
    fn after(&mut self, at: &mut At<'_>, trial: &Trial) -> Result<Seen, StopReason>;
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
