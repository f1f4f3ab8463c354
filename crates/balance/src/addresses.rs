//! The addresses of VIPs on this host, and what keeps others from seeing them where they must not.

use std::{collections::BTreeMap, io, net::IpAddr, path::PathBuf};

use kernel::netlink::{LOOPBACK, Netlink};
use undo::{Change, Entry, InterfaceAddress, Journal, Network, Setting};

use crate::{Device, Error};

/// The addresses that this balancer has given to an interface.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Each with the index of its interface.
    given: BTreeMap<IpAddr, (Entry, u32)>,
    settings: Vec<PathBuf>,
}

impl Addresses {
    /// Those that an earlier daemon has given.
    pub(crate) fn taken_over(changes: &[(Entry, Change)]) -> Self {
        let mut own = Self::default();
        for (entry, change) in changes {
            match change {
                Change::Address(given) => drop(own.given.insert(given.address, (*entry, given.index))),
                Change::Setting(setting) => own.settings.push(setting.path.clone()),
                _ => {}
            }
        }
        own
    }

    /// Gives the device, or `lo`, the addresses that are wanted and that no interface has, and takes back what is not wanted any more.
    /// Returns the addresses that were given.
    ///
    /// # Errors
    /// When the kernel refuses, or it cannot be recorded.
    pub(crate) fn set(
        &mut self,
        wanted: &[IpAddr],
        device: &Device,
        answers_arp: bool,
        journal: &Journal,
    ) -> Result<Vec<IpAddr>, Error> {
        let network = Network::own().map_err(|error| Error::new("tell the network namespace", &error))?;
        let (interface, index) =
            if answers_arp { (device.name.clone(), device.index) } else { ("lo".to_owned(), LOOPBACK) };
        let gone = |(address, (_, given_to)): &(&IpAddr, &(Entry, u32))| {
            !wanted.contains(address) || *given_to != index
        };
        let gone: Vec<(IpAddr, Entry)> =
            self.given.iter().filter(gone).map(|(address, (entry, _))| (*address, *entry)).collect();
        for (address, entry) in gone {
            journal.undo(entry)?;
            self.given.remove(&address);
        }
        let failed = |error: io::Error| Error::new("look at the addresses of this host", &error);
        let mut netlink = Netlink::open().map_err(failed)?;
        let present = netlink.addresses().map_err(failed)?;
        if !answers_arp && wanted.iter().any(IpAddr::is_ipv4) {
            self.keep_silent(device, network, journal)?;
        }
        let mut added = Vec::new();
        // What keepalived has put on the device may go at any time: `lo` needs it all the same.
        let has = |wanted: IpAddr| {
            present.iter().any(|own| own.address == wanted && (answers_arp || own.index == LOOPBACK))
        };
        for &address in wanted.iter().filter(|wanted| !has(**wanted)) {
            let given = InterfaceAddress { interface: interface.clone(), index, address, network };
            // One that was recorded and is gone all the same is given once more.
            let entry = match self.given.get(&address) {
                Some((entry, _)) => *entry,
                None => journal.record(Change::Address(given))?,
            };
            self.given.insert(address, (entry, index));
            let done = netlink.add_address(index, address, settings::Network::max_prefix(address));
            done.map_err(|error| Error::new(format!("give {address} to {interface}"), &error))?;
            added.push(address);
        }
        Ok(added)
    }

    /// The device answers no ARP for addresses that other interfaces have.
    fn keep_silent(&mut self, device: &Device, network: Network, journal: &Journal) -> Result<(), Error> {
        let path =
            kernel::sysctl_path(&format!("net.ipv4.conf.{}.arp_ignore", device.name.replace('.', "/")));
        let failed = |error: io::Error| Error::new(format!("set {} to 1", path.display()), &error);
        let before = Setting::read(&path).map_err(failed)?;
        // From 1 to 3 and from 8 on, it answers for no address of another interface.
        if before != "0" || self.settings.contains(&path) {
            return Ok(());
        }
        let setting = Setting { path: path.clone(), before, after: Some("1".to_owned()), network };
        journal.record(Change::Setting(setting))?;
        self.settings.push(path.clone());
        Setting::write(&path, "1").map_err(failed)
    }
}
