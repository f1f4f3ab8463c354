//! The processor time that a balancer spends on a request, compared with HAProxy and with no balancer.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};
use record::{ResultFolder, StudyPlan, TrialEntry, folder::Contents};

use super::{Bar, By, Outcome, Runs, Scale, seconds};
use crate::{Proofload, stats::median, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "balance-cost",
    what: "balancer, HAProxy and no balancer in turns over the same servers, new and kept connections, 8 rounds: the balancer's processor \
           time a request is <= 1/8 of HAProxy's, also in trials of 60 s, in which it remembers a connection of every port of the \
           client; what it adds to the machine's <= 0.3 of what HAProxy adds",
    full_seconds: 470,
    decided_by: By::Times,
    run,
};

const STUDY: &str = r#"
title = "Cost of a balancer"
[hosts]
client = { sysctls = { "net.ipv4.ip_local_port_range" = "1024 65535" } }
balancer = {}
web = { count = 4 }
[[links]]
between = ["client", "balancer", "web"]
[targets.web]
on = "web"
run = "nginx"
file = { path = "/5k", size = "5KiB" }
[balancer]
on = "balancer"
run = "{balancer}"
vip = "192.168.16.100"
reuse = "always"
[workload.http]
from = "client"
path = "/5k"
users = 50
duration = "SECONDS"
[factors]
balancer = BALANCERS
keepalive = KEEPALIVE
[trial]
repeats = ROUNDS
void_attempts = 0
fresh = "trial"
processor_time = true
"#;

fn run(scale: Scale) -> Result<Outcome> {
    let (rounds, duration, balancers) =
        scale.pick((1, "1s", r#"["l2dsr", "haproxy"]"#), (8, "3s", r#"["direct", "l2dsr", "haproxy"]"#));
    let Contents { plan, trials, .. } = studied(rounds, duration, balancers, "[false, true]")?;
    let mut outcome = Outcome::default();
    for keepalive in [false, true] {
        let of = |balancer: &str, quantity: &str| values(&plan, &trials, (balancer, keepalive), quantity);
        let (own, proxy) = (of("l2dsr", BALANCER), of("haproxy", BALANCER));
        let [direct, own_machine, proxy_machine] =
            ["direct", "l2dsr", "haproxy"].map(|balancer| of(balancer, MACHINE));
        let mode = if keepalive { "kept" } else { "new" };
        outcome.equal(&format!("{mode}_rounds"), own.len().min(proxy.len()) as u64, rounds, "with both");
        let mut ratio = Runs::default();
        own.iter().zip(&proxy).for_each(|(own, proxy)| ratio.push(own / proxy));
        // A sample has a single round of one second, on a machine with as few as two processors, so its bound is wider.
        let most = scale.pick(0.2, 1.0 / 8.0);
        outcome.time().at_most(&format!("{mode}_balancer_to_haproxy"), &ratio, most, "");
        // The figure is a ratio of differences, for which a short round is too noisy.
        if scale == Scale::Full {
            let mut added = Runs::default();
            let each = direct.iter().zip(&own_machine).zip(&proxy_machine);
            each.for_each(|((direct, own), proxy)| added.push((own - direct) / (proxy - direct)));
            outcome.time().at_most(&format!("{mode}_added_to_machine"), &added, 0.3, "");
        }
        let shown = |values: &[f64]| format!("{:.1}", median(values));
        outcome.note(format!(
            "{mode} connections, us of processor time a request: balancer {}, haproxy {}; of the machine: balancer {}, haproxy {}, none {}",
            shown(&own),
            shown(&proxy),
            shown(&own_machine),
            shown(&proxy_machine),
            if direct.is_empty() { "not measured".to_owned() } else { shown(&direct) }
        ));
    }
    outcome.equal("failed", failed(&trials), 0, "of all requests");
    if scale == Scale::Full {
        // Closed connections stay in the balancer's table for two minutes, and counting them takes time for each, so also measure a long
        // trial.
        let Contents { plan, trials, .. } = studied(1, "60s", r#"["l2dsr", "haproxy"]"#, "[false]")?;
        let of = |balancer: &str| values(&plan, &trials, (balancer, false), BALANCER);
        let (own, proxy) = (of("l2dsr"), of("haproxy"));
        let mut ratio = Runs::default();
        own.iter().zip(&proxy).for_each(|(own, proxy)| ratio.push(own / proxy));
        outcome.equal("long_rounds", own.len().min(proxy.len()) as u64, 1, "with both");
        outcome.time().at_most("long_balancer_to_haproxy", &ratio, 1.0 / 8.0, " in 60 s");
        outcome.note(format!("in 60 s, us a request: balancer {own:.1?}, haproxy {proxy:.1?}"));
        outcome.equal("long_failed", failed(&trials), 0, "of all requests");
    }
    Ok(outcome)
}

fn studied(rounds: u64, duration: &str, balancers: &str, keepalive: &str) -> Result<Contents> {
    let folder = TemporaryFolder::new()?;
    let (file, out) = (folder.file("study.toml"), folder.file("result"));
    let study = STUDY.replace("ROUNDS", &format!("{rounds}")).replace("SECONDS", duration);
    fs::write(&file, study.replace("BALANCERS", balancers).replace("KEEPALIVE", keepalive))?;
    let run = Proofload::new("run")?.arg(&file).with(|launch| launch.args(["--out", &out, "-q"]));
    // Clients and servers use all processors, so trials may be void. Only processor time is judged here, which stays valid.
    let output = run.timeout(seconds(900)).run()?;
    let read = ResultFolder::open(out.as_ref()).and_then(|folder| folder.read());
    read.with_context(|| output.described())
}

fn failed(trials: &[TrialEntry]) -> u64 {
    trials.iter().filter_map(|entry| entry.trial.http()).map(|http| http.counts.failed).sum()
}

const BALANCER: &str = "host_balancer_processor_us_per_request";
const MACHINE: &str = "machine_processor_us_per_request";

/// The values of a quantity, in the order of the rounds. If a trial was repeated, its last value counts.
fn values(
    plan: &StudyPlan,
    trials: &[TrialEntry],
    (balancer, keepalive): (&str, bool),
    quantity: &str,
) -> Vec<f64> {
    let levels = [("balancer", balancer.to_owned()), ("keepalive", keepalive.to_string())];
    let is_own = |entry: &&TrialEntry| {
        let own = &plan.settings[entry.setting].levels;
        levels.iter().all(|(factor, level)| own.get(*factor).is_some_and(|own| own.to_string() == *level))
    };
    let value = |entry: &TrialEntry| Some((entry.block, *entry.trial.quantities.get(quantity)?));
    trials.iter().filter(is_own).filter_map(value).collect::<BTreeMap<_, _>>().into_values().collect()
}
