//! Watches the device and its addresses, which other programs may change while the balancer runs.

use std::{net::IpAddr, time::Instant};

use tracing::{info, warn};

use super::{Daemon, RETRY, start::start_checker};
use crate::{Device, Error, layout::mac_text, wire::announce};

impl Daemon {
    /// Checks the device and restores missing addresses, if a check is due. A problem is logged once.
    pub(super) fn look_if_due(&mut self) {
        if Instant::now() < self.next_look {
            return;
        }
        let done = self
            .look_at_device()
            .and_then(|()| self.give(self.assigned_addresses.clone()))
            .and_then(|()| self.announce());
        let trouble = done.err().map(|error| error.to_string());
        match (&trouble, &self.device_trouble) {
            (Some(now), before) if before.as_ref() != Some(now) => warn!("{now}; trying again each second"),
            (None, Some(_)) => info!("{} is set up correctly again", self.device.name),
            _ => {}
        }
        self.device_trouble = trouble;
        self.next_look = Instant::now() + RETRY;
    }

    /// Reacts to changes of the device since the last check.
    fn look_at_device(&mut self) -> Result<(), Error> {
        let now = Device::find(&self.device.name)?;
        let name = &now.name;
        let is_other = now.index != self.device.index;
        let failed = |error| Error::new(format!("list the programs of {name}"), &error);
        if !is_other && !self.program.is_attached(&now, &self.instance.pins()).map_err(failed)? {
            self.attach(&now).map_err(|error| {
                let what = "the balancer's program was removed and cannot be attached again";
                Error::Refused(format!("{what}, so no frame is balanced: {error}"))
            })?;
            warn!("another program removed the balancer's program from {name}; it is attached again");
        }
        if is_other {
            warn!("{name} is now a different device (recreated or renamed); attaching to it");
            self.load_best(&now)?;
            self.attach(&now)?;
            self.checker = start_checker(&now, &self.sender)?;
            self.targets.clear();
        }
        if now.mac != self.device.mac {
            warn!("{name} has a new MAC address: {}", mac_text(&now.mac));
        }
        if now.addresses != self.device.addresses && !is_other {
            self.checker.set_addresses(now.addresses.clone());
        }
        let before = std::mem::replace(&mut self.device, now);
        let is_ready = |device: &Device| device.link.is_up && device.link.has_carrier;
        let has_other_mac = before.mac != self.device.mac;
        if is_other || has_other_mac || is_ready(&self.device) && !is_ready(&before) {
            self.unannounced.extend(&self.assigned_addresses);
        }
        if is_other {
            // The new checker has no targets yet, so everything is brought up to date at once.
            self.retry_at = Some(Instant::now());
        }
        if has_other_mac { self.write_settings() } else { Ok(()) }
    }

    /// Gives the host exactly the wanted addresses and announces the new ones to neighbours.
    pub(super) fn give(&mut self, wanted: Vec<IpAddr>) -> Result<(), Error> {
        let added = self.addresses.set(&wanted, &self.device, self.config.answer_arp, &self.journal)?;
        for address in added.iter().filter(|address| self.assigned_addresses.contains(address)) {
            warn!("another program removed {address} from this host; the balancer added the address again");
        }
        self.assigned_addresses = wanted;
        self.unannounced.extend(added);
        // If the announcement fails, the next check reports the error.
        let _ = self.announce();
        Ok(())
    }

    fn announce(&mut self) -> Result<(), Error> {
        self.unannounced
            .retain(|address| self.config.answer_arp && self.assigned_addresses.contains(address));
        if !self.device.link.is_up && !self.unannounced.is_empty() {
            let name = &self.device.name;
            let cause = format!(
                "the device is down; set it up (ip link set {name} up), and the balancer announces them"
            );
            return Err(Error::Kernel { what: format!("announce the VIPs on {name}"), cause });
        }
        while let Some(address) = self.unannounced.first().copied() {
            announce(&self.device, address)?;
            self.unannounced.remove(&address);
        }
        Ok(())
    }
}
