//! Partial files: their names, their journals, and their removal.

use std::{collections::BTreeMap, fmt::Display, path::Path, rc::Rc};

use sftp::Request;

use crate::{
    carrier::Carrier,
    channel::Channel,
    error::Error,
    file::{CHUNK_BYTES, FileCopy, Item, Prepared},
    hash,
    journal::{Identity, Journal, Known},
    pending::Pending,
    place::Place,
};

/// A partial file.
#[derive(Debug)]
pub(crate) enum PartialFile {
    /// On the other machine, where a channel made it.
    There(Rc<Channel>, Vec<u8>),
    Here(Place),
}

impl PartialFile {
    pub(crate) fn of(prepared: &Prepared, channel: &Rc<Channel>) -> Self {
        match &prepared.here {
            Some([part, _]) => Self::Here(part.clone()),
            None => Self::There(Rc::clone(channel), prepared.temporary.clone()),
        }
    }

    /// Removes it, or asks the server to, over another channel if its own is lost. A server handles the requests of a channel in order, so
    /// a partial file whose creation is still pending is removed as well.
    pub(crate) fn begin_remove(self, other: Option<&Rc<Channel>>) -> Option<Pending> {
        match self {
            Self::Here(place) => {
                let _ = place.remove();
                None
            }
            Self::There(channel, path) => {
                let remove = |channel: &Rc<Channel>| channel.begin(&Request::Remove(&path)).ok();
                remove(&channel).or_else(|| remove(other?))
            }
        }
    }
}

impl Carrier {
    /// The identity of a file.
    pub(crate) fn identity(&self, file: &FileCopy) -> Identity {
        let words = |path: &[u8]| path.escape_ascii().to_string();
        Identity {
            source: format!("{:?} {}", self.options.direction, words(&file.item.source)),
            target: format!("{}:{}", self.options.machine, words(&file.item.target)),
            size_bytes: file.item.size_bytes,
            modified_ns: file.item.modified_ns,
            chunk_bytes: CHUNK_BYTES,
        }
    }

    /// The journal that an earlier run has left of a file.
    pub(crate) fn known(&self, identity: &Identity) -> Known {
        let Some(folder) = &self.options.journals else { return Known::default() };
        Journal::known(folder, &self.options.token, identity).unwrap_or_else(|error| {
            self.warn_of_journal(folder.path(), &error);
            Known::default()
        })
    }

    /// Begins the journal of a file whose partial file has this name and these chunks. If this fails, the copy continues without a journal.
    pub(crate) fn journal(
        &self,
        identity: &Identity,
        part: &str,
        chunks: &BTreeMap<u64, String>,
    ) -> Option<Journal> {
        let folder = self.options.journals.as_ref()?;
        let journal = Journal::begin(folder, &self.options.token, identity, part, chunks);
        journal.inspect_err(|error| self.warn_of_journal(folder.path(), error)).ok()
    }

    pub(crate) fn warn_of_journal(&self, folder: &Path, error: &impl Display) {
        self.warn(format!(
            "cannot write a journal in {}: {error}; after a break, files begin anew",
            folder.display()
        ));
    }

    pub(crate) fn warn(&self, words: String) {
        self.warnings.borrow_mut().insert(words);
    }

    /// Records a partial file that no later run can continue.
    pub(crate) fn part(&self, file: &FileCopy, part: PartialFile) {
        self.parts.borrow_mut().insert(file.number, part);
    }

    /// Removes the partial files that no later run can continue, if a connection is left for it. Returns whether all are gone.
    pub(crate) async fn remove_parts(&self) -> bool {
        let other = self.channels.borrow().first().cloned();
        let mut are_gone = true;
        let mut asked = Vec::new();
        for part in self.parts.take().into_values() {
            let is_there = matches!(part, PartialFile::There(..));
            let removed = part.begin_remove(other.as_ref());
            are_gone &= !is_there || removed.is_some();
            asked.extend(removed);
        }
        for removed in asked {
            are_gone &= !matches!(removed.done().await, Err(Error::Lost(_)));
        }
        are_gone
    }

    /// The name of a file's partial file. Other users cannot guess it, because it is derived from the random secret of the run.
    pub(crate) fn part_name(&self, file: &FileCopy) -> String {
        part_name(&self.options.secret, &self.identity(file))
    }

    /// The names that the partial files of a file had in runs that were killed.
    pub(crate) fn former_names(&self, file: &FileCopy) -> Vec<String> {
        let identity = self.identity(file);
        self.options.former_secrets.iter().map(|secret| part_name(secret, &identity)).collect()
    }
}

fn part_name(secret: &str, Identity { source, target, size_bytes, modified_ns, .. }: &Identity) -> String {
    let hash = hash::of(format!("{secret}\0{source}\0{target}\0{size_bytes}\0{modified_ns}").as_bytes());
    format!(".proofload-{}.part", &hash[..16])
}

/// A path with another name in the same folder of the other machine.
pub(crate) fn beside(path: &[u8], name: &str) -> Vec<u8> {
    let folder = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    [&path[..folder], name.as_bytes()].concat()
}

/// Permissions of a partial file: no more than those of the file that it replaces, but always those of its owner.
pub(crate) fn at_first(item: &Item, replaced_permissions: Option<u32>) -> u32 {
    item.permissions & replaced_permissions.unwrap_or(0o777) | 0o600
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::item;

    #[test]
    fn a_part_is_no_more_readable_than_what_it_replaces() {
        let of = |mode: u32, replaced: Option<u32>| {
            let item = Item { permissions: mode, ..item("source", 1) };
            at_first(&item, replaced)
        };
        assert_eq!([of(0o644, Some(0o600)), of(0o644, None), of(0o640, Some(0o666))], [0o600, 0o644, 0o640]);
        assert_eq!(of(0o4, None), 0o604);
    }

    #[test]
    fn a_name_of_a_part_tells_its_folder_alone() {
        assert_eq!(beside(b"a/b", "part"), b"a/part");
        assert_eq!([beside(b"/b", "part"), beside(b"b", "part")], [b"/part".to_vec(), b"part".to_vec()]);
    }
}
