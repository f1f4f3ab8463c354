//! Symbolic links to the newest segments.

use std::{
    collections::HashMap,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use crate::Key;

/// The links and the start of the time slice of their segments.
#[derive(Debug, Default)]
pub(crate) struct Links {
    newest: HashMap<Box<Path>, i64>,
}

const MAX_LINKS: usize = 10_000;

impl Links {
    /// Points the link of `key`, if any, to the segment at `path`, unless the link leads to a newer slice.
    pub(crate) fn update(&mut self, key: &Key, path: &Path) -> io::Result<()> {
        let Some(link) = &key.symlink else { return Ok(()) };
        if self.newest.get(link).is_some_and(|&newest| newest > key.start()) {
            return Ok(());
        }
        relink(link, path)?;
        if self.newest.len() >= MAX_LINKS {
            self.newest.clear();
        }
        self.newest.insert(link.clone(), key.start());
        Ok(())
    }
}

/// Points a symbolic link to a segment. Fails if the name is not a symbolic link.
fn relink(link: &Path, to: &Path) -> io::Result<()> {
    if link.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
        return Err(ErrorKind::AlreadyExists.into());
    }
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent)?;
    }
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    let hidden: PathBuf = link.with_file_name(format!(".{name}.proofload"));
    let _ = fs::remove_file(&hidden);
    std::os::unix::fs::symlink(to, &hidden)?;
    fs::rename(&hidden, link)
}
