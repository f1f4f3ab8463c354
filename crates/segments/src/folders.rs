//! Creates folders and makes file names durable.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Creates a folder and its parents, and syncs the folders in which names were created.
pub(crate) fn make_durably(folder: &Path) -> io::Result<()> {
    let mut made_in = Vec::new();
    make(folder, &mut made_in)?;
    if !folder.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    made_in.iter().try_for_each(|parent| sync(parent))
}

/// Creates a folder and its parents. Adds the folders in which names were created to `made_in`.
pub(crate) fn make(folder: &Path, made_in: &mut Vec<PathBuf>) -> io::Result<()> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let made = fs::create_dir(folder).or_else(|cause| match (cause.kind(), parent) {
        (ErrorKind::NotFound, Some(parent)) => {
            make(parent, made_in)?;
            fs::create_dir(folder)
        }
        _ => Err(cause),
    });
    match made {
        Ok(()) => {
            made_in.extend(parent.map(Path::to_owned));
            Ok(())
        }
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(()),
        // The folder exists, but the disk is full or read-only.
        Err(_) if folder.is_dir() => Ok(()),
        Err(cause) => Err(cause),
    }
}

/// Makes the creation, renaming and removal of names in a folder durable.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_with_a_new_name_is_returned() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut made_in = Vec::new();
        make(&root.join("a/b/c"), &mut made_in).unwrap();
        assert_eq!(made_in, [root.to_owned(), root.join("a"), root.join("a/b")]);
        made_in.clear();
        make(&root.join("a/b"), &mut made_in).unwrap();
        assert!(made_in.is_empty());
        fs::write(root.join("file"), "").unwrap();
        assert_eq!(make_durably(&root.join("file")).unwrap_err().kind(), ErrorKind::NotADirectory);
        make_durably(&root.join("x/y")).unwrap();
        assert!(root.join("x/y").is_dir());
    }
}
