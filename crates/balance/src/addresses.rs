//! The VIP addresses on this host, and the setting (arp_ignore) with which a device does not answer ARP requests for
//! them.

use std::{collections::BTreeMap, io, net::IpAddr};

use kernel::netlink::{LOOPBACK, Netlink};
use undo::{Change, Entry, InterfaceAddress, Journal, Network, Setting};

use crate::{Device, Error};

/// The addresses that this balancer has added to an interface.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Each address, with its journal entry and the index of its interface.
    given: BTreeMap<IpAddr, (Entry, u32)>,
    /// Indexes of the devices whose arp_ignore was changed so that they do not answer ARP requests for the VIPs.
    silent: Vec<u32>,
}

impl Addresses {
    /// The addresses and settings in the journal of an earlier daemon.
    pub(crate) fn taken_over(changes: &[(Entry, Change)]) -> Self {
        let mut addresses = Self::default();
        for (entry, change) in changes {
            match change {
                Change::Address(given) => drop(addresses.given.insert(given.address, (*entry, given.index))),
                Change::Setting(setting) => addresses.silent.extend(setting.interface),
                _ => {}
            }
        }
        addresses
    }

    /// Adds the wanted addresses that are missing to the device, or to `lo`. Removes addresses that this balancer added
    /// and that are no longer wanted. Returns the added addresses.
    ///
    /// # Errors
    /// When the kernel refuses, or the journal cannot record a change.
    pub(crate) fn set(
        &mut self,
        wanted: &[IpAddr],
        device: &Device,
        answers_arp: bool,
        journal: &Journal,
    ) -> Result<Vec<IpAddr>, Error> {
        let network =
            Network::own().map_err(|error| Error::new("determine the network namespace", &error))?;
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
        let failed = |error: io::Error| Error::new("list the addresses of this host", &error);
        let mut netlink = Netlink::open().map_err(failed)?;
        let present = netlink.addresses().map_err(failed)?;
        if !answers_arp && wanted.iter().any(IpAddr::is_ipv4) {
            self.keep_silent(device, network, journal)?;
        }
        let mut added = Vec::new();
        // `lo` needs the address even while the device has it, because keepalived may remove it from the device at any
        // time.
        let has = |wanted: IpAddr| {
            present
                .iter()
                .any(|assigned| assigned.address == wanted && (answers_arp || assigned.index == LOOPBACK))
        };
        let lacking: Vec<IpAddr> = wanted.iter().copied().filter(|wanted| !has(*wanted)).collect();
        // An address that is in the journal but not on the interface is added again without a new record.
        let new: Vec<IpAddr> =
            lacking.iter().copied().filter(|address| !self.given.contains_key(address)).collect();
        let change = |&address: &IpAddr| {
            Change::Address(InterfaceAddress { interface: interface.clone(), index, address, network })
        };
        let entries = journal.record_all(new.iter().map(change))?;
        self.given.extend(new.into_iter().zip(entries.into_iter().map(|entry| (entry, index))));
        for address in lacking {
            let done = netlink.add_address(index, address, settings::Network::max_prefix(address));
            done.map_err(|error| Error::new(format!("give {address} to {interface}"), &error))?;
            added.push(address);
        }
        Ok(added)
    }

    /// Makes the device ignore ARP requests for addresses of other interfaces.
    fn keep_silent(&mut self, device: &Device, network: Network, journal: &Journal) -> Result<(), Error> {
        let path = |device: &str| kernel::sysctl_path(&format!("net.ipv4.conf.{device}.arp_ignore"));
        let (device_path, all) = (path(&device.name.replace('.', "/")), path("all"));
        let failed = |error: io::Error| Error::new(format!("set {} to 1", device_path.display()), &error);
        let (before, of_all) =
            (Setting::read(&device_path).map_err(failed)?, Setting::read(&all).map_err(failed)?);
        // Linux applies the larger value of the device's and that for all devices.
        let number = |text: &str| text.parse().unwrap_or(0);
        if is_silent(number(&before).max(number(&of_all))) {
            return Ok(());
        }
        if !is_silent(number(&of_all).max(1)) {
            return Err(Error::Refused(format!(
                "{} is {of_all}, so every device answers ARP for the VIPs on lo: set it to 0, 1 or 2, or set answer_arp = true",
                all.display()
            )));
        }
        if !self.silent.contains(&device.index) {
            let (path, after, interface) = (device_path.clone(), Some("1".to_owned()), Some(device.index));
            journal.record(Change::Setting(Setting { path, before, after, interface, network }))?;
            self.silent.push(device.index);
        }
        Setting::write(&device_path, "1").map_err(failed)
    }
}

/// Whether a device with this arp_ignore ignores ARP requests for all addresses of `lo`. With 3, it answers for
/// addresses of global scope, such as VIPs; Linux treats all values not listed here as 0.
/// and Linux treats all other values as 0.
pub(crate) fn is_silent(arp_ignore: u32) -> bool {
    matches!(arp_ignore, 1 | 2 | 8)
}
