//! A port of an Ethernet segment, which can be switched off.

use std::{fs::File, io, os::fd::AsFd, sync::Arc};

use kernel::{namespaces::run_in_network, netlink::Netlink};

/// A host's port of a segment. It needs no reference to the lab, so that other code can use the lab meanwhile.
#[derive(Debug, Clone)]
pub struct SegmentPort {
    pub(crate) network: Arc<File>,
    pub(crate) index: u32,
}

impl SegmentPort {
    /// Switches the port on or off. A port that is off carries no packets; the host keeps its addresses and routes, as
    /// if its cable were unplugged.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn switch(&self, on: bool) -> io::Result<()> {
        run_in_network(self.network.as_fd(), || {
            let mut netlink = Netlink::open()?;
            if on { netlink.set_up(self.index) } else { netlink.set_down(self.index) }
        })
    }
}
