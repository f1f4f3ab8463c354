//! Files that are not whole: the names that they have, what is remembered of them, and their end.

use std::{fs, io, path::Path, rc::Rc};

use sftp::Request;

use crate::{
    carrier::{Carrier, CarryOptions, Direction},
    channel::Channel,
    file::{CHUNK_BYTES, FileCopy},
    hash,
    journal::{Identity, Journal, Known},
    location::os,
};

impl Carrier {
    /// Who a file is.
    pub(crate) fn identity(&self, file: &FileCopy) -> Identity {
        let words = |path: &[u8]| path.escape_ascii().to_string();
        Identity {
            source: format!("{:?} {}", self.manner.direction, words(&file.item.source)),
            target: format!("{}:{}", self.manner.machine, words(&file.item.target)),
            size_bytes: file.item.size_bytes,
            modified_ns: file.item.modified_ns,
            chunk_bytes: CHUNK_BYTES,
        }
    }

    /// The journal of a file, with what it knows. Who cannot write one copies without it.
    pub(crate) fn journal(&self, identity: &Identity) -> (Option<Journal>, Known) {
        let Some(folder) = &self.manner.journals else { return Default::default() };
        match Journal::open(folder, &self.manner.token, identity) {
            Ok((journal, known)) => (Some(journal), known),
            Err(error) => {
                self.warn_of_journal(folder, &error);
                Default::default()
            }
        }
    }

    pub(crate) fn warn_of_journal(&self, folder: &Path, error: &io::Error) {
        self.warn(format!(
            "cannot write a journal in {}: {error}; after a break, files begin anew",
            folder.display()
        ));
    }

    pub(crate) fn warn(&self, words: String) {
        self.warnings.borrow_mut().insert(words);
    }

    /// A part is made with which no later run goes on.
    pub(crate) fn part(&self, channel: &Rc<Channel>, file: &FileCopy, temporary: &[u8]) {
        self.parts.borrow_mut().insert(file.number, (Rc::clone(channel), temporary.to_vec()));
    }

    /// Removes the parts with which no later run goes on, as far as their connections live. A server takes the requests of a channel
    /// one after the other, so that a part which it is still to make is removed as well.
    pub(crate) async fn remove_parts(&self) {
        let mut asked = Vec::new();
        let other = self.channels.borrow().first().cloned();
        for (channel, path) in self.parts.take().into_values() {
            let remove = |channel: &Rc<Channel>| channel.begin(&Request::Remove(&path)).ok();
            match self.manner.direction {
                Direction::Up => asked.extend(remove(&channel).or_else(|| remove(other.as_ref()?))),
                Direction::Down => drop(fs::remove_file(os(&path))),
            }
        }
        for removed in asked {
            let _ = removed.done().await;
        }
    }
}

/// The name that a target has until it is whole: the same for the same source and the same user, so that it is found again.
pub(crate) fn temporary_name(manner: &CarryOptions, identity: &Identity, target: &[u8]) -> Vec<u8> {
    let folder = target.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let Identity { source, target: of, size_bytes, modified_ns, .. } = identity;
    let hash = hash::of(format!("{}\0{source}\0{of}\0{size_bytes}\0{modified_ns}", manner.token).as_bytes());
    [&target[..folder], b".proofload-", &hash.as_bytes()[..16], b".part"].concat()
}
