//! Carries bytes without files, to measure the capacity of the path and of the programs.

use std::rc::Rc;

use sftp::{Attributes, OpenFlags, Request};

use crate::{
    carrier::Carrier,
    channel::Channel,
    error::{Error, Result},
    options::Direction,
    remote::to_read,
    reply::OwnedReply,
};

impl Carrier {
    /// Opens `/dev/null`, which accepts all data, or `/dev/zero`, which never ends.
    ///
    /// # Errors
    /// If the server has no such device, for example in a chroot.
    pub(crate) async fn open_endless(&self, channel: &Channel) -> Result<Vec<u8>> {
        let to_write =
            Request::Open { path: b"/dev/null", flags: OpenFlags::WRITE, attributes: Attributes::default() };
        let open = match self.options.direction {
            Direction::Up => to_write,
            Direction::Down => to_read(b"/dev/zero"),
        };
        match channel.ask(&open).await? {
            OwnedReply::Handle(handle) => Ok(handle),
            _ => Err(Error::unexpected("OPEN")),
        }
    }

    /// Carries zeros over a channel until the queue is closed or the channel is lost.
    pub(crate) async fn carry_endless(self: Rc<Self>, channel: Rc<Channel>) {
        let Ok(handle) = self.open_endless(&channel).await else { return };
        while !self.queue.is_closed() {
            let most = if self.options.direction == Direction::Up {
                channel.next_write_bytes(&self.governor)
            } else {
                channel.next_read_bytes(&self.governor)
            };
            let Some(room) =
                channel.unless_lost(async { Some(channel.room(most, &self.governor).await) }).await
            else {
                return;
            };
            // The contents of the answers do not matter; they only release permits for the next requests.
            let begun = match self.options.direction {
                Direction::Up => channel.begin_write(room, (&handle, 0, most), |_| Ok(())),
                Direction::Down => channel.begin_read(room, (&handle, 0, most), |_| Ok(())),
            };
            if begun.is_err() {
                return;
            }
        }
    }
}
