//! Finds and opens the file of a segment.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno};

use crate::{Compression, Config, folders, listing::Listing};

/// Number after a name: none, or `_N`.
pub(crate) type Index = Option<u32>;

/// The file for a key's lines.
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
    pub folder: PathBuf,
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
    pub inode: u64,
    pub length: u64,
    /// Whether the last byte is not a newline: another process wrote a torn line.
    pub torn: bool,
    /// Folders in which names were created, or may have been created lately.
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
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            folder: absolute(config.template.folder()),
            suffix: config.suffix.clone(),
            append: config.append,
            rotate_bytes: config.rotate_bytes,
            listing: Listing::new(&config.suffix),
        }
    }

    /// Opens a file of `key`, created if necessary. Skips names that something else uses.
    ///
    /// # Errors
    /// The kernel's errors.
    pub(crate) fn open(
        &mut self,
        key: &str,
        start: Start,
        in_use: &dyn FilesInUse,
    ) -> io::Result<OpenedFile> {
        let (mut index, mut fresh) = match start {
            Start::Continue(index) => (index, false),
            Start::Fresh(index) => (index, true),
            Start::Find => self.find(key, in_use),
        };
        loop {
            let name = self.name(key, index);
            let path = self.folder.join(&name);
            if !in_use.contains_path(&path)
                && !is_packed(&path)
                && !packed_exists(&path)
                && let Some(found) = self.try_open(name, path, index, fresh)?
            {
                let full = self.rotate_bytes.is_some_and(|max_bytes| found.length >= max_bytes);
                if !full && !in_use.contains_inode(found.inode) {
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

    /// The index at which a new key starts, and whether the file must be new.
    fn find(&mut self, key: &str, in_use: &dyn FilesInUse) -> (Index, bool) {
        if !self.append {
            return (Some(0), true);
        }
        if self.rotate_bytes.is_none() {
            return (None, false);
        }
        // The newest existing file, so that lines do not fill gaps between older ones. The listing may be slightly old.
        let mut newest = self.listing.newest(&self.folder.join(key));
        let exists = |index| {
            let path = self.folder.join(self.name(key, index));
            in_use.contains_path(&path) || path.symlink_metadata().is_ok() || packed_exists(&path)
        };
        while exists(next_index(newest)) {
            newest = next_index(newest);
        }
        (newest, false)
    }

    /// Opens a file. None if something else uses the name.
    fn try_open(
        &self,
        name: String,
        path: PathBuf,
        index: Index,
        fresh: bool,
    ) -> io::Result<Option<OpenedFile>> {
        // A symbolic link could lead to another segment, and a pipe would block.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = fs::OpenOptions::new();
        options.read(true).append(true).custom_flags(flags.bits().cast_signed());
        if fresh {
            options.create_new(true)
        } else {
            options.create(true)
        };
        let mut folders = Vec::new();
        let opened = options.open(&path).or_else(|cause| {
            let parent = path.parent().filter(|_| cause.kind() == ErrorKind::NotFound);
            folders::make(parent.ok_or(cause)?, &mut folders)?;
            options.open(&path)
        });
        let file = match opened {
            Ok(file) => file,
            Err(cause) if is_in_use_otherwise(&cause) => return Ok(None),
            Err(cause) => return Err(cause),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let length = metadata.len();
        let mut last = *b"\n";
        if length > 0 {
            file.read_exact_at(&mut last, length - 1)?;
        }
        // For an existing file too, because its creator may not have synced the name.
        folders.extend(path.parent().map(Path::to_owned));
        let (inode, linked, torn) = (metadata.ino(), metadata.nlink() > 0, last != *b"\n");
        Ok(Some(OpenedFile { file, path, name, index, inode, length, torn, folders, linked }))
    }
}

/// The absolute path, so that a file has the same path everywhere, including the journal. Without a current folder, no
/// relative path can be opened anyway.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

pub(crate) fn next_index(index: Index) -> Index {
    Some(index.map_or(1, |number| number + 1))
}

/// Whether a path ends like that of a packed file. No segment may have such a path, whatever the client's tag: readers of
/// packed files would miss its plain lines.
fn is_packed(path: &Path) -> bool {
    Compression::ends(path.as_os_str().as_encoded_bytes())
}

/// Whether the segment at `path` has been packed.
pub(crate) fn packed_exists(path: &Path) -> bool {
    Compression::ALL_SUFFIXES.iter().any(|suffix| packed_path(path, suffix).symlink_metadata().is_ok())
}

/// Path of the segment at `path` once it is packed.
pub(crate) fn packed_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn is_in_use_otherwise(cause: &io::Error) -> bool {
    let errno = cause.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::EXIST | Errno::LOOP | Errno::ISDIR | Errno::NXIO))
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
        let listing = Listing::new(".log");
        Locator { folder: folder.into(), suffix: ".log".into(), append, rotate_bytes, listing }
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
    fn a_torn_line_of_another_process_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.log"), "whole\ntor").unwrap();
        let found = locator(folder.path(), true, None).open("x", Start::Find, &NoFilesInUse).unwrap();
        assert_eq!((found.length, found.torn), (9, true));
    }
}
