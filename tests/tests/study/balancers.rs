//! Studies with balancers: the same target behind each kind, and what passes the balancer.

use anyhow::{Context, Result, ensure};
use record::{ResultFolder, TrialEntry, Validity, VoidRule};

use super::{super::beside_others, run_study};

const BALANCED: &str = r#"
title = "three web hosts"
[hosts]
client = {}
balancer = {}
web = { count = 3 }
[[links]]
between = ["client", "balancer", "web"]
[targets.web]
on = "web"
run = "nginx"
file = { path = "/file", size = "5KiB" }
[balancer]
on = "balancer"
run = "{balancer}"
vip = "192.168.16.100"
check_interval = "200ms"
[workload.http]
from = "client"
path = "/file"
users = 50
keepalive = false
loops = 20
think_time = "20ms"
[factors]
balancer = ["direct", "haproxy", "l2dsr"]
[trial]
fresh = "trial"
void_attempts = 2
[[goals]]
errors = 0.0
"#;

/// A level of the balancer that this user may run: only root may load BPF programs.
fn levels() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => "direct,haproxy,l2dsr",
        false => "direct,haproxy",
    }
}

fn trials(text: &str, words: &str) -> Result<Vec<TrialEntry>> {
    let (folder, output) = run_study(text, words)?;
    // On a crowded machine trials are void; what they counted holds all the same.
    ensure!(matches!(output.code, Some(0 | 3)), "{}", output.described());
    let trials = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    ensure!(!trials.is_empty(), "{}", output.described());
    Ok(trials)
}

#[test]
fn each_balancer_serves_without_an_error_and_only_a_proxy_carries_answers() -> Result<()> {
    let _shared = beside_others();
    let levels: Vec<&str> = levels().split(',').collect();
    let trials = trials(BALANCED, &format!("--set balancer={}", levels.join(",")))?;
    for (setting, level) in levels.iter().enumerate() {
        let entry =
            trials.iter().find(|entry| entry.setting == setting).with_context(|| format!("no {level}"))?;
        let counts = &entry.trial.http().context("it is of requests")?.counts;
        ensure!((counts.completed, counts.failed) == (1_000, 0), "{level}: {counts:?}");
        let quantity = |name: &str| {
            let value = entry.trial.quantities.get(name).copied();
            value.with_context(|| format!("{level} has no {name}: {:?}", entry.trial.quantities))
        };
        let (packets, bytes) =
            (quantity("balancer_packets_in_per_request")?, quantity("balancer_bytes_out_per_request")?);
        match *level {
            // ARP and the like.
            "direct" => ensure!(packets < 1.0 && bytes < 100.0, "{packets} {bytes}"),
            // SYN, request, acknowledgements, FIN.
            "l2dsr" => {
                ensure!((3.0..12.0).contains(&packets) && bytes < 1_500.0, "{packets} {bytes}");
                let flows = quantity("balancer_new_flows")?;
                ensure!((1_000.0..1_100.0).contains(&flows), "{flows}");
                ensure!(quantity("balancer_drops_no_server")? == 0.0);
            }
            _ => {
                ensure!(packets > 4.0 && bytes > 5_120.0, "{packets} {bytes}");
                ensure!(
                    quantity("balancer_most_connections")? >= 1.0 && quantity("balancer_retries")? == 0.0
                );
            }
        }
    }
    Ok(())
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
        .replace("loops = 20", "loops = 50\ntimeout = \"2s\"")
        .replace("[factors]", &format!("{actions}[factors]"));
    let trials = trials(&text, "--set balancer=haproxy --set trial.void_attempts=0")?;
    let entry = &trials[0];
    let errors: Vec<Option<&str>> = entry.actions.iter().map(|action| action.error.as_deref()).collect();
    ensure!(errors[0].is_none() && errors[2].is_none() && errors[3].is_none(), "{:?}", entry.actions);
    ensure!(errors[1].is_some_and(|why| why.contains("exit status: 7: 10.1.0.")), "{:?}", entry.actions);
    ensure!(errors[4].is_some_and(|why| why.contains("before its time")), "{:?}", entry.actions);
    ensure!(entry.actions[0].began_s.is_some_and(|s| (0.0..1.5).contains(&s)), "{:?}", entry.actions);
    let Validity::Void { reasons } = &entry.trial.validity else { anyhow::bail!("it is valid") };
    ensure!(reasons.iter().filter(|reason| reason.rule == VoidRule::Action).count() == 2, "{reasons:?}");
    Ok(())
}

#[test]
fn a_server_is_drained_during_a_trial_and_nobody_notices() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        println!("not run: only root may load BPF programs");
        return Ok(());
    }
    let _shared = beside_others();
    let actions = "[[actions]]\nat = \"200ms\"\ndo = \"drain web3\"\n\
                   [[actions]]\nat = \"300ms\"\ndo = \"set web2 --weight 3\"\n\
                   [[actions]]\nat = \"400ms\"\ndo = \"remove web3\"\n\
                   [[actions]]\nat = \"500ms\"\ndo = \"remove web3\"\n";
    let text = BALANCED
        .replace("loops = 20", "loops = 50\ntimeout = \"10s\"")
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
