//! The clsact qdisc of a device, which contains the device's filters.

use std::io;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcHandle, TcMessage},
};

use crate::address::{ask, request};

/// Removes the qdisc unless it contains filters, because the kernel would remove these too. Does nothing if the qdisc
/// or the device is gone.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn remove_if_unused(index: u32) -> io::Result<()> {
    if has_filters(index, TcHandle::MIN_INGRESS)? || has_filters(index, TcHandle::MIN_EGRESS)? {
        return Ok(());
    }
    let mut message = message(index);
    message.header.parent = TcHandle::CLSACT;
    match request(RouteNetlinkMessage::DelQueueDiscipline(message)) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV)) => {
            Ok(())
        }
        removed => removed,
    }
}

/// Whether the device has ingress filters.
///
/// # Errors
/// When the kernel refuses.
pub fn is_filtered(index: u32) -> io::Result<bool> {
    has_filters(index, TcHandle::MIN_INGRESS)
}

fn message(index: u32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = index.cast_signed();
    message
}

fn has_filters(index: u32, place: u16) -> io::Result<bool> {
    let mut message = message(index);
    message.header.parent = TcHandle { minor: place, ..TcHandle::CLSACT };
    let bytes = ask(RouteNetlinkMessage::GetTrafficFilter(message), NLM_F_DUMP)?;
    // The first message is a filter, or the end of an empty list.
    let kind = bytes.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    Ok(kind == Some(libc::RTM_NEWTFILTER))
}
