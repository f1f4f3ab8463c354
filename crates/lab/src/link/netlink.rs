//! The three requests that bring an interface up (rtnetlink(7)), on a socket of the calling thread's
//! network namespace.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const REQUEST_ACKNOWLEDGED: u16 = 0x1 | 0x4;
const CREATE_EXCLUSIVE: u16 = 0x400 | 0x200;
const IFF_UP: u32 = 1;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// No duplicate address detection: nobody else is on the link, and an address must work at once.
const IFA_F_NODAD: u32 = 2;

/// A connection to the kernel's routing part.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// Opens it in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open() -> io::Result<Self> {
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// The socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sets the largest packet and how many may wait in the device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_limits(&mut self, index: u32, mtu: u32, queue_packets: u32) -> io::Result<()> {
        let mut body = link_header(index, 0);
        attribute(&mut body, IFLA_MTU, &mtu.to_ne_bytes());
        attribute(&mut body, IFLA_TXQLEN, &queue_packets.to_ne_bytes());
        self.request(RTM_SETLINK, 0, &body)
    }

    /// Brings an interface up.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.request(RTM_SETLINK, 0, &link_header(index, IFF_UP))
    }

    /// Gives an interface an address.
    ///
    /// # Errors
    /// The kernel's; `EEXIST` if it has it.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let (family, bytes) = match address {
            IpAddr::V4(address) => (2_u8, address.octets().to_vec()),
            IpAddr::V6(address) => (10, address.octets().to_vec()),
        };
        let mut body = vec![family, prefix, 0, 0];
        body.extend(index.to_ne_bytes());
        attribute(&mut body, IFA_LOCAL, &bytes);
        attribute(&mut body, IFA_ADDRESS, &bytes);
        if family == 10 {
            attribute(&mut body, IFA_FLAGS, &IFA_F_NODAD.to_ne_bytes());
        }
        self.request(RTM_NEWADDR, CREATE_EXCLUSIVE, &body)
    }

    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend((16 + body.len() as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST_ACKNOWLEDGED | flags).to_ne_bytes());
        message.extend(1_u32.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(body);
        send(&self.socket, &message, SendFlags::empty())?;
        let mut answer = [0_u8; 4_096];
        let (bytes, _) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
        let answer = &answer[..bytes];
        let error = answer.get(16..20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
        match (answer.get(4..6), error) {
            (Some(kind), Some(0)) if kind == NLMSG_ERROR.to_ne_bytes() => Ok(()),
            (Some(kind), Some(code)) if kind == NLMSG_ERROR.to_ne_bytes() => {
                Err(io::Error::from_raw_os_error(-code))
            }
            _ => Err(io::Error::other("the kernel's answer is no acknowledgement")),
        }
    }
}

/// `struct ifinfomsg`.
fn link_header(index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
