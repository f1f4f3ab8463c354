//! Events and folders for this crate's unit tests.

use std::{fs, path::PathBuf};

use record::receipt::Numbering;
use tempfile::TempDir;

/// An event as it would be sent.
pub(crate) fn event(numbering: &Numbering, client: u32, number: u32) -> String {
    let mut event = Vec::new();
    numbering.append(&mut event);
    let at = numbering.front().len();
    numbering.number(&mut event[at..at + 24], client, number);
    String::from_utf8(event).expect("a template is text")
}

/// A temporary folder that contains a folder for receipts and one for files.
pub(crate) struct Folder(pub PathBuf, #[expect(dead_code, reason = "removes the folder on drop")] TempDir);

impl Folder {
    /// Creates the temporary folder and the two folders in it.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        fs::create_dir_all(path.join("receipts")).unwrap();
        fs::create_dir_all(path.join("files")).unwrap();
        Self(path, folder)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}
