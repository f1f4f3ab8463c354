//! Identifies a file by its inode number and birth time.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

/// Identifies a file of a filesystem. An inode number is soon reused, so the birth time distinguishes the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inode {
    #[serde(rename = "inode")]
    pub number: u64,
    /// In nanoseconds since 1970; `None` if the filesystem does not record it, and in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born_ns: Option<u64>,
}

impl Inode {
    /// The inode of a file.
    pub(crate) fn of(about: &Metadata) -> Self {
        let born = about.created().ok().and_then(|born: SystemTime| born.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.and_then(|born| u64::try_from(born.as_nanos()).ok());
        Self { number: about.ino(), born_ns }
    }

    /// Whether `about` describes this file. Without a birth time, the file must belong to this user and have only one
    /// name, as files of this program do.
    pub(crate) fn is(self, about: &Metadata) -> bool {
        let found = Self::of(about);
        let is_born_with = match (self.born_ns, found.born_ns) {
            (Some(then), Some(now)) => then == now,
            _ => about.uid() == geteuid().as_raw() && about.nlink() == 1,
        };
        about.is_file() && self.number == found.number && is_born_with
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn another_file_with_the_same_number_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "x").unwrap();
        let about = fs::metadata(&path).unwrap();
        let inode = Inode::of(&about);
        assert!(inode.is(&about) && inode.born_ns.is_some());
        assert!(!Inode { born_ns: Some(1), ..inode }.is(&about) && !Inode { number: 0, ..inode }.is(&about));
        // Journals of earlier versions have no birth time.
        let of_old: Inode = serde_json::from_str(&format!("{{\"inode\":{}}}", inode.number)).unwrap();
        assert!(of_old.is(&about) && of_old.born_ns.is_none());
        fs::hard_link(&path, folder.path().join("second")).unwrap();
        let about = fs::metadata(&path).unwrap();
        assert!(inode.is(&about), "a second name that somebody gave to ours");
        assert!(!of_old.is(&about));
    }

    #[test]
    fn as_root_a_file_of_another_user_is_not_ours_where_no_birth_is_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::chown(file.path(), Some(61_234), None).unwrap();
        let about = fs::metadata(file.path()).unwrap();
        assert!(Inode::of(&about).is(&about));
        assert!(!Inode { number: about.ino(), born_ns: None }.is(&about));
    }
}
