//! The quantities that the trials of a setup give by name.

use record::GivenQuantity;

use crate::{links, study::Setup};

/// Those of its workload, then those of the observers.
pub(crate) fn of(setup: &Setup) -> Vec<GivenQuantity> {
    let own = setup.workload.quantities(setup.lab.is_some());
    own.into_iter().chain(links::quantities(setup)).collect()
}
