//! Remote hosts whose kernels are read around each trial.

use std::{collections::BTreeSet, sync::Arc, thread};

use kernel::remote::{Destination, Remote};

/// Remote hosts with an open login for all trials of a command.
#[derive(Debug, Clone, Default)]
pub struct RemoteHosts(pub(crate) Arc<[Arc<Remote>]>);

impl RemoteHosts {
    /// Logs in to all hosts concurrently.
    ///
    /// # Errors
    /// If a login fails: the reason for each such host.
    pub fn connect(destinations: &[Destination]) -> Result<Self, Vec<String>> {
        let mut names = BTreeSet::new();
        let twice = destinations.iter().filter(|to| !names.insert(&to.name));
        let twice =
            twice.map(|to| format!("two observed hosts are called {}; rename one: NAME=USER@HOST", to.name));
        let mut mistakes: Vec<String> = twice.collect();
        let mut remotes = Vec::new();
        thread::scope(|scope| {
            let connecting = |to: &Destination| {
                let to = to.clone();
                thread::Builder::new()
                    .spawn_scoped(scope, move || Remote::connect(to))
                    .map_err(|why| why.to_string())
            };
            let all: Vec<_> = destinations.iter().map(connecting).collect();
            for connected in all {
                let joined = connected
                    .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                match joined.and_then(|connected| connected) {
                    Ok(remote) => remotes.push(Arc::new(remote)),
                    Err(why) => mistakes.push(why),
                }
            }
        });
        if mistakes.is_empty() { Ok(Self(remotes.into())) } else { Err(mistakes) }
    }
}
