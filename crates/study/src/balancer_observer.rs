//! The observer of a balancer: the traffic through its host, and the balancer's own statistics.

mod haproxy;
mod l2dsr;
mod lvs;

use std::{
    collections::BTreeMap,
    io,
    process::{Command, Stdio},
};

use lab::{Balancer, BalancerKind, HostHandle};
use record::{DeclaredQuantity, Kind, Trial, TrialCounters, Warning};

use crate::{
    machines::BalancerQuestion,
    observer::{Observation, Observer, TrialContext},
    stop_reason::StopReason,
    study::Setup,
    testbed::Testbed,
};

/// Values by the names of their quantities.
type Values = BTreeMap<String, f64>;

/// A counter of a host's interfaces: suffix of its name, suffix of the quantity's name, its description for users, and whether it is a main
/// figure.
const CARRIED: [(&str, &str, &str, bool); 4] = [
    ("received_packets", "packets_in_per_request", "packets in per request", true),
    ("sent_packets", "packets_out_per_request", "packets out per request", false),
    ("received_bytes", "bytes_in_per_request", "bytes in per request", true),
    ("sent_bytes", "bytes_out_per_request", "bytes out per request", true),
];
/// Suffixes of the names of an interface's drop counters.
const DROPS: [&str; 2] = ["receive_drops", "send_drops"];
const DROPPED: &str = "balancer_dropped_packets";
/// SYNs that the clients retransmitted.
const SYN_RETRIES: &str = "load_syn_retries";

/// Reads a balancer's own statistics around each trial.
#[derive(Debug, Default)]
pub(crate) struct BalancerObserver {
    before: Option<Result<Values, String>>,
}

impl Observer for BalancerObserver {
    fn before(&mut self, context: &mut TrialContext<'_>) -> Result<(), StopReason> {
        self.before = context.setup.balancer.as_ref().map(|balancer| {
            ask(context.testbed, balancer, BalancerQuestion::Clear)?;
            ask(context.testbed, balancer, BalancerQuestion::Values)
        });
        Ok(())
    }

    fn after(&mut self, context: &mut TrialContext<'_>, _: &Trial) -> Result<Observation, StopReason> {
        let Some((balancer, before)) = context.setup.balancer.as_ref().zip(self.before.take()) else {
            return Ok(Observation::default());
        };
        let since = |(name, now): (String, f64), before: &Values| {
            let before = before.get(&name).copied().unwrap_or_default();
            (name, (now - before).max(0.0))
        };
        Ok(
            match before
                .and_then(|before| Ok((before, ask(context.testbed, balancer, BalancerQuestion::Values)?)))
            {
                Ok((before, now)) => {
                    let quantities = now.into_iter().map(|value| since(value, &before)).collect();
                    Observation { quantities, ..Observation::default() }
                }
                Err(why) => {
                    let message = format!("the balancer's statistics could not be read: {why}");
                    let warning = Some(Warning::new("no_balancer_statistics", message));
                    Observation { warning, ..Observation::default() }
                }
            },
        )
    }
}

/// Waits until a balancer considers all its servers healthy.
///
/// # Errors
/// The reason if the servers do not become healthy in time.
pub(crate) fn wait_until_ready(testbed: &mut Testbed, balancer: &Balancer) -> Result<(), String> {
    ask(testbed, balancer, BalancerQuestion::WaitUntilReady).map(drop)
}

fn ask(testbed: &mut Testbed, balancer: &Balancer, question: BalancerQuestion) -> Result<Values, String> {
    if let Some(machines) = testbed.machines() {
        return machines.ask_balancer(balancer, question);
    }
    let host = testbed.lab().and_then(|lab| lab.hosts().nth(balancer.host));
    answer(host.ok_or("the balancer's host has ended")?, balancer, question)
}

/// The answer of a balancer's host; empty unless it was asked for values.
///
/// # Errors
/// The reason why there is none.
pub(crate) fn answer(
    host: HostHandle<'_>,
    balancer: &Balancer,
    question: BalancerQuestion,
) -> Result<Values, String> {
    let done = |done: Result<(), String>| done.map(|()| Values::new());
    match (balancer.kind, question) {
        (BalancerKind::L2dsr, BalancerQuestion::WaitUntilReady) => done(l2dsr::wait_until_up(host)),
        (BalancerKind::L2dsr, BalancerQuestion::Values) => l2dsr::values(host),
        // HAProxy considers servers healthy until a check fails, so only wait for its processes: several share a port, and one of them may
        // not have started yet.
        (BalancerKind::Haproxy, BalancerQuestion::WaitUntilReady) => {
            done(haproxy::wait_until_there(host, balancer))
        }
        // Its maxima cover the time since the last reset.
        (BalancerKind::Haproxy, BalancerQuestion::Clear) => done(haproxy::clear(host, balancer)),
        (BalancerKind::Haproxy, BalancerQuestion::Values) => haproxy::values(host, balancer),
        (BalancerKind::Lvs, BalancerQuestion::Values) => lvs::values(host),
        _ => Ok(Values::new()),
    }
}

/// A command line that runs a command of this program in a host.
pub(crate) fn own_command(host: &HostHandle<'_>, words: &[&str]) -> io::Result<Vec<String>> {
    let program = std::env::current_exe()?.display().to_string();
    let words = words.iter().map(|word| (*word).to_owned());
    in_host(host, &std::iter::once(program).chain(words).collect::<Vec<_>>())
}

/// A command line that enters a host and runs a command there.
pub(crate) fn in_host(host: &HostHandle<'_>, command: &[String]) -> io::Result<Vec<String>> {
    let program = std::env::current_exe()?.display().to_string();
    Ok([vec![program], host.arguments_to_run(command)].concat())
}

/// Runs a command and returns its standard output.
///
/// # Errors
/// The standard error of the command if its status is not 0.
fn output_of(command: &[String]) -> Result<String, String> {
    let ended = Command::new(&command[0]).args(&command[1..]).stdin(Stdio::null()).output();
    let ended = ended.map_err(|error| error.to_string())?;
    match ended.status.success() {
        true => String::from_utf8(ended.stdout).map_err(|error| error.to_string()),
        false => Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned()),
    }
}

/// The quantities that the balancer of a setup yields.
pub(crate) fn quantities(setup: &Setup) -> Vec<DeclaredQuantity> {
    let Some(balancer) = &setup.balancer else { return Vec::new() };
    let is_http = setup.workload.kind() == Kind::Http;
    let given = |name: String, words: &str, is_main: bool| DeclaredQuantity {
        name,
        words: format!("balancer, {words}"),
        more_is_better: false,
        is_main,
    };
    let carried = CARRIED.iter().filter(|_| is_http);
    let carried = carried.map(|(_, name, words, is_main)| given(format!("balancer_{name}"), words, *is_main));
    let dropped = given(DROPPED.to_owned(), "packets dropped at its interfaces", false);
    let retries = DeclaredQuantity {
        name: SYN_RETRIES.to_owned(),
        words: "SYNs that clients sent again".to_owned(),
        more_is_better: false,
        is_main: false,
    };
    let of_kind = match balancer.kind {
        BalancerKind::L2dsr => &l2dsr::QUANTITIES[..],
        BalancerKind::Haproxy => &haproxy::QUANTITIES[..],
        BalancerKind::Lvs => &lvs::QUANTITIES,
        BalancerKind::Direct => &[],
    };
    let of_kind = of_kind.iter().map(|(name, words)| given((*name).to_owned(), words, false));
    carried.chain([dropped, retries]).chain(of_kind).collect()
}

/// The kernel counters of the balancer's host and of the load's hosts.
pub(crate) fn carried(setup: &Setup, counters: &TrialCounters, requests: f64) -> Values {
    let Some((balancer, plan)) = setup.balancer.as_ref().zip(setup.lab.as_ref()) else {
        return Values::new();
    };
    let counters_of = |host: usize| {
        let name = &plan.hosts[host].name;
        counters.hosts.iter().find(|entry| entry.host == *name).map(|entry| &entry.counters.values)
    };
    let mut values = Values::new();
    if let Some(counts) = counters_of(balancer.host) {
        // Use only the interface's own counters. Names of the driver's counters have one more part.
        let sum = |end: &str| -> f64 {
            let interfaces =
                counts.iter().filter_map(|(name, value)| Some((name.strip_prefix("interface.")?, value)));
            let fitting = interfaces.filter(|(name, _)| {
                name.split_once('.').is_some_and(|(device, rest)| device != "lo" && rest == end)
            });
            fitting.map(|(_, value)| *value as f64).sum()
        };
        for (end, name, ..) in CARRIED.iter().filter(|_| requests > 0.0) {
            values.insert(format!("balancer_{name}"), sum(end) / requests);
        }
        values.insert(DROPPED.to_owned(), DROPS.iter().map(|end| sum(end)).sum());
    }
    let retries = setup.from.iter().filter_map(|host| counters_of(*host)?.get("TcpExt.TCPSynRetrans"));
    values.insert(SYN_RETRIES.to_owned(), retries.map(|count| *count as f64).sum());
    values
}
