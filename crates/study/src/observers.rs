//! The observers of a study, called in turn.

use record::{DeclaredQuantity, Trial};

use crate::{
    balancer_observer::{self, BalancerObserver},
    evidence::Evidence,
    kernels::{self, Kernels},
    links::{self, Links},
    observer::{Observation, Observer, TrialContext},
    stop_reason::Result,
    study::Setup,
};

/// The observers of a study. A new observer needs a field here and an element in `Observers::all`.
#[derive(Debug)]
pub(crate) struct Observers {
    pub evidence: Evidence,
    pub links: Links,
    pub kernels: Kernels,
    pub balancer: BalancerObserver,
}

impl Observers {
    fn all(&mut self) -> [&mut dyn Observer; 4] {
        // The balancer comes after the kernels, because reading its statistics causes work on its host.
        [&mut self.evidence, &mut self.links, &mut self.kernels, &mut self.balancer]
    }

    pub(crate) fn before(&mut self, mut context: TrialContext<'_>) -> Result {
        // The kernels come last, so that their first reading does not count the work of the other observers.
        let [evidence, links, kernels, balancer] = self.all();
        [evidence, links, balancer, kernels]
            .into_iter()
            .try_for_each(|observer| observer.before(&mut context))
    }

    /// Calls all observers after a trial has ended, and merges their reports.
    pub(crate) fn after(&mut self, mut context: TrialContext<'_>, trial: &Trial) -> Result<Observation> {
        let mut all = Observation::default();
        for observer in self.all() {
            let observed = observer.after(&mut context, trial)?;
            all.audit = all.audit.or(observed.audit);
            all.void_reasons.extend(observed.void_reasons);
            all.stalls.extend(observed.stalls);
            all.stall = all.stall.merged(observed.stall);
            all.quantities.extend(observed.quantities);
            all.links.extend(observed.links);
            all.warning = all.warning.or(observed.warning);
            all.counted = all.counted.or(observed.counted);
        }
        all.stalls.extend(self.links.ended_slow_start(trial, all.counted.as_ref()));
        Ok(all)
    }
}

/// The quantities that the trials of a setup yield: those of the workload, then those of the observers.
pub(crate) fn quantities(setup: &Setup) -> Vec<DeclaredQuantity> {
    let of_workload = setup.workload.quantities(setup.lab.is_some());
    let observed =
        [links::quantities(setup), balancer_observer::quantities(setup), kernels::quantities(setup)];
    of_workload.into_iter().chain(observed.into_iter().flatten()).collect()
}
