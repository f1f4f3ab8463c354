//! Makes this host a server: VIPs on `lo`, and no answer for them in ARP.
//!
//! A server takes packets to the VIP, and must not be found by it: clients and routers ask who has the address, and the balancer alone may
//! answer. So the settings come before the addresses, and go after them. IPv6 needs none: Linux answers only for the addresses of the
//! interface that is asked.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use kernel::netlink::{Address, LOOPBACK, Link, Netlink};
use rustix::thread::{CapabilitySet, capabilities};
use settings::Network;
use undo::{Change, Entry, Folder, InterfaceAddress, Journal, Setting};

use crate::Error;

/// What [`undo::runs`] calls it.
const KIND: &str = "server";

/// What a server needs, in the order in which it is set: the name, the values that are good, and the value that is set otherwise. 3 would
/// answer for addresses like ours, and 8 for none at all, so that the balancer would not find this host.
const SETTINGS: [(&str, &[&str], &str); 2] =
    [("arp_ignore", &["1", "2"], "1"), ("arp_announce", &["2"], "2")];

/// A host that has been made a server. Dropping it undoes the changes, the addresses first.
#[derive(Debug)]
pub struct ServerSetup {
    journal: Journal,
    /// What was changed or found, one line each.
    lines: Vec<String>,
}

/// What was decided before anything is changed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Names of settings, with their values now and then.
    settings: Vec<(String, String, &'static str)>,
    addresses: Vec<IpAddr>,
    lines: Vec<String>,
}

impl ServerSetup {
    /// Makes the host of this thread's network namespace a server of the VIPs. Of the devices, those that are named are kept from
    /// answering even if somebody changes the setting for all.
    ///
    /// # Errors
    /// All reasons why it cannot be done, or not safely. Nothing is changed then.
    pub fn start(vips: &[IpAddr], devices: &[String], folder: &Folder) -> Result<Self, Vec<String>> {
        let one = |error: &dyn std::fmt::Display| vec![error.to_string()];
        let io_failed = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| vec![Error::new(what, &error).to_string()]
        };
        let mut netlink = Netlink::open().map_err(io_failed("look at the addresses of this host"))?;
        let links = netlink.links().map_err(io_failed("look at the devices of this host"))?;
        let present = netlink.addresses().map_err(io_failed("look at the addresses of this host"))?;
        let network = undo::Network::own().map_err(io_failed("tell the network namespace"))?;
        let title = format!("server in the network namespace {}", network.number());
        let mut wrong = Vec::new();
        if !capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::NET_ADMIN)) {
            wrong.push(
                "this user may not give addresses to lo and change settings of ARP: run this as root"
                    .to_owned(),
            );
        }
        let runs = undo::runs(folder).map_err(|error| one(&error))?;
        if let Some(other) = runs.iter().find(|run| run.kind == KIND && run.title == title) {
            wrong.push(format!(
                "process {} has made this host a server already: end it by SIGTERM, and name all VIPs in one command",
                other.owner.pid
            ));
        }
        let read = |name: &str| Setting::read(&kernel::sysctl_path(name));
        let plan = plan(vips, devices, &links, &present, &read);
        let plan = match plan {
            Ok(plan) if wrong.is_empty() => plan,
            plan => return Err([wrong, plan.err().unwrap_or_default()].concat()),
        };
        let (journal, former) = Journal::resume(folder, KIND, &title).map_err(|error| one(&error))?;
        let mut setup = Self { journal, lines: plan.lines.clone() };
        setup.apply(&plan, vips, &former, network, &mut netlink).map_err(|error| vec![error])?;
        Ok(setup)
    }

    /// What was changed, and what was so already, one line each.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Undoes the changes, the last one first.
    ///
    /// # Errors
    /// What could not be undone; it stays recorded.
    pub fn end(self) -> Result<(), Vec<String>> {
        self.journal.finish().map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    fn apply(
        &mut self,
        plan: &Plan,
        vips: &[IpAddr],
        former: &[(Entry, Change)],
        network: undo::Network,
        netlink: &mut Netlink,
    ) -> Result<(), String> {
        let unrecorded = |error: undo::Error| error.to_string();
        let has = |path: &Path| {
            former.iter().any(|(_, change)| matches!(change, Change::Setting(own) if own.path == path))
        };
        for (name, before, value) in &plan.settings {
            let path: PathBuf = kernel::sysctl_path(name);
            // A setting that was recorded before has its first value there.
            if !has(&path) {
                let after = Some((*value).to_owned());
                let setting = Setting { path: path.clone(), before: before.clone(), after, network };
                self.journal.record(Change::Setting(setting)).map_err(unrecorded)?;
            }
            let written = Setting::write(&path, value);
            written.map_err(|error| Error::new(format!("set {name} to {value}"), &error).to_string())?;
        }
        let mut known = Vec::new();
        for (entry, change) in former {
            match change {
                Change::Address(own) if !vips.contains(&own.address) => {
                    self.journal.undo(*entry).map_err(unrecorded)?;
                    self.lines
                        .push(format!("{} is taken from lo: an earlier command has given it", own.address));
                }
                Change::Address(own) => known.push(own.address),
                _ => {}
            }
        }
        for address in &plan.addresses {
            if !known.contains(address) {
                let given = InterfaceAddress {
                    interface: "lo".to_owned(),
                    index: LOOPBACK,
                    address: *address,
                    network,
                };
                self.journal.record(Change::Address(given)).map_err(unrecorded)?;
            }
            let given = netlink.add_address(LOOPBACK, *address, Network::max_prefix(*address));
            given.map_err(|error| Error::new(format!("give {address} to lo"), &error).to_string())?;
        }
        Ok(())
    }
}

/// Decides what to change.
fn plan(
    vips: &[IpAddr],
    devices: &[String],
    links: &[Link],
    present: &[Address],
    read: &dyn Fn(&str) -> io::Result<String>,
) -> Result<Plan, Vec<String>> {
    let (mut plan, mut wrong) = (Plan::default(), Vec::new());
    let name =
        |index: u32| links.iter().find(|link| link.index == index).map_or("?", |link| link.name.as_str());
    for device in devices {
        if !links.iter().any(|link| link.name == *device) {
            let there: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            wrong.push(format!("there is no device {device}; there are: {}", there.join(", ")));
        }
    }
    if vips.iter().any(IpAddr::is_ipv4) && wrong.is_empty() {
        for scope in std::iter::once("all").chain(devices.iter().map(String::as_str)) {
            for (setting, good, value) in SETTINGS {
                let setting = format!("net.ipv4.conf.{}.{setting}", scope.replace('.', "/"));
                match read(&setting) {
                    Ok(now) if good.contains(&now.as_str()) => {
                        plan.lines.push(format!("{setting} is {now} already"))
                    }
                    Ok(now) => {
                        plan.lines.push(format!("{setting} is set to {value}; it was {now}"));
                        plan.settings.push((setting, now, value));
                    }
                    Err(error) => wrong.push(format!("cannot read {setting}: {error}")),
                }
            }
        }
    }
    for (at, vip) in vips.iter().enumerate() {
        if vips[..at].contains(vip) {
            wrong.push(format!("{vip} is named twice"));
        } else if let Some(why) = no_vip(*vip) {
            wrong.push(format!("{vip} cannot be a VIP: {why}"));
        } else {
            let full = Network::max_prefix(*vip);
            match present.iter().find(|own| own.address == *vip) {
                None => {
                    plan.lines.push(format!("lo is given {vip}/{full}"));
                    plan.addresses.push(*vip);
                }
                Some(own) if own.index != LOOPBACK => {
                    let (prefix, device) = (own.prefix, name(own.index));
                    wrong.push(format!(
                        "{vip} is an address of {device}, so this host answers for it, as only the balancer may: if this is a server, \
                         take it away first: ip address del {vip}/{prefix} dev {device}"
                    ));
                }
                Some(own) if own.prefix != full => wrong.push(format!(
                    "lo has {vip}/{}, so this host takes the whole network for its own: ip address del {vip}/{} dev lo",
                    own.prefix, own.prefix
                )),
                Some(_) => plan.lines.push(format!("lo has {vip}/{full} already")),
            }
        }
    }
    if vips.is_empty() {
        wrong.push("no VIP is named: give the addresses that the balancer has".to_owned());
    }
    if wrong.is_empty() { Ok(plan) } else { Err(wrong) }
}

fn no_vip(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_loopback() => Some("it is an address of every host"),
        _ if address.is_multicast() => Some("it is an address of groups"),
        _ if address.is_unspecified() => Some("it is no address of a host"),
        IpAddr::V4(address) if address.is_broadcast() => Some("it is an address of all hosts"),
        IpAddr::V6(address) if address.is_unicast_link_local() => Some("it holds on one interface only"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            mac: None,
            mtu: 1_500,
            is_up: true,
            has_carrier: true,
            kind: None,
            receive_queues: 1,
            has_xdp: false,
        }
    }

    fn planned(vips: &[&str], devices: &[&str], ignore: &str, announce: &str) -> Result<Plan, Vec<String>> {
        let present =
            [(1, "127.0.0.1", 8), (1, "10.0.0.100", 32), (1, "10.0.0.101", 24), (2, "10.0.0.5", 24)];
        let present = present.map(|(index, address, prefix)| Address {
            index,
            address: address.parse().unwrap(),
            prefix,
        });
        let read = |name: &str| Ok(if name.ends_with("ignore") { ignore } else { announce }.to_owned());
        let vips: Vec<IpAddr> = vips.iter().map(|vip| vip.parse().unwrap()).collect();
        let devices: Vec<String> = devices.iter().map(|device| (*device).to_owned()).collect();
        plan(&vips, &devices, &[link(1, "lo"), link(2, "eth0.7")], &present, &read)
    }

    #[test]
    fn settings_come_with_addresses_of_ipv4() {
        let plan = planned(&["10.0.0.102", "10.0.0.100"], &["eth0.7"], "0", "2").unwrap();
        let names: Vec<&str> = plan.settings.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.eth0/7.arp_ignore"]);
        assert_eq!(plan.addresses, ["10.0.0.102".parse::<IpAddr>().unwrap()]);
        let expected = [
            "net.ipv4.conf.all.arp_ignore is set to 1; it was 0",
            "net.ipv4.conf.all.arp_announce is 2 already",
            "net.ipv4.conf.eth0/7.arp_ignore is set to 1; it was 0",
            "net.ipv4.conf.eth0/7.arp_announce is 2 already",
            "lo is given 10.0.0.102/32",
            "lo has 10.0.0.100/32 already",
        ];
        assert_eq!(plan.lines, expected);
        assert!(
            planned(&["10.0.0.102"], &[], "8", "2").unwrap().settings.len() == 1,
            "8 answers for nothing"
        );
        assert_eq!(planned(&["2001:db8::1"], &[], "0", "0").unwrap().settings, []);
    }

    #[test]
    fn what_is_unsafe_is_refused_at_once() {
        let wrong = planned(
            &["10.0.0.5", "10.0.0.101", "127.0.0.9", "224.0.0.1", "10.0.0.7", "10.0.0.7"],
            &["eth1"],
            "0",
            "0",
        );
        let wrong = wrong.unwrap_err();
        let parts = [
            "there is no device eth1; there are: lo, eth0.7",
            "10.0.0.5 is an address of eth0.7",
            "ip address del 10.0.0.101/24 dev lo",
            "127.0.0.9 cannot be a VIP",
            "224.0.0.1 cannot be a VIP",
            "10.0.0.7 is named twice",
        ];
        assert_eq!(wrong.len(), parts.len(), "{wrong:#?}");
        assert!(wrong.iter().zip(parts).all(|(wrong, part)| wrong.contains(part)), "{wrong:#?}");
        assert!(planned(&[], &[], "0", "0").is_err());
    }

    /// Set in the process that the test starts in a namespace of its own, and in the one that it kills.
    const INSIDE: &str = "PROOFLOAD_TEST_IS_INSIDE";
    const FOLDER: &str = "PROOFLOAD_TEST_FOLDER";
    const VIPS: [&str; 2] = ["10.0.0.100", "fd00::100"];

    #[test]
    fn a_host_is_as_it_was_after_the_end_and_after_a_kill() {
        match std::env::var(INSIDE).as_deref() {
            Ok("1") => return in_a_namespace_of_its_own(),
            Ok(_) => {
                let folder = Folder::at(std::env::var(FOLDER).unwrap()).unwrap();
                let _setup = start(&folder, &VIPS);
                std::fs::write(folder.path().join("ready"), "").unwrap();
                std::thread::park();
            }
            Err(_) => {}
        }
        if !rustix::process::geteuid().is_root() {
            println!("not run: only root may make network namespaces");
            return;
        }
        let done = again("1", &tempfile::tempdir().unwrap()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&[done.stdout, done.stderr].concat()));
    }

    /// This test in another process, in a namespace of its own if it is the first one.
    fn again(inside: &str, folder: &tempfile::TempDir) -> std::process::Command {
        let own = std::env::current_exe().unwrap();
        let name = "server_setup::tests::a_host_is_as_it_was_after_the_end_and_after_a_kill";
        let mut command = if inside == "1" {
            let mut command = std::process::Command::new("unshare");
            command.arg("--net").arg(own);
            command
        } else {
            std::process::Command::new(own)
        };
        command.args(["--exact", name]).env(INSIDE, inside).env(FOLDER, folder.path());
        command
    }

    fn start(folder: &Folder, vips: &[&str]) -> ServerSetup {
        let vips: Vec<IpAddr> = vips.iter().map(|vip| vip.parse().unwrap()).collect();
        ServerSetup::start(&vips, &["eth0".to_owned()], folder).unwrap()
    }

    /// The settings, and the addresses of lo.
    fn state() -> (String, Vec<String>) {
        let names = ["all.arp_ignore", "all.arp_announce", "eth0.arp_ignore", "eth0.arp_announce"];
        let settings =
            names.map(|name| Setting::read(&kernel::sysctl_path(&format!("net.ipv4.conf.{name}"))).unwrap());
        let mut netlink = Netlink::open().unwrap();
        let mut addresses: Vec<String> = netlink
            .addresses()
            .unwrap()
            .iter()
            .map(|own| format!("{}/{}", own.address, own.prefix))
            .collect();
        addresses.sort();
        (settings.concat(), addresses)
    }

    fn in_a_namespace_of_its_own() {
        let made = "ip link set lo up && ip link add eth0 type veth peer name eth1 && sysctl -qw net.ipv4.conf.eth0.arp_announce=1 \
                    net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0 net.ipv4.conf.eth0.arp_ignore=0";
        assert!(std::process::Command::new("sh").args(["-c", made]).status().unwrap().success());
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::at(temporary.path().join("state")).unwrap();
        let before = state();
        assert_eq!(before.0, "0001");
        let addresses = ["10.0.0.100/32", "127.0.0.1/8", "::1/128", "fd00::100/128"].map(str::to_owned);

        let setup = start(&folder, &VIPS);
        assert_eq!(state(), ("1212".to_owned(), addresses.to_vec()));
        let refused = ServerSetup::start(&["10.0.0.101".parse().unwrap()], &[], &folder).unwrap_err();
        assert!(refused.len() == 1 && refused[0].contains("a server already"), "{refused:?}");
        setup.end().unwrap();
        assert_eq!(state(), before);

        // Killed, it is a server until somebody cleans up; the next command goes on with what is there.
        for is_resumed in [true, false] {
            let kept = tempfile::tempdir_in(&temporary).unwrap();
            let journals = Folder::at(kept.path().join("state")).unwrap();
            let mut command = again("2", &kept);
            let mut child = command.env(FOLDER, journals.path()).spawn().unwrap();
            testing::until("the server is set up", || journals.path().join("ready").exists());
            std::fs::remove_file(journals.path().join("ready")).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(state(), ("1212".to_owned(), addresses.to_vec()));
            assert_eq!(undo::clean(&journals).unwrap().undone, Vec::<String>::new());
            if is_resumed {
                let setup = start(&journals, &VIPS[..1]);
                assert!(setup.lines().iter().any(|line| line.contains("fd00::100 is taken from lo")));
                assert_eq!(state().1, addresses[..3]);
                setup.end().unwrap();
            } else {
                let cleaned = undo::clean_all(&journals).unwrap();
                assert_eq!((cleaned.undone.len(), cleaned.failures.len()), (6, 0), "{cleaned:?}");
            }
            assert_eq!(state(), before);
        }
    }
}
