//! Finds and opens the file of a segment.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use files::Folder;
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};

use crate::{
    Compression, Config,
    folders::Base,
    inode::Inode,
    listing::{Index, Listing, next_index},
};

/// The file that a key's lines go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// The key is new: the configuration decides.
    Find,
    /// The file with this index, which has not ended.
    Continue(Index),
    /// A new file, with this index or a later one.
    Fresh(Index),
}

/// Paths and names of segments.
#[derive(Debug)]
pub(crate) struct Locator {
    base: Base,
    suffix: String,
    append: bool,
    rotate_bytes: Option<u64>,
    listing: Listing,
}

/// A file that was opened for a segment.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub file: fs::File,
    pub path: PathBuf,
    /// Path relative to the folder of the template.
    pub name: String,
    pub index: Index,
    pub inode: Inode,
    pub length: u64,
    /// Whether the last byte is not a newline, because another process wrote a torn line.
    pub torn: bool,
    /// Folders in which names were created, or may have been created recently.
    pub folders: Vec<PathBuf>,
    /// Whether the filesystem counts links.
    pub linked: bool,
}

/// The files that a new segment must not use.
pub(crate) trait FilesInUse {
    /// Whether the file with this path is in use.
    fn contains_path(&self, path: &Path) -> bool;
    /// Whether the file with this inode is in use. A hard link to a segment is that segment.
    fn contains_inode(&self, inode: u64) -> bool;
}

impl Locator {
    pub(crate) fn new(config: &Config, base: Base) -> Self {
        Self {
            base,
            suffix: config.suffix.clone(),
            append: config.append,
            rotate_bytes: config.rotate_bytes,
            listing: Listing::new(&config.suffix),
        }
    }

    /// Opens a file for `key`, and creates it if necessary. Skips names that are used for something else.
    ///
    /// # Errors
    /// The kernel's errors.
    pub(crate) fn open(
        &mut self,
        key: &str,
        start: Start,
        in_use: &dyn FilesInUse,
    ) -> io::Result<OpenedFile> {
        let mut made_in = Vec::new();
        let (folder, _) = self.base.make_holder(&self.path(key, None), &mut made_in)?;
        let (mut index, mut fresh) = match start {
            Start::Continue(index) => (index, false),
            Start::Fresh(index) => (index, true),
            Start::Find => self.find(&folder, key, in_use),
        };
        loop {
            let path = self.path(key, index);
            if !in_use.contains_path(&path)
                && !is_packed(&path)
                && !packed_exists(&folder, file_name(&path))
                && let Some(mut found) = try_open(&folder, self.name(key, index), path, index, fresh)?
            {
                found.folders.splice(0..0, made_in.iter().cloned());
                let full = self.rotate_bytes.is_some_and(|max_bytes| found.length >= max_bytes);
                if !full && !in_use.contains_inode(found.inode.number) {
                    return Ok(found);
                }
            }
            fresh |= self.rotate_bytes.is_some() || !self.append;
            index = next_index(index);
        }
    }

    /// Path of a segment, relative to the folder.
    pub(crate) fn name(&self, key: &str, index: Index) -> String {
        match index {
            None => format!("{key}{}", self.suffix),
            Some(number) => format!("{key}_{number}{}", self.suffix),
        }
    }

    fn path(&self, key: &str, index: Index) -> PathBuf {
        self.base.path.join(self.name(key, index))
    }

    /// The index at which a new key starts, and whether the file must be new.
    fn find(&mut self, folder: &Folder, key: &str, in_use: &dyn FilesInUse) -> (Index, bool) {
        if !self.append {
            return (Some(0), true);
        }
        if self.rotate_bytes.is_none() {
            return (None, false);
        }
        // Continues with the newest existing file, so that lines do not fill gaps between older files. The listing may
        // be slightly out of date, so newer files are checked as well.
        let mut newest = self.listing.newest(folder, file_name(Path::new(key)));
        let exists = |index| {
            let path = self.path(key, index);
            let name = file_name(&path);
            in_use.contains_path(&path) || folder.has(name) || packed_exists(folder, name)
        };
        while exists(next_index(newest)) {
            newest = next_index(newest);
        }
        (newest, false)
    }
}

/// Opens a file. `None` if the name is used for something else.
fn try_open(
    folder: &Folder,
    name: String,
    path: PathBuf,
    index: Index,
    fresh: bool,
) -> io::Result<Option<OpenedFile>> {
    // Does not follow a symbolic link, which could lead to another segment. Does not wait for a pipe, which would
    // block.
    let mut flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
    flags |= OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    flags.set(OFlags::EXCL, fresh);
    let file = match openat(folder, file_name(&path), flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => fs::File::from(file),
        Err(Errno::EXIST | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Ok(None),
        Err(cause) => return Err(cause.into()),
    };
    let metadata = file.metadata()?;
    // Never writes to a file that this process reads, such as a file of tokens, whatever tags clients send.
    if !metadata.is_file() || files::is_read(&path) {
        return Ok(None);
    }
    let length = metadata.len();
    let mut last = *b"\n";
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    // Syncs the folder for an existing file too, because its creator may not have synced the name.
    let folders = path.parent().map(Path::to_owned).into_iter().collect();
    let (inode, linked, torn) = (Inode::of(&metadata), metadata.nlink() > 0, last != *b"\n");
    Ok(Some(OpenedFile { file, path, name, index, inode, length, torn, folders, linked }))
}

fn file_name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// Whether a path has the suffix of a packed file. No segment may have such a path, whatever the client's tag, because
/// readers of packed files could not read its plain lines.
fn is_packed(path: &Path) -> bool {
    Compression::ends(path.as_os_str().as_encoded_bytes())
}

/// Whether the segment with this name has been packed.
fn packed_exists(folder: &Folder, name: &OsStr) -> bool {
    Compression::ALL_SUFFIXES.iter().any(|suffix| folder.has(packed_name(name, suffix)))
}

/// Name, or path, of the segment once it is packed.
pub(crate) fn packed_name(plain: &OsStr, suffix: &str) -> OsString {
    let mut name = plain.to_owned();
    name.push(suffix);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoFilesInUse;

    impl FilesInUse for NoFilesInUse {
        fn contains_path(&self, _: &Path) -> bool {
            false
        }
        fn contains_inode(&self, _: u64) -> bool {
            false
        }
    }

    fn locator(folder: &Path, append: bool, rotate_bytes: Option<u64>) -> Locator {
        let template = folder.join("${tag}").to_str().unwrap().parse().unwrap();
        Locator {
            base: Base::new(&template),
            suffix: ".log".into(),
            append,
            rotate_bytes,
            listing: Listing::new(".log"),
        }
    }

    #[test]
    fn every_start_has_files_of_its_own_unless_it_appends() {
        let folder = tempfile::tempdir().unwrap();
        let mut fresh = locator(folder.path(), false, None);
        assert_eq!(fresh.open("a/x", Start::Find, &NoFilesInUse).unwrap().name, "a/x_0.log");
        assert_eq!(fresh.open("a/x", Start::Find, &NoFilesInUse).unwrap().name, "a/x_1.log");
        fs::write(folder.path().join("a/x_2.log.gz"), "").unwrap();
        assert_eq!(fresh.open("a/x", Start::Find, &NoFilesInUse).unwrap().name, "a/x_3.log");
        let mut append = locator(folder.path(), true, None);
        assert_eq!(append.open("a/x", Start::Find, &NoFilesInUse).unwrap().name, "a/x.log");
        assert_eq!(append.open("a/x", Start::Find, &NoFilesInUse).unwrap().name, "a/x.log");
    }

    #[test]
    fn the_newest_of_rotated_files_is_continued() {
        let folder = tempfile::tempdir().unwrap();
        let mut append = locator(folder.path(), true, Some(10));
        for (name, text) in [("x.log", "12345678\n"), ("x_1.log", "1234567890\n"), ("x_2.log", "1\n")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(append.open("x", Start::Find, &NoFilesInUse).unwrap().name, "x_2.log");
        fs::write(folder.path().join("x_2.log"), "1234567890\n").unwrap();
        assert_eq!(append.open("x", Start::Find, &NoFilesInUse).unwrap().name, "x_3.log");
    }

    #[test]
    fn gaps_between_indices_are_no_end() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x.log", "x_7.log.gz", "x_8.log", "x_11.txt", "x_.log", "x_012.log", "xx_20.log"] {
            fs::write(folder.path().join(name), "1\n").unwrap();
        }
        let mut append = locator(folder.path(), true, Some(10));
        assert_eq!(append.open("x", Start::Find, &NoFilesInUse).unwrap().name, "x_8.log");
        fs::rename(folder.path().join("x_8.log"), folder.path().join("x_9.log.zst")).unwrap();
        let mut append = locator(folder.path(), true, Some(10));
        assert_eq!(append.open("x", Start::Find, &NoFilesInUse).unwrap().name, "x_10.log");
        assert_eq!(append.open("new/x", Start::Find, &NoFilesInUse).unwrap().name, "new/x.log");
        assert_eq!(append.open("xx", Start::Find, &NoFilesInUse).unwrap().name, "xx_20.log");
    }

    #[test]
    fn opening_a_file_makes_its_name_durable() {
        let folder = tempfile::tempdir().unwrap();
        let mut append = locator(folder.path(), true, None);
        let inner = folder.path().join("a");
        let made = append.open("a/x", Start::Find, &NoFilesInUse).unwrap();
        assert_eq!(made.folders, [folder.path().to_owned(), inner.clone()]);
        fs::write(inner.join("x.log"), "line\n").unwrap();
        assert_eq!(append.open("a/x", Start::Find, &NoFilesInUse).unwrap().folders, [inner]);
    }

    #[test]
    fn no_segment_is_named_like_a_packed_file() {
        let folder = tempfile::tempdir().unwrap();
        for (append, rotate_bytes) in [(true, None), (true, Some(10)), (false, None)] {
            let mut locator =
                Locator { suffix: String::new(), ..locator(folder.path(), append, rotate_bytes) };
            for name in ["a.zst", "b/.gz"] {
                for start in [Start::Find, Start::Continue(None), Start::Fresh(None)] {
                    let found = locator.open(name, start, &NoFilesInUse).unwrap().name;
                    assert!(found.starts_with(&format!("{name}_")), "{found}");
                }
            }
        }
    }

    #[test]
    fn links_and_folders_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let mut append = locator(folder.path(), true, None);
        std::os::unix::fs::symlink("elsewhere", folder.path().join("x.log")).unwrap();
        fs::create_dir(folder.path().join("x_1.log")).unwrap();
        assert_eq!(append.open("x", Start::Find, &NoFilesInUse).unwrap().name, "x_2.log");
        assert!(!folder.path().join("elsewhere").exists());
    }

    #[test]
    fn a_folder_that_is_a_link_is_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        let secret = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(secret.path(), folder.path().join("web")).unwrap();
        let mut append = locator(folder.path(), true, None);
        for key in ["web/x", "web/deep/x"] {
            let refused = append.open(key, Start::Find, &NoFilesInUse).unwrap_err();
            assert_eq!(Errno::from_io_error(&refused), Some(Errno::LOOP));
        }
        assert_eq!(fs::read_dir(secret.path()).unwrap().count(), 0);
        // Other files are accepted, and a link in the path that the user named is followed.
        assert_eq!(append.open("shop/x", Start::Find, &NoFilesInUse).unwrap().name, "shop/x.log");
        let mut named = locator(&folder.path().join("web"), true, None);
        assert_eq!(named.open("a/x", Start::Find, &NoFilesInUse).unwrap().name, "a/x.log");
        assert!(secret.path().join("a/x.log").exists());
    }

    #[test]
    fn a_torn_line_of_another_process_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.log"), "whole\ntor").unwrap();
        let found = locator(folder.path(), true, None).open("x", Start::Find, &NoFilesInUse).unwrap();
        assert_eq!((found.length, found.torn), (9, true));
    }
}
