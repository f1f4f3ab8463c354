//! Checks the path of a result, and creates or opens its folder.

use std::{
    fs::DirBuilder,
    io::ErrorKind,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use files::Folder;

use super::{ENVIRONMENT, FolderError, PLAN, Result, ResultFolder, STUDY, TRIALS};

/// A path for a result folder. No other user can replace the folder at this path with his own.
#[derive(Debug, Clone)]
pub struct Place(PathBuf);

impl Place {
    /// Checks the existing part of the path; this user creates the missing part. Call this before entering a user
    /// namespace, in which the folders of other users cannot be told apart.
    ///
    /// # Errors
    /// When other users could rename the result folder or a folder above it.
    pub fn of(path: &Path) -> Result<Self> {
        files::keeps_names(path).map_err(|(folder, cause)| shared(&folder, &cause))?;
        // Resolves a symbolic link of the user only once, so that it cannot change later.
        let path = if path.is_symlink() { path.canonicalize() } else { Ok(path.to_owned()) };
        path.map(Self).map_err(|cause| shared(Path::new("the link"), &cause))
    }

    /// Creates the folder, or uses an existing empty one of this user.
    ///
    /// # Errors
    /// When the folder cannot be created, belongs to another user, or is not empty.
    pub fn make(&self) -> Result<ResultFolder> {
        match self.make_new(&self.0) {
            Err(FolderError::File { cause, .. }) if cause.kind() == ErrorKind::AlreadyExists => {
                let folder = self.taken()?;
                folder.check_empty()?;
                Ok(folder)
            }
            made => made,
        }
    }

    /// Creates a new folder of this name, with a number at its end if the name is taken.
    ///
    /// # Errors
    /// When no folder can be created.
    pub fn make_free(&self) -> Result<ResultFolder> {
        let numbered = (2..).map(|number| PathBuf::from(format!("{}-{number}", self.0.display())));
        for path in std::iter::once(self.0.clone()).chain(numbered) {
            match self.make_new(&path) {
                Err(FolderError::File { cause, .. }) if cause.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
        unreachable!("some number is free")
    }

    /// Opens the folder of a run that continues.
    ///
    /// # Errors
    /// When the folder holds no plan, or belongs to another user.
    pub fn resume(&self) -> Result<ResultFolder> {
        ResultFolder::held(&self.0)?;
        self.taken()
    }

    fn taken(&self) -> Result<ResultFolder> {
        Folder::take(&self.0).map(ResultFolder::of).map_err(|cause| shared(&self.0, &cause))
    }

    fn make_new(&self, path: &Path) -> Result<ResultFolder> {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let made = above.map_or(Ok(()), |above| DirBuilder::new().recursive(true).mode(0o755).create(above));
        made.and_then(|()| Folder::make_new(path)).map(ResultFolder::of).map_err(|cause| FolderError::File {
            what: "make",
            path: path.to_owned(),
            cause,
        })
    }
}

fn shared(path: &Path, cause: &std::io::Error) -> FolderError {
    FolderError::Shared { path: path.to_owned(), why: cause.to_string() }
}

impl ResultFolder {
    /// Opens or creates a result folder inside this one. Also returns whether its run had begun. A run that was killed
    /// before it wrote its plan counts as new.
    ///
    /// # Errors
    /// When the folder cannot be created, or holds other files.
    pub fn within(&self, name: &str) -> Result<(Self, bool)> {
        let place = Place(self.file(name));
        let folder = match place.make_new(&place.0) {
            Err(FolderError::File { cause, .. }) if cause.kind() == ErrorKind::AlreadyExists => {
                place.taken()?
            }
            made => made?,
        };
        if folder.held.has(PLAN) {
            return Ok((folder, true));
        }
        for name in [ENVIRONMENT, STUDY, PLAN] {
            let _ = folder.held.remove(name);
            let _ = folder.held.remove(format!("{name}.partial"));
        }
        folder.check_empty()?;
        Ok((folder, false))
    }

    pub(super) fn check_empty(&self) -> Result {
        let path = self.path().to_owned();
        let has_trials =
            self.open_file(TRIALS).is_ok_and(|file| file.metadata().is_ok_and(|file| file.len() > 0));
        if self.held.has(PLAN) || has_trials {
            return Err(FolderError::AlreadyHoldsResult { path });
        }
        let names = self.held.names().map_err(|cause| FolderError::File {
            what: "read",
            path: path.clone(),
            cause,
        })?;
        // The journal is empty and locked by this run.
        let other = names.into_iter().find(|name| name != TRIALS);
        other.map_or(Ok(()), |name| Err(FolderError::NotEmpty { path, name }))
    }
}
