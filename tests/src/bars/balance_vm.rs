//! The kernel's own balancer and ours, run from the same study file in a virtual machine that has both.

use std::fs;

use anyhow::{Context, Result};
use record::TrialEntry;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{Vm, repository};

pub(super) const BAR: Bar = Bar {
    name: "balance-vm",
    what: "in Debian's kernel, studies/l2dsr-vs-proxy.toml with LVS and with our balancer, new and kept connections: 50 users of 3 web \
           hosts, no error",
    full_seconds: 40,
    decided_by: By::Counts,
    run,
};

const STUDY: &str = "/l2dsr-vs-proxy.toml";
const REQUESTS: u64 = 50 * 3;

fn run(scale: Scale) -> Result<Outcome> {
    // One trial with each of the two balancers.
    let (keepalive, trials_due) = scale.pick(("false", 2), ("false,true", 4));
    let study = fs::read(repository().join("studies/l2dsr-vs-proxy.toml"))?;
    let ran = Vm::default()
        .tools(["nginx", "ipvsadm"])
        .modules(["veth", "bridge", "ip_vs", "ip_vs_rr", "sch_ingress", "cls_bpf", "tcp_diag"])
        .file(STUDY, study)
        .proofload()?
        .run(
            &format!("STUDY={STUDY} KEEPALIVE={keepalive}\n{}", include_str!("balance_vm.sh")),
            seconds(1_800),
        )?;
    let (said, trials) = ran.succeeded()?.split_once("== trials\n").context("no trials")?;
    let trials: Vec<TrialEntry> = trials
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .with_context(|| said.to_owned())?;
    let mut outcome = Outcome::default();
    outcome.equal("trials", trials.len() as u64, trials_due, "as the study says");
    let http = || trials.iter().filter_map(|entry| entry.trial.http());
    let completed: u64 = http().map(|trial| trial.counts.completed).sum();
    outcome.equal("completed", completed, trials_due * REQUESTS, "3 requests of each user in each trial");
    outcome.equal("failed", http().map(|trial| trial.counts.failed).sum(), 0, "of all requests");
    let through = |entry: &&TrialEntry| {
        entry.trial.quantities.get("balancer_packets_in_per_request").is_some_and(|n| *n > 1.0)
    };
    outcome.equal(
        "trials_through_a_balancer",
        trials.iter().filter(through).count() as u64,
        trials_due,
        "of all",
    );
    for entry in &trials {
        let quantity = |name| entry.trial.quantities.get(name).copied().unwrap_or(f64::NAN);
        outcome.note(format!(
            "{}: {:.1} us of the balancer's processor time a request (emulated, not comparable), {:.1} packets in",
            entry.setting,
            quantity("host_balancer_processor_us_per_request"),
            quantity("balancer_packets_in_per_request")
        ));
    }
    Ok(outcome)
}
