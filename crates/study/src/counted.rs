//! The kernel counters of a trial's hosts, and the verdict that follows from them.

use std::{io, net::IpAddr, sync::Arc};

use kernel::{
    namespaces::{self, Kind},
    netlink::Netlink,
    watch::{Watch, WatchedHost},
};
use load::GENERATOR_AWAY;
use record::{Counters, Trial, TrialCounters, Warning};
use verdict::{LinkUse, Observed, Role};

use crate::remotes::RemoteHosts;

/// The kernel counters, and the role of each host.
#[derive(Debug)]
pub(crate) struct Counted {
    pub counters: TrialCounters,
    pub roles: Vec<Role>,
}

/// Watches this machine and remote hosts while `work` runs a trial.
pub(crate) fn watch_this_machine<T>(
    remotes: &RemoteHosts,
    work: impl FnOnce() -> T,
) -> (T, io::Result<TrialCounters>) {
    let watch = this_machine().and_then(|host| Watch::start(vec![host], &remotes.0, false));
    let done = work();
    (done, watch.and_then(Watch::stop))
}

/// Records what bounded a judged trial. The generator's sound time stays only if the target cannot have influenced which time is sound.
/// Without counters, neither is known.
pub(crate) fn conclude(trial: &mut Trial, goals_met: bool, counted: Option<&Counted>, links: &[LinkUse]) {
    let verdict = counted.map(|Counted { counters, roles }| {
        let allowed = kernel::noise::allowed_cpus().unwrap_or_default().into_iter().collect();
        let observed = Observed { trial, goals_met, counters, roles, links };
        (verdict::judge(&observed), verdict::is_disturbed_by_others(&observed, &allowed))
    });
    let is_independent = verdict.as_ref().is_some_and(|(_, is_independent)| *is_independent);
    if let Some(http) = trial.http_mut()
        && !is_independent
    {
        http.sound = None;
    }
    trial.verdict = verdict.map(|(verdict, _)| verdict);
    let sound = trial.http().and_then(|http| Some((http.sound.as_ref()?, trial.elapsed_s)));
    let words = sound.and_then(|(sound, elapsed_s)| load::sound_time_in_words(sound, elapsed_s));
    let line = trial.warnings.iter_mut().find(|warning| warning.code == GENERATOR_AWAY);
    if let Some((line, words)) = line.zip(words) {
        line.message += &words;
    }
}

/// The warning that the kernel's counters cannot be read.
pub(crate) fn no_counters(error: &io::Error) -> Warning {
    let message = format!("the bottleneck is unknown, because the kernel's counters cannot be read: {error}");
    Warning::new("no_counters", message)
}

/// The warning that remote hosts did not answer, if any.
pub(crate) fn lost_hosts(counters: &TrialCounters) -> Option<Warning> {
    let lost = counters.hosts.iter().filter(|host| host.counters.values.is_empty());
    let lost = lost.filter_map(|host| Some(format!("{} ({})", host.host, host.counters.missing.get("ssh")?)));
    let lost: Vec<String> = lost.collect();
    (!lost.is_empty()).then(|| {
        let message =
            format!("this trial has no counters of {}; the next trial logs in again", lost.join(", "));
        Warning::new("no_counters", message)
    })
}

/// This machine, as a host to watch.
pub(crate) fn this_machine() -> io::Result<WatchedHost> {
    let network = Arc::new(namespaces::own(Kind::Network)?);
    Ok(WatchedHost { name: String::new(), network, group: None })
}

impl Counted {
    /// The counters of this machine, which come first, and of remote hosts, all of which are targets.
    pub(crate) fn without_lab(mut counters: TrialCounters, trial: &Trial) -> Self {
        let role = role_of_this_machine(trial);
        if role.is_none() && !counters.hosts.is_empty() {
            // What a controller counts says nothing about the trial.
            counters.hosts.remove(0);
            counters.machine = Counters::default();
        }
        let roles = role.into_iter().chain(std::iter::repeat(Role::Target)).take(counters.hosts.len());
        Self { roles: roles.collect(), counters }
    }
}

/// The role of this machine in a trial without a lab; none if other machines make the load and are the target.
fn role_of_this_machine(trial: &Trial) -> Option<Role> {
    let plan = trial.http().map(|http| &http.plan);
    if plan.is_some_and(|plan| plan.connection.unix_socket.is_some()) {
        return Some(Role::Both);
    }
    let targets = plan.map_or(&[][..], |plan| &plan.targets);
    let makes_load = trial.http().is_none_or(|http| http.machines.is_empty());
    match (makes_load, targets.iter().any(|target| is_here(target.ip()))) {
        (true, true) => Some(Role::Both),
        (false, true) => Some(Role::Target),
        (true, false) => Some(Role::Load),
        (false, false) => None,
    }
}

/// Whether an address belongs to this machine. A test by binding a socket would fail: with `ip_nonlocal_bind`, the kernel allows other
/// addresses, too.
fn is_here(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let addresses = || Netlink::open()?.addresses();
    address.is_loopback()
        || address.is_unspecified()
        || addresses().is_ok_and(|addresses| addresses.iter().any(|assigned| assigned.address == address))
}

#[cfg(test)]
mod tests {
    use record::{HttpTrial, MachineTrial, counters::HostCounters};
    use testing::plans;

    use super::*;

    #[test]
    fn a_target_elsewhere_is_not_looked_for_here() {
        let role = |target: &str| {
            let mut plan = plans::closed(1);
            plan.targets = vec![target.parse().unwrap()];
            role_of_this_machine(&plans::trial(HttpTrial { plan, ..HttpTrial::default() }))
        };
        assert_eq!(role("127.0.0.1:80"), Some(Role::Both));
        assert_eq!(role("192.0.2.1:80"), Some(Role::Load));
        assert_eq!([role("[::ffff:127.0.0.2]:80"), role("0.0.0.0:80")], [Some(Role::Both); 2]);
    }

    #[test]
    fn a_controller_without_a_part_in_the_trial_is_not_judged() {
        let host = |name: &str| HostCounters { host: name.to_owned(), ..HostCounters::default() };
        let counted = |target: &str| {
            let mut plan = plans::closed(1);
            plan.targets = vec![target.parse().unwrap()];
            let machines = vec![MachineTrial::default()];
            let trial = plans::trial(HttpTrial { plan, machines, ..HttpTrial::default() });
            let hosts = vec![host(""), host("web")];
            Counted::without_lab(TrialCounters { hosts, ..TrialCounters::default() }, &trial)
        };
        let elsewhere = counted("192.0.2.1:80");
        assert_eq!((elsewhere.counters.hosts, elsewhere.roles), (vec![host("web")], vec![Role::Target]));
        assert_eq!(counted("127.0.0.1:80").roles, [Role::Target; 2]);
    }

    #[test]
    fn only_addresses_of_this_machine_are_here_whatever_may_be_bound() {
        const CHILD: &str = "COUNTED_TEST_CHILD";
        let address = |text: &str| is_here(text.parse().unwrap());
        if std::env::var_os(CHILD).is_some() {
            std::fs::write(kernel::sysctl_path("net.ipv4.ip_nonlocal_bind"), "1").unwrap();
            let mut netlink = Netlink::open().unwrap();
            netlink.set_up(kernel::netlink::LOOPBACK).unwrap();
            netlink.add_address(kernel::netlink::LOOPBACK, "198.51.100.7".parse().unwrap(), 32).unwrap();
            assert!(std::net::UdpSocket::bind("192.0.2.1:0").is_ok());
            assert!(address("198.51.100.7") && address("127.0.0.1") && !address("192.0.2.1"));
            return;
        }
        let test = "counted::tests::only_addresses_of_this_machine_are_here_whatever_may_be_bound";
        let program = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new("unshare");
        let output =
            child.args(["-Urn"]).arg(program).args([test, "--exact"]).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
