//! Handles of files that are open on a server.

use std::{cell::Cell, mem::take, ops::Deref, rc::Rc};

use sftp::Request;
use tokio::sync::mpsc::UnboundedSender;

/// A handle of an open file or folder. It is closed only when its last user drops it: a server soon gives the same
/// handle to another file, and late data would be written into that file.
#[derive(Debug)]
pub(crate) struct Handle {
    bytes: Vec<u8>,
    outgoing: UnboundedSender<Vec<u8>>,
    next_id: Rc<Cell<u32>>,
}

impl Handle {
    pub(crate) fn new(bytes: Vec<u8>, outgoing: UnboundedSender<Vec<u8>>, next_id: Rc<Cell<u32>>) -> Self {
        Self { bytes, outgoing, next_id }
    }

    /// The bytes of the handle, for a caller that closes it and needs the answer, which tells whether all data was
    /// written.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        take(&mut self.bytes)
    }
}

impl Deref for Handle {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            let id = self.next_id.replace(self.next_id.get().wrapping_add(1));
            let mut packet = Vec::new();
            Request::Close(&self.bytes).write(id, &mut packet);
            // No caller waits for the answer.
            let _ = self.outgoing.send(packet);
        }
    }
}
