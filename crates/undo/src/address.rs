//! Addresses of interfaces.

use std::{io, net::IpAddr};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use serde::{Deserialize, Serialize};

use crate::Network;

/// An address that was added to an interface, with the longest prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceAddress {
    /// Name of the interface.
    pub interface: String,
    /// Index of the interface.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// The network namespace of the interface.
    pub network: Network,
}

impl InterfaceAddress {
    /// Removes the address from the interface. Does nothing if the address, the interface or the network namespace is gone.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if !self.network.is_own_or_gone()? {
            return Ok(());
        }
        match request(RouteNetlinkMessage::DelAddress(self.message())) {
            Err(error) if is_gone(&error) => Ok(()),
            removed => removed,
        }
    }

    fn message(&self) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.index = self.index;
        message.header.family = AddressFamily::from(self.address);
        message.header.prefix_len = if self.address.is_ipv4() { 32 } else { 128 };
        message.attributes =
            vec![AddressAttribute::Local(self.address), AddressAttribute::Address(self.address)];
        message
    }
}

/// Whether the error means that the interface does not have the address or is gone.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV))
}

/// Sends one request and returns the kernel's first answer.
pub(crate) fn ask(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<u8>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    Ok(socket.recv_from_full()?.0)
}

/// Sends one request and waits for its acknowledgement.
pub(crate) fn request(message: RouteNetlinkMessage) -> io::Result<()> {
    let bytes = ask(message, NLM_F_ACK)?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes)
        .map_err(|error| io::Error::other(format!("cannot read the kernel's answer: {error}")))?;
    match answer.payload {
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        _ => Ok(()),
    }
}
