//! Symbolic links to the newest segments.

use std::{
    collections::HashMap,
    io::{self, ErrorKind},
    path::Path,
};

use rustix::fs::symlinkat;

use crate::{
    Config, Key,
    folders::{self, Base, absolute},
};

/// The links and the start of the time slice of their segments.
#[derive(Debug)]
pub(crate) struct Links {
    /// The folder of the links, if there are any.
    base: Option<Base>,
    newest: HashMap<Box<Path>, i64>,
}

const MAX_LINKS: usize = 10_000;

impl Links {
    pub(crate) fn new(config: &Config) -> Self {
        Self { base: config.symlink.as_ref().map(Base::new), newest: HashMap::new() }
    }

    /// Points the link of `key`, if there is one, to the segment at `path`, unless the link already leads to a newer
    /// slice.
    pub(crate) fn update(&mut self, key: &Key, path: &Path) -> io::Result<()> {
        let (Some(link), Some(base)) = (&key.symlink, &self.base) else { return Ok(()) };
        if self.newest.get(link).is_some_and(|&newest| newest > key.start()) {
            return Ok(());
        }
        relink(base, link, path)?;
        if self.newest.len() >= MAX_LINKS {
            self.newest.clear();
        }
        self.newest.insert(link.clone(), key.start());
        Ok(())
    }
}

/// Points a symbolic link to a segment. Fails if another kind of file has the name of the link.
fn relink(base: &Base, link: &Path, to: &Path) -> io::Result<()> {
    let link = absolute(link);
    let (folder, name) = base.make_holder(&link, &mut Vec::new())?;
    if folder.has(name) && !folders::is_link(&folder, name)? {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let hidden = format!(".{}.proofload", name.to_string_lossy());
    let _ = folder.remove(&hidden);
    symlinkat(to, &folder, &hidden)?;
    folder.rename(&hidden, name)
}
