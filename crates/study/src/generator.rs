//! What makes the HTTP load: worker processes of this machine, or other machines.

use std::sync::Arc;

use fleet::{Machines, Workers, only_here};
use load::MachineLimits;

use crate::study::Study;

/// What makes the HTTP load.
#[derive(Debug, Clone)]
pub struct Generator {
    /// Arguments that make this program a worker process.
    pub worker: Vec<String>,
    /// The machines that make the load in place of this one.
    pub machines: Option<Arc<Machines>>,
}

impl Generator {
    /// Where the workers of a trial without a lab run.
    pub(crate) fn workers(&self) -> Workers<'_> {
        match &self.machines {
            Some(machines) => Workers::Machines(machines),
            None => Workers::Here(&self.worker),
        }
    }
}

/// Why other machines cannot make the load of a study. `limits`: those of any machine, because only what is sent matters.
pub fn refusals(study: &Study, limits: &MachineLimits) -> Vec<String> {
    let mut refusals: Vec<String> = Vec::new();
    let mut refuse = |why: String| {
        if !refusals.contains(&why) {
            refusals.push(why);
        }
    };
    let settings = (0..study.settings.len())
        .map(|setting| (setting, study.search_of(&study.settings[setting]).map(|search| search.min)));
    study.each_setup(settings, &mut |_, setup| {
        // The planner reports mistakes in a setup.
        let Ok(setup) = setup else { return true };
        if setup.lab.is_some() {
            refuse(
                "the study makes its load on hosts of its own: leave --on out, or give the target a url"
                    .to_owned(),
            );
        }
        match setup.workload.http().map(|workload| workload.plan(limits)) {
            None => refuse("the load is a program: --on is for HTTP loads".to_owned()),
            Some(Err(_)) => {}
            Some(Ok(plan)) => {
                let words = |mistake: load::FieldMistake| format!("{}: {}", mistake.field, mistake.message);
                only_here(&plan).into_iter().map(words).for_each(&mut refuse);
            }
        }
        true
    });
    refusals
}
