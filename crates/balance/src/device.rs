//! The device that a balancer works on.

use std::{io, net::IpAddr};

use kernel::netlink::{Link, Netlink};

use crate::{Error, Mac};

/// An Ethernet device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its index in its network namespace.
    pub index: u32,
    /// Its MAC address.
    pub mac: Mac,
    /// Its IP addresses, each with the length of its prefix in bits.
    pub addresses: Vec<(IpAddr, u8)>,
    /// All data that the kernel reports about the device.
    pub(crate) link: Link,
}

impl Device {
    /// Finds a device in the network namespace of this thread.
    ///
    /// # Errors
    /// If no device has this name, or it is not an Ethernet device.
    pub fn find(name: &str) -> Result<Self, Error> {
        let what = || format!("use the device {name}");
        let failed = |error: io::Error| Error::new(what(), &error);
        let refused = |cause: String| Error::Kernel { what: what(), cause };
        let mut netlink = Netlink::open().map_err(failed)?;
        let links = netlink.links().map_err(failed)?;
        let names: Vec<&str> =
            links.iter().map(|link| link.name.as_str()).filter(|name| *name != "lo").collect();
        let list = if names.is_empty() { "none but lo".to_owned() } else { names.join(", ") };
        let link = links.iter().find(|link| link.name == name);
        let link = link.ok_or_else(|| refused(format!("there is no such device; there are: {list}")))?;
        let mac =
            link.mac.ok_or_else(|| refused("it has no MAC address; name an Ethernet device".to_owned()))?;
        let mut addresses = netlink.addresses().map_err(failed)?;
        addresses.retain(|address| address.index == link.index);
        let addresses = addresses.into_iter().map(|address| (address.address, address.prefix)).collect();
        Ok(Self { name: name.to_owned(), index: link.index, mac, addresses, link: link.clone() })
    }
}
