//! Where a result goes, and how its folder comes to be.

use std::{
    fs::DirBuilder,
    io::ErrorKind,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use files::Folder;

use super::{ENVIRONMENT, FolderError, PLAN, Result, ResultFolder, STUDY, TRIALS};

/// A path for a result folder, at which no other user can put a folder of his own in its place.
#[derive(Debug, Clone)]
pub struct Place(PathBuf);

impl Place {
    /// Judges the way to it, as far as it is there; what is missing is made by this user alone. Call this before entering a user
    /// namespace, in which other users cannot be told apart.
    ///
    /// # Errors
    /// When others could rename what is made there, or a folder above it.
    pub fn of(path: &Path) -> Result<Self> {
        files::keeps_names(path).map_err(|(folder, cause)| shared(&folder, &cause))?;
        // A link that the user named is followed once.
        let path = if path.is_symlink() { path.canonicalize() } else { Ok(path.to_owned()) };
        path.map(Self).map_err(|cause| shared(Path::new("the link"), &cause))
    }

    /// Makes the folder, or takes an empty one of this user.
    ///
    /// # Errors
    /// When it cannot be made, is another user's, or already holds anything.
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

    /// Makes a new folder of this name, or with a number at its end if the name is taken.
    ///
    /// # Errors
    /// When none can be made.
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

    /// Opens the folder of a run that is continued.
    ///
    /// # Errors
    /// When it holds no plan, or is another user's.
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
    /// A result within this one, and whether it has been begun. One whose run was killed before it had written its plan is new.
    ///
    /// # Errors
    /// When it cannot be made, or holds anything else.
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
        // Its writer has locked it.
        let other = names.into_iter().find(|name| name != TRIALS);
        other.map_or(Ok(()), |name| Err(FolderError::NotEmpty { path, name }))
    }
}
