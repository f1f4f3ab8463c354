//! Studies with balancers: the same target behind each kind, and what passes the balancer.

use anyhow::{Context, Result, ensure};
use record::{ResultFolder, TrialEntry, Validity, VoidRule};

use super::{
    super::{beside_others, need_root},
    run_study, trials_of,
};

const BALANCED: &str = r#"
title = "three web hosts"
[hosts]
client = {}
balancer = {}
web = { count = 3 }
[[links]]
between = ["client", "balancer", "web"]
[targets.web]
ready_timeout = "10m"
on = "web"
run = "nginx"
file = { path = "/file", size = "5KiB" }
[balancer]
on = "balancer"
run = "{balancer}"
vip = "192.168.16.100"
check_interval = "30s"
[workload.http]
from = "client"
path = "/file"
users = 50
keepalive = false
loops = 20
think_time = "20ms"
drain = "5m"
timeout = "5m"
[factors]
balancer = ["direct", "haproxy", "l2dsr"]
[trial]
fresh = "trial"
void_attempts = 2
[[goals]]
errors = 0.0
"#;

/// Ten seconds at the least, so that all actions are done before the end.
const LONG: &str = "loops = 50\nthink_time = \"200ms\"";

/// The trials of a study, in which actions may have failed.
fn trials(text: &str, words: &str) -> Result<Vec<TrialEntry>> {
    let (folder, output) = run_study(text, words)?;
    let trials = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    ensure!(!trials.is_empty(), "{}", output.described());
    Ok(trials)
}

#[test]
fn each_balancer_serves_without_an_error_and_only_a_proxy_carries_answers_as_root() -> Result<()> {
    need_root()?;
    let _shared = beside_others();
    let (folder, output) = run_study(BALANCED, "")?;
    let trials = trials_of(&folder, &output)?;
    let of = |setting: usize| {
        let entry = trials.iter().find(|entry| entry.setting == setting).context("a setting has no trial")?;
        let counts = &entry.trial.http().context("it is of requests")?.counts;
        ensure!((counts.completed, counts.failed) == (1_000, 0), "setting {setting}: {counts:?}");
        Ok(entry)
    };
    let (direct, haproxy, l2dsr) = (of(0)?, of(1)?, of(2)?);
    let quantity = |entry: &TrialEntry, name: &str| {
        let value = entry.trial.quantities.get(name).copied();
        value.with_context(|| format!("there is no {name}: {:?}", entry.trial.quantities))
    };
    let of_each = |name: &str| {
        Ok::<_, anyhow::Error>([quantity(direct, name)?, quantity(l2dsr, name)?, quantity(haproxy, name)?])
    };
    // Nothing goes through the balancer; or what clients send: SYN, request, acknowledgements, FIN; or the answers, too.
    let [none, sent, both] = of_each("balancer_packets_in_per_request")?;
    ensure!(none < sent && sent >= 3.0 && both > 4.0, "{none}, {sent}, {both} packets a request");
    let [none, sent, both] = of_each("balancer_bytes_out_per_request")?;
    ensure!(none < sent && sent < both && both > 5_120.0, "{none}, {sent}, {both} bytes a request");
    ensure!(quantity(l2dsr, "balancer_new_flows")? >= 1_000.0, "{:?}", l2dsr.trial.quantities);
    ensure!(quantity(l2dsr, "balancer_drops_no_server")? == 0.0, "{:?}", l2dsr.trial.quantities);
    ensure!(quantity(haproxy, "balancer_most_connections")? >= 1.0, "{:?}", haproxy.trial.quantities);
    quantity(haproxy, "balancer_retries").map(drop)
}

#[test]
fn what_is_done_during_a_trial_is_recorded_and_a_failure_voids_it() -> Result<()> {
    let _shared = beside_others();
    let actions = "[[actions]]\nat = \"300ms\"\non = \"web3\"\nkill = \"nginx\"\n\
                   [[actions]]\nat = \"100ms\"\non = \"client\"\ncommand = [\"sh\", \"-c\", \"echo {self} >&2; exit 7\"]\n\
                   [[actions]]\nat = \"400ms\"\non = \"web2\"\nlink = \"down\"\n\
                   [[actions]]\nat = \"600ms\"\non = \"web2\"\nlink = \"up\"\n\
                   [[actions]]\nat = \"1h\"\non = \"web1\"\nkill = \"nginx\"\n";
    let text = BALANCED
        .replace("loops = 20\nthink_time = \"20ms\"", LONG)
        .replace("[factors]", &format!("{actions}[factors]"));
    let trials = trials(&text, "--set balancer=haproxy --set trial.void_attempts=0")?;
    let entry = &trials[0];
    let errors: Vec<Option<&str>> = entry.actions.iter().map(|action| action.error.as_deref()).collect();
    ensure!(errors[0].is_none() && errors[2].is_none() && errors[3].is_none(), "{:?}", entry.actions);
    ensure!(errors[1].is_some_and(|why| why.contains("exit status: 7: 10.1.0.")), "{:?}", entry.actions);
    ensure!(errors[4].is_some_and(|why| why.contains("before the action")), "{:?}", entry.actions);
    ensure!(entry.actions[0].began_s.is_some_and(|s| s >= 0.3), "{:?}", entry.actions);
    let Validity::Void { reasons } = &entry.trial.validity else { anyhow::bail!("it is valid") };
    ensure!(reasons.iter().filter(|reason| reason.rule == VoidRule::Action).count() == 2, "{reasons:?}");
    Ok(())
}

#[test]
fn a_server_is_drained_during_a_trial_as_root_and_nobody_notices() -> Result<()> {
    need_root()?;
    let _shared = beside_others();
    let actions = "[[actions]]\nat = \"200ms\"\ndo = \"drain web3\"\n\
                   [[actions]]\nat = \"300ms\"\ndo = \"set web2 --weight 3\"\n\
                   [[actions]]\nat = \"400ms\"\ndo = \"remove web3\"\n\
                   [[actions]]\nat = \"500ms\"\ndo = \"remove web3\"\n";
    let text = BALANCED
        .replace("loops = 20\nthink_time = \"20ms\"", LONG)
        .replace("[factors]", &format!("{actions}[factors]"));
    let trials = trials(&text, "--set balancer=l2dsr --set trial.void_attempts=0")?;
    let entry = &trials[0];
    let errors: Vec<Option<&str>> = entry.actions.iter().map(|action| action.error.as_deref()).collect();
    ensure!(errors[..3] == [None; 3], "{errors:?}");
    ensure!(errors[3].is_some_and(|why| why.contains("web3")), "it is gone: {errors:?}");
    let counts = &entry.trial.http().context("it is of requests")?.counts;
    ensure!((counts.completed, counts.failed) == (2_500, 0), "{counts:?}");
    Ok(())
}
