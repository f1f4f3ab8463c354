//! Partial files: their names and their removal.

use std::rc::Rc;

use sftp::Request;

use crate::{
    channel::Channel, file::Prepared, hash, item::Item, journal::Identity, pending::Pending, place::Place,
};

/// A partial file.
#[derive(Debug)]
pub(crate) enum PartialFile {
    /// On the other machine, created by this channel.
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

    /// Removes the file, or asks the server to remove it. If the file's own channel is lost, uses the channel `other`.
    /// A server handles the requests of a channel in order, so a partial file whose creation is still pending is
    /// removed too.
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

/// The name of a partial file, derived from the secret of its run.
pub(crate) fn part_name(
    secret: &str,
    Identity { source, target, size_bytes, modified_ns, .. }: &Identity,
) -> String {
    let hash = hash::of(format!("{secret}\0{source}\0{target}\0{size_bytes}\0{modified_ns}").as_bytes());
    format!(".proofload-{}.part", &hash[..16])
}

/// The path of another name in the same folder of the other machine.
pub(crate) fn beside(path: &[u8], name: &str) -> Vec<u8> {
    let folder = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    [&path[..folder], name.as_bytes()].concat()
}

/// Permissions of a partial file: at most those of the file that it replaces, but always read and write for its owner.
pub(crate) fn at_first(item: &Item, replaced_permissions: Option<u32>) -> u32 {
    item.permissions & replaced_permissions.unwrap_or(0o777) | 0o600
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::item;

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
