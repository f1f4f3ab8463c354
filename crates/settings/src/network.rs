//! IPv4 and IPv6 networks.

use std::{fmt, net::IpAddr, str::FromStr};

/// A network: an address without bits beyond the prefix, and the prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Network address.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub prefix: u8,
}

impl Network {
    /// Whether an address belongs to the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && (bits(self.address) ^ bits(address)) & !self.host_bits() == 0
    }

    /// Whether the networks have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// Whether a host can have this address. The first and the last address of a network are not for hosts.
    pub fn has_host(&self, address: IpAddr) -> bool {
        let host = bits(address) & self.host_bits();
        self.contains(address) && host != 0 && host != self.host_bits()
    }

    /// Largest prefix length of the address's version.
    pub fn max_prefix(address: IpAddr) -> u8 {
        if address.is_ipv4() { 32 } else { 128 }
    }

    fn host_bits(&self) -> u128 {
        let length = Self::max_prefix(self.address).saturating_sub(self.prefix);
        1_u128.checked_shl(length.into()).unwrap_or(0).wrapping_sub(1)
    }
}

/// The address `count` after another, or the last address if there are fewer.
pub fn address_after(address: IpAddr, count: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4(address.to_bits().saturating_add(count).into()),
        IpAddr::V6(address) => IpAddr::V6(address.to_bits().saturating_add(count.into()).into()),
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("'{text}' is not a network such as 10.1.0.0/16 or fd00::/64");
        let (address, prefix) = text.split_once('/').ok_or_else(refuse)?;
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let prefix: Option<u8> = prefix.parse().ok();
        let prefix = prefix.filter(|prefix| *prefix <= Self::max_prefix(address)).ok_or_else(refuse)?;
        let given = Self { address, prefix };
        let address = match address {
            IpAddr::V4(address) => IpAddr::V4((address.to_bits() & !given.host_bits() as u32).into()),
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !given.host_bits()).into()),
        };
        let network = Self { address, prefix };
        if network != given {
            return Err(format!("'{text}' has bits beyond its prefix; the network is {network}"));
        }
        Ok(network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_addresses_of_their_own_version() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let (four, six) = (network("10.1.0.0/16"), network("fd00:1::/64"));
        assert!(four.has_host(address("10.1.255.254")) && six.has_host(address("fd00:1::1")));
        for other in ["10.2.0.1", "10.1.0.0", "10.1.255.255", "::10.1.0.1"] {
            assert!(!four.has_host(address(other)), "{other}");
        }
        assert!(!six.contains(address("fd00:1:0:1::1")) && !six.contains(address("10.1.0.1")));
        assert!(
            network("0.0.0.0/0").contains(address("9.9.9.9")) && network("::/0").contains(address("fd00::"))
        );
        assert!(four.overlaps(&network("10.0.0.0/8")) && !four.overlaps(&network("10.2.0.0/16")));
        assert!(!network("::/0").overlaps(&network("0.0.0.0/0")));
        assert_eq!(address_after(address("10.1.0.255"), 1), address("10.1.1.0"));
        assert_eq!(address_after(address("fd00::ffff"), 2), address("fd00::1:1"));
        for bad in ["10.1.0.1/16", "10.0.0.0/33", "fd00::1/64", "fd00::/129", "fd00::", "x/1"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
