//! The archive that the kernel unpacks as its first file system, in cpio's "newc" format, which the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst` describes.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result};

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive under construction. Paths are absolute; parent folders are added automatically.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    paths: BTreeSet<String>,
}

impl Archive {
    /// Adds a folder and its parents.
    pub(super) fn folder(&mut self, path: &str) {
        self.above(path);
        self.entry(path, FOLDER | 0o755, &[]);
    }

    /// Adds a file with these permissions. If two files have the same path, the first one counts.
    pub(super) fn file(&mut self, path: &str, permissions: u32, contents: impl AsRef<[u8]>) {
        self.above(path);
        self.entry(path, FILE | permissions, contents.as_ref());
    }

    /// Adds an executable file of this machine. Follows symbolic links.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn host_file(&mut self, path: &str, source: &Path) -> Result<()> {
        let contents = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        self.file(path, 0o755, contents);
        Ok(())
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.above(path);
        self.entry(path, LINK | 0o777, to.as_bytes());
    }

    /// Ends the archive, and returns its bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("/TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn above(&mut self, path: &str) {
        for (end, _) in path.match_indices('/').skip(1) {
            self.entry(&path[..end], FOLDER | 0o755, &[]);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) {
        if !self.paths.insert(path.to_owned()) {
            return;
        }
        let name = path.trim_start_matches('/');
        // Inode number, mode, owner, group, links, time, size, four device numbers, length of the name with its zero byte, checksum.
        let fields = [self.paths.len() as u32, mode, 0, 0, 1, 0, contents.len() as u32, 0, 0, 0, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields.into_iter().chain([name.len() as u32 + 1, 0]) {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_the_agreed_form() {
        let mut archive = Archive::default();
        archive.file("/a/b", 0o644, "xyz");
        archive.file("/a/b", 0o644, "a second one");
        archive.link("/a/c", "b");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        let entries: Vec<&str> = text.split_inclusive("070701").skip(1).collect();
        let names: Vec<_> = entries.iter().filter_map(|entry| entry[104..].split('\0').next()).collect();
        assert_eq!(names, ["a", "a/b", "a/c", "TRAILER!!!"]);
        assert!(entries[1].starts_with("00000002000081A4"), "{}", entries[1]);
        assert_eq!(&entries[1][48..56], "00000003");
        assert!(entries[1][104..].starts_with("a/b\0\0\0xyz\0"), "{}", entries[1]);
    }
}
