//! A full table of tracked connections, tested in Debian's kernel, because this machine's kernel may track none.

use anyhow::{Context, Result};

use super::{
    Bar, By, Outcome, Scale, seconds,
    verdict_table::{cause_of, verdict_in},
};
use crate::{Vm, random::Random};

pub(super) const BAR: Bar = Bar {
    name: "verdict-conntrack",
    what: "a full table of tracked connections in Debian's kernel, with drawn parameters, is named in 5 of 5 trials, with and without a list of sockets",
    full_seconds: 60,
    decided_by: By::Counts,
    run,
};

const SCRIPT: &str = include_str!("verdict_conntrack.sh");

/// Every second kernel lacks the module that lists its sockets. The verdict does not need the list, but must say that it is missing.
fn run(scale: Scale) -> Result<Outcome> {
    let trials = scale.pick(1, 5);
    let mut outcome = Outcome::default();
    let (mut named, mut told) = (0, 0);
    for trial in 0..trials {
        let mut random = Random::new(17_000 + trial);
        let (entries, users) = (40 + random.below(100), 2 + random.below(5));
        let lists_sockets = trial % 2 == 1;
        let modules = ["veth", "nf_tables", "nft_ct", "nf_conntrack"]
            .into_iter()
            .chain(lists_sockets.then_some("tcp_diag"));
        let script = format!("ENTRIES={entries} USERS={users}\n{SCRIPT}");
        let ran =
            Vm::default().tools(["ip", "nft"]).modules(modules).proofload()?.run(&script, seconds(1_800))?;
        let (_, trials) = ran.succeeded()?.split_once("== trials\n").context("no trial")?;
        let verdict = verdict_in(trials.trim_end())?;
        let cause = cause_of(&verdict);
        named += u64::from(cause == "conntrack");
        told +=
            u64::from(verdict["missing"].to_string().contains("does not list its sockets") != lists_sockets);
        outcome.note(format!("conntrack: {cause} ({})", verdict["bottlenecks"][0]["evidence"]));
    }
    outcome.equal("conntrack", named, trials, "named rightly");
    outcome.equal("conntrack_sockets", told, trials, "whether the kernel lists sockets is told");
    Ok(outcome)
}
