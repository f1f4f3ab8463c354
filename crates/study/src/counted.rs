//! What the kernels of a trial's hosts counted, and what it says.

use std::{fs::File, io, sync::Arc};

use kernel::{
    namespaces::{self, Kind},
    watch::{Watch, WatchedHost},
};
use record::{Trial, TrialCounters, Verdict, Warning};
use verdict::{LinkUse, Observed, Role};

/// What the kernels counted, and the part that each host had.
#[derive(Debug)]
pub(crate) struct Counted {
    pub counters: TrialCounters,
    pub roles: Vec<Role>,
}

/// Watches this machine while `work` runs a trial, and says what bounded the trial.
pub(crate) fn watch_this_machine<T>(work: impl FnOnce() -> T) -> (T, io::Result<Counted>) {
    let watch = this_machine().and_then(|host| Watch::start(vec![host]));
    let done = work();
    let counted = watch.and_then(Watch::stop).map(|counters| Counted { counters, roles: vec![Role::Both] });
    (done, counted)
}

/// Says what bounded a trial that has been judged.
pub(crate) fn verdict(trial: &Trial, goals_met: bool, counted: &Counted, links: &[LinkUse]) -> Verdict {
    let Counted { counters, roles } = counted;
    verdict::judge(&Observed { trial, goals_met, counters, roles, links })
}

/// The warning that no kernel could be looked at.
pub(crate) fn no_counters(error: &io::Error) -> Warning {
    let message =
        format!("what bounded the trial is not known, because the kernel's counters cannot be read: {error}");
    Warning::new("no_counters", message)
}

/// This machine, as a host to watch.
pub(crate) fn this_machine() -> io::Result<WatchedHost> {
    let network = File::open(namespaces::path_of(std::process::id(), Kind::Network))?;
    Ok(WatchedHost { name: String::new(), network: Arc::new(network), group: None })
}
