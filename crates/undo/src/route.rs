//! Routes that were added to a network.

use std::{io, net::IpAddr};

use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteProtocol, RouteScope,
        RouteType,
    },
};
use serde::{Deserialize, Serialize};

use crate::{Network, address::request};

/// Marks our routes: the kernel removes a route by its protocol, too (rtnetlink(7)), so that another program's stays. The
/// number has no name in rt_protos.
const OWN_PROTOCOL: u8 = 80;

/// A route that was added to the main table, through one or more gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedRoute {
    /// Address of the destination network.
    pub to: IpAddr,
    /// Length of the network's prefix, in bits.
    pub prefix: u8,
    /// The gateways, at least one, of the destination's IP version.
    pub via: Vec<IpAddr>,
    /// The network namespace of the route.
    pub network: Network,
}

impl AddedRoute {
    /// Removes the route. Does nothing if the route or the network namespace is gone.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if !self.network.is_own_or_gone()? {
            return Ok(());
        }
        match request(RouteNetlinkMessage::DelRoute(route_message(self.to, self.prefix, &self.via))) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            removed => removed,
        }
    }
}

/// The kernel's message about a route of ours through these gateways, which have the same weight (ECMP).
pub fn route_message(to: IpAddr, prefix: u8, gateways: &[IpAddr]) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::from(to);
    message.header.destination_prefix_length = prefix;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Other(OWN_PROTOCOL);
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    let gateway = |via: &IpAddr| RouteAttribute::Gateway(RouteAddress::from(*via));
    message.attributes = match gateways {
        [only] => vec![gateway(only)],
        several => {
            let hop = |via| {
                let mut hop = RouteNextHop::default();
                hop.attributes = vec![gateway(via)];
                hop
            };
            vec![RouteAttribute::MultiPath(several.iter().map(hop).collect())]
        }
    };
    if prefix > 0 {
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(to)));
    }
    message
}
