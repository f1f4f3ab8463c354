//! A file, folder or link to copy.

use sftp::Request;

use crate::location::shown;

/// Permissions that are copied. As in scp, the set-user-ID bit is not copied, because the program would run as the user
/// who copies it.
pub(crate) const MODE_BITS: u32 = 0o777;

/// A file, folder or link to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// The path of the source.
    pub(crate) source: Vec<u8>,
    /// The path of the target.
    pub(crate) target: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) size_bytes: u64,
    /// The bits of `st_mode` that are copied: [`permissions`].
    pub(crate) permissions: u32,
    pub(crate) accessed_s: i64,
    pub(crate) modified_s: i64,
    /// Length of the part of the target that the user named, in bytes. Links in this part are followed, but links below
    /// it are not.
    pub(crate) named_bytes: usize,
    /// Modification time in nanoseconds, as precise as the source's side reports it.
    pub(crate) modified_ns: i128,
}

impl Item {
    /// Whether the user named the item; otherwise it was found in a folder.
    pub(crate) fn is_named(&self) -> bool {
        self.named_bytes == self.target.len()
    }

    /// The message for a folder that could not be created.
    pub(crate) fn not_made(&self, why: &str) -> String {
        format!("{}: cannot make the folder: {why}", shown(&self.target))
    }

    /// Requests the attributes of the target. A link that the user did not name is not followed.
    pub(crate) fn look(&self) -> Request<'_> {
        if self.is_named() { Request::Stat(&self.target) } else { Request::Lstat(&self.target) }
    }

    /// Whether SFTP, which stores times as 32 bits of seconds, can represent both of its times.
    pub(crate) fn has_sftp_times(&self) -> bool {
        [self.accessed_s, self.modified_s].iter().all(|time| u32::try_from(*time).is_ok())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File,
    /// A symbolic link that is copied as a link, with the path that it points to.
    Link(Vec<u8>),
}

/// The bits of a mode that are copied. For folders, they include the sticky bit, which protects the files of users from
/// each other.
pub(crate) fn permissions(mode: u32, is_folder: bool) -> u32 {
    mode & if is_folder { 0o1777 } else { MODE_BITS }
}

#[cfg(test)]
pub(crate) fn item(source: &str, size_bytes: u64) -> Item {
    Item {
        source: source.as_bytes().to_vec(),
        target: b"/target".to_vec(),
        kind: Kind::File,
        size_bytes,
        permissions: 0o644,
        accessed_s: 0,
        modified_s: 0,
        named_bytes: b"/target".len(),
        modified_ns: 0,
    }
}
