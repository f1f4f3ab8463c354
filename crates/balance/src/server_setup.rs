//! Makes this host a server: adds the VIPs to `lo` and sets arp_ignore and arp_announce, so that the host does not
//! answer ARP requests for them.
//!
//! A server accepts packets to the VIP but must not answer ARP requests for it: clients and routers send these to find
//! the host of the address, and only the balancer may answer. The settings are therefore made before the addresses are
//! added, and undone after the addresses are removed. IPv6 needs no settings: Linux answers only for addresses of the
//! interface that receives the request.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use kernel::netlink::{Address, LOOPBACK, Link, Netlink};
use rustix::thread::{CapabilitySet, capabilities};
use settings::Network;
use undo::{Change, Entry, Folder, InterfaceAddress, Journal, Setting};

use crate::{Error, addresses::is_silent, config::unusable};

/// Kind of a server's journals in [`undo::runs`].
const KIND: &str = "server";

/// The settings of a server, in the order in which they are made: name, accepted values, and the value that replaces
/// any other. With arp_ignore = 3, a host would answer for addresses such as VIPs; with 8, it would answer for no
/// address, so that the balancer would not find it.
const SETTINGS: [(&str, &[&str], &str); 2] =
    [("arp_ignore", &["1", "2"], "1"), ("arp_announce", &["2"], "2")];

/// A host that was made a server. Dropping it undoes the changes, the addresses first.
#[derive(Debug)]
pub struct ServerSetup {
    journal: Journal,
    /// One line for each change and for each fact that was already correct.
    lines: Vec<String>,
}

/// The planned changes, complete before the first one is made.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Name, current value and new value of each setting.
    settings: Vec<(String, String, &'static str)>,
    addresses: Vec<IpAddr>,
    lines: Vec<String>,
}

impl ServerSetup {
    /// Makes the host of this thread's network namespace a server of the VIPs. The named devices get their own
    /// settings, so that they do not answer ARP requests even if the setting for all devices changes later.
    ///
    /// # Errors
    /// All reasons why this is not possible or not safe. Nothing has changed then.
    pub fn start(vips: &[IpAddr], devices: &[String], folder: &Folder) -> Result<Self, Vec<String>> {
        let one = |error: &dyn std::fmt::Display| vec![error.to_string()];
        let io_failed = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| vec![Error::new(what, &error).to_string()]
        };
        let mut netlink = Netlink::open().map_err(io_failed("list the addresses of this host"))?;
        let links = netlink.links().map_err(io_failed("list the devices of this host"))?;
        let present = netlink.addresses().map_err(io_failed("list the addresses of this host"))?;
        let network = undo::Network::own().map_err(io_failed("determine the network namespace"))?;
        let title = format!("server in the network namespace {}", network.number());
        let mut wrong = Vec::new();
        if !capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN)) {
            wrong.push(
                "this user may not add addresses to lo or change ARP settings: run this as root".to_owned(),
            );
        }
        let runs = undo::runs(folder).map_err(|error| one(&error))?;
        if let Some(other) = runs.iter().find(|run| run.kind == KIND && run.title == title) {
            wrong.push(format!(
                "process {} runs server-setup on this host already: stop it (SIGTERM), and name all VIPs in one command",
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
        // If this command fails, the changes of an earlier command must stay.
        setup.journal.set_kept(!former.is_empty());
        setup.apply(&plan, vips, &former, network, &links, &mut netlink).map_err(|error| vec![error])?;
        setup.journal.set_kept(false);
        Ok(setup)
    }

    /// One line for each change and for each fact that was already correct.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Undoes the changes, starting with the last one.
    ///
    /// # Errors
    /// The changes that could not be undone. They stay in the journal.
    pub fn end(self) -> Result<(), Vec<String>> {
        self.journal.finish().map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    fn apply(
        &mut self,
        plan: &Plan,
        vips: &[IpAddr],
        former: &[(Entry, Change)],
        network: undo::Network,
        links: &[Link],
        netlink: &mut Netlink,
    ) -> Result<(), String> {
        let unrecorded = |error: undo::Error| error.to_string();
        let has = |path: &Path| {
            former
                .iter()
                .any(|(_, change)| matches!(change, Change::Setting(setting) if setting.path == path))
        };
        for (name, before, value) in &plan.settings {
            let path: PathBuf = kernel::sysctl_path(name);
            // If an earlier command has recorded this setting, the journal already contains its original value.
            if !has(&path) {
                let after = Some((*value).to_owned());
                let is_its = |link: &&Link| path.parent().is_some_and(|folder| folder.ends_with(&link.name));
                let interface = links.iter().find(is_its).map(|link| link.index);
                let setting =
                    Setting { path: path.clone(), before: before.clone(), after, interface, network };
                self.journal.record(Change::Setting(setting)).map_err(unrecorded)?;
            }
            let written = Setting::write(&path, value);
            written.map_err(|error| Error::new(format!("set {name} to {value}"), &error).to_string())?;
        }
        let mut known = Vec::new();
        for (entry, change) in former {
            match change {
                Change::Address(given) if !vips.contains(&given.address) => {
                    self.journal.undo(*entry).map_err(unrecorded)?;
                    self.lines
                        .push(format!("{} is removed from lo: an earlier command added it", given.address));
                }
                Change::Address(given) => known.push(given.address),
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

/// Plans the changes.
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
        // Linux applies the larger value of the device's and that for all devices, and treats some values as 0.
        let answers = |link: &&Link| {
            let ignore = read(&format!("net.ipv4.conf.{}.arp_ignore", link.name.replace('.', "/")));
            let number: Option<u32> = ignore.ok().and_then(|text| text.parse().ok());
            let is_named = link.index == LOOPBACK || devices.contains(&link.name);
            !is_named && number.is_some_and(|number| number > 1 && !is_silent(number))
        };
        let others = links.iter().filter(answers).map(|link| link.name.as_str());
        for scope in std::iter::once("all").chain(devices.iter().map(String::as_str)).chain(others) {
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
        } else if let Some(kind) = no_vip(*vip) {
            wrong.push(format!("{vip} cannot be a VIP: it is {kind}"));
        } else {
            let full = Network::max_prefix(*vip);
            match present.iter().find(|assigned| assigned.address == *vip) {
                None => {
                    plan.lines.push(format!("{vip}/{full} is added to lo"));
                    plan.addresses.push(*vip);
                }
                Some(assigned) if assigned.index != LOOPBACK => {
                    let (prefix, device) = (assigned.prefix, name(assigned.index));
                    wrong.push(format!(
                        "{device} has {vip}, so this host answers ARP or neighbour discovery for the VIP, which only the balancer may \
                         do; on a server, first run: ip address del {vip}/{prefix} dev {device}"
                    ));
                }
                Some(assigned) if assigned.prefix != full => wrong.push(format!(
                    "lo has {vip}/{}, so this host treats the whole network as local: ip address del {vip}/{} dev lo",
                    assigned.prefix, assigned.prefix
                )),
                Some(_) => plan.lines.push(format!("lo has {vip}/{full} already")),
            }
        }
    }
    if vips.is_empty() {
        wrong.push("no VIP is given: name the balancer's VIPs".to_owned());
    }
    if wrong.is_empty() { Ok(plan) } else { Err(wrong) }
}

/// The kind of this address if it cannot be a VIP.
fn no_vip(address: IpAddr) -> Option<String> {
    let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    unusable(address).or_else(|| is_link_local.then(|| "a link-local address".to_owned()))
}

#[cfg(test)]
mod tests;
