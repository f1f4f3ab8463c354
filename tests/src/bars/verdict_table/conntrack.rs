//! A full table of tracked connections, in Debian's kernel: ours tracks none.

use anyhow::{Context, Result};

use super::{cause_of, decide, verdict_in};
use crate::{
    Vm,
    bars::{Outcome, seconds},
    random::Random,
};

const SCRIPT: &str = include_str!("conntrack.sh");

/// Runs the case. Every second kernel does not list its sockets, which takes a module: the verdict needs none of them, and says so.
pub(super) fn run(outcome: &mut Outcome, trials: u64) -> Result<()> {
    let (mut named, mut void, mut told) = (0, 0, 0);
    for trial in 0..trials {
        let mut random = Random::new(17_000 + trial);
        let (entries, users) = (40 + random.below(100), 2 + random.below(5));
        let lists_sockets = trial % 2 == 1;
        let modules = ["veth", "nf_tables", "nft_ct", "nf_conntrack"]
            .into_iter()
            .chain(lists_sockets.then_some("tcp_diag"));
        let script = format!("ENTRIES={entries} USERS={users}\n{SCRIPT}");
        let ran =
            Vm::default().tools(["ip", "nft"]).modules(modules).proofload()?.run(&script, seconds(120))?;
        let (_, trials) = ran.succeeded()?.split_once("== trials\n").context("no trial")?;
        let verdict = verdict_in(trials.trim_end())?;
        let cause = cause_of(&verdict);
        named += u64::from(cause == "conntrack");
        void += u64::from(cause == "generator");
        told +=
            u64::from(verdict["missing"].to_string().contains("does not list its sockets") != lists_sockets);
        outcome.note(format!("conntrack: {cause} ({})", verdict["bottlenecks"][0]["evidence"]));
    }
    decide(outcome, "conntrack", [named, void, trials], "named rightly");
    outcome.equal("conntrack_sockets", told, trials, "whether the kernel lists sockets is told");
    Ok(())
}
