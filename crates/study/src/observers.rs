//! The observers of a study, each asked in turn.

use record::{DeclaredQuantity, Trial};

use crate::{
    evidence::Evidence,
    links::{self, Links},
    observer::{At, Observer, Seen},
    stop_reason::StopReason,
    study::Setup,
};

/// The observers of a study. A new one is a field here and a place in [`Observers::all`].
#[derive(Debug)]
pub(crate) struct Observers {
    pub evidence: Evidence,
    pub links: Links,
}

impl Observers {
    fn all(&mut self) -> [&mut dyn Observer; 2] {
        [&mut self.evidence, &mut self.links]
    }

    /// A trial is about to begin.
    pub(crate) fn before(&mut self, mut at: At<'_>) -> Result<(), StopReason> {
        self.all().into_iter().try_for_each(|observer| observer.before(&mut at))
    }

    /// A trial has ended: what all of them saw.
    pub(crate) fn after(&mut self, mut at: At<'_>, trial: &Trial) -> Result<Seen, StopReason> {
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

/// The quantities that the trials of a setup give by name: those of its workload, then those of the observers.
pub(crate) fn quantities(setup: &Setup) -> Vec<DeclaredQuantity> {
    let own = setup.workload.quantities(setup.lab.is_some());
    own.into_iter().chain(links::quantities(setup)).collect()
}
